"""Answers: status, headers and body, ready to be sent."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from gantline.api.body import Receive

Header = tuple[bytes, bytes]
Send = Callable[[dict[str, Any]], Awaitable[None]]

JSON: Final = (b"content-type", b"application/json")
PROBLEM_JSON: Final = (b"content-type", b"application/problem+json")
NO_STORE: Final = (b"cache-control", b"no-store")
PRIVATE: Final = (b"cache-control", b"private, no-cache")
_NO_SNIFFING: Final = (b"x-content-type-options", b"nosniff")

_WITHOUT_BODY: Final = frozenset({204, 304})

encode: Final = msgspec.json.Encoder().encode


class Answer:
    """What is sent back. Header values are bytes that were checked where they were made."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, body: bytes = b"", headers: Sequence[Header] = ()) -> None:
        self.status = status
        self.body = body
        self.headers = headers

    async def send(
        self, send: Send, receive: Receive, *, correlation_id: str, with_body: bool = True
    ) -> None:
        headers = self.all_headers(correlation_id)
        if self.status not in _WITHOUT_BODY:
            headers.append((b"content-length", b"%d" % len(self.body)))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body if with_body else b""})

    def all_headers(self, correlation_id: str) -> list[Header]:
        """With those that every answer has."""
        correlation = (b"x-correlation-id", correlation_id.encode("latin-1"))
        return [*self.headers, correlation, _NO_SNIFFING]


def json_answer(status: int, document: Any, *headers: Header, cache: Header = NO_STORE) -> Answer:
    return Answer(status, encode(document), (JSON, cache, *headers))

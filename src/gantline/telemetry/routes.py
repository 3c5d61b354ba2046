"""Routes: a small ASGI application of pages to be read, without any framework."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final, NamedTuple

import msgspec

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Message, Receive, Send], Awaitable[None]]

_JSON: Final = "application/json"


class Response(NamedTuple):
    """A page, whole."""

    status: int
    body: bytes
    content_type: str = _JSON

    @classmethod
    def of(cls, status: int, data: Any) -> "Response":
        return cls(status, msgspec.json.encode(data) + b"\n")


Page = Callable[[], Awaitable[Response]]


class Routes:
    """Answers GET and HEAD; mountable at any path of another application."""

    def __init__(self, pages: Mapping[str, Page]) -> None:
        self._pages = pages

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"there is nothing here but pages to read, no {scope['type']}")
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        response = await self._respond(scope["method"], path)
        headers = [
            (b"content-type", response.content_type.encode()),
            (b"content-length", str(len(response.body)).encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
        ]
        if response.status == 405:
            headers.append((b"allow", b"GET, HEAD"))
        status, body = response.status, b"" if scope["method"] == "HEAD" else response.body
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _respond(self, method: str, path: str) -> Response:
        page = self._pages.get(path)
        if page is None:
            return Response.of(404, {"message": f"There are {', '.join(self._pages)}."})
        if method not in ("GET", "HEAD"):
            return Response.of(405, {"message": "This can only be read."})
        return await page()

"""A call: Starlette's request, with the caller and what was read of it."""

from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope

from gantline.api.headers import uuid_of
from gantline.api.problems import ApiCode, Refused
from gantline.api.shares import Holder, Turn
from gantline.auth.action import Action
from gantline.auth.authenticator import Credentials
from gantline.auth.gate import Asker
from gantline.auth.principal import Principal

_MOST_DIGITS: Final = 18
_UNQUOTED: Final = "/~:@!$&'()*+,;=-._"


class ClientGone(ClientDisconnect):
    """The client hung up while it was waiting; there is nobody to answer."""


class Call(Request):
    """One request. What has no value yet is set on its way to the operation."""

    principal: Principal
    right: Action
    """What the operation needs."""
    query: Any
    sent: Any
    """What the body was decoded into."""
    turn: Turn
    """Held while the operation runs; to be ended where it waits for something else."""

    def __init__(
        self, scope: Scope, receive: Receive, headers: dict[str, str], correlation_id: str
    ) -> None:
        super().__init__(scope, receive)
        client = scope.get("client")
        self.address = client[0] if client else ""
        self.holder: Holder | None = None
        """For whom it is counted as under way; None while it is not."""
        self.joined_headers = headers
        """All headers by lower-case name; Starlette's own show the first of two alike."""
        self.correlation_id = correlation_id
        self.parameters: list[tuple[str, str]] = []
        self.raw_body = b""
        self.is_read = False
        """Whether all that was sent has arrived and been read."""
        self.is_known_already = False
        """Whether a web framework gave the principal, so that it cannot be checked again."""
        self.is_decided = False
        """Whether the gate has decided about the job that is named, or has refused."""
        self.operation = ""
        """What is asked for, for the audit log."""
        self.response_headers = [
            (b"x-correlation-id", correlation_id.encode("latin-1")),
            (b"x-content-type-options", b"nosniff"),
        ]
        """Those that every response to this request has, an error too."""

    async def read_body(self, *, limit: int, arriving: Callable[[], None]) -> None:
        """Read all of the body; raise Refused as soon as it is known to be too large.

        `arriving` is called when a part of it has come, and more is to follow.
        """
        declared = self.joined_headers.get("content-length", "")
        # Python reads no number of more than 4300 digits.
        if declared.isdecimal() and (len(declared) > _MOST_DIGITS or int(declared) > limit):
            raise _too_large(limit)
        parts: list[bytes] = []
        size, has_more = 0, True
        while has_more:  # not by `stream()`, which takes 5 µs more
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            part = message.get("body", b"")
            parts.append(part)
            size += len(part)
            if size > limit:
                raise _too_large(limit)
            has_more = message.get("more_body", False)
            if has_more and part:
                arriving()
        # Kept where Starlette keeps it, so that `body()` and `json()` give it to a user's own code.
        self._body = self.raw_body = b"".join(parts)

    async def until_gone(self) -> None:
        """Return when the client has hung up; for after the body was read."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    @property
    def root(self) -> str:
        """Where the API is mounted, as the client sees it; for URLs."""
        return quoted(self.scope.get("root_path", "").rstrip("/"))

    @property
    def path(self) -> str:
        """The whole path, as it can be written into a header or a document."""
        return quoted(self.scope["path"][:1000])

    @property
    def job_id(self) -> UUID:
        return uuid_of("jobId", self.path_params["job_id"])

    @property
    def asker(self) -> Asker:
        return Asker(
            correlation_id=self.correlation_id, client=self.address, operation=self.operation
        )

    @property
    def credentials(self) -> Credentials:
        return Credentials(headers=self.joined_headers, cookies=self.cookies, client=self.address)

    @property
    def cookies(self) -> dict[str, str]:
        """As they were sent, without the quotes around them.

        Not by http.cookies, as Starlette has it: what is escaped in 60 kB takes many seconds there
        before Python 3.11.10 and 3.12.6, and this is read before the caller is known.
        """
        sent = self.joined_headers.get("cookie")
        if not sent:
            return {}
        pairs = (part.partition("=") for part in sent.split(";"))
        return {name.strip(): _unquoted(value.strip()) for name, equals, value in pairs if equals}


Identify = Callable[[Call], Awaitable[Principal | None]]


def quoted(path: str) -> str:
    return quote(path, safe=_UNQUOTED)


def _unquoted(value: str) -> str:
    is_quoted = len(value) >= 2 and value[0] == value[-1] == '"'
    return value[1:-1] if is_quoted else value


def _too_large(limit: int) -> Refused:
    return Refused(ApiCode.BODY_TOO_LARGE, f"The body may have {limit} bytes, and no more.")

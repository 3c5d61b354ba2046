"""A call: one request, read as far as its operation needs it."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote
from uuid import UUID

from gantline.api.body import Receive
from gantline.api.headers import uuid_of
from gantline.api.quota import Quota
from gantline.auth.authenticator import Credentials
from gantline.auth.gate import Asker
from gantline.auth.principal import Principal

Scope = Mapping[str, Any]


class Call:
    """One request. What has no value yet is set on its way to the operation."""

    __slots__ = (
        "body",
        "correlation_id",
        "headers",
        "is_read",
        "is_told",
        "operation",
        "parameters",
        "principal",
        "query",
        "quota",
        "raw_body",
        "receive",
        "scope",
    )

    principal: Principal
    query: Any
    body: Any
    receive: Receive

    def __init__(self, scope: Scope, headers: dict[str, str], correlation_id: str) -> None:
        self.scope = scope
        self.headers = headers
        self.correlation_id = correlation_id
        self.parameters: list[tuple[str, str]] = []
        self.raw_body = b""
        self.is_read = False
        """Whether all that was sent has arrived and been read."""
        self.is_told = False
        """Whether the principal was told by somebody else, so that it cannot be asked for anew."""
        self.operation = ""
        """What is asked for, for the audit log."""
        self.quota: Quota | None = None
        """What the rate limits leave to the principal, where there are any."""

    async def until_gone(self) -> None:
        """Return when the client has hung up; for after the body was read."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    @property
    def root(self) -> str:
        """Where the API is mounted, as the client sees it; for URLs."""
        return quote(self.scope.get("root_path", "").rstrip("/"), safe="/~:@!$&'()*+,;=-._")

    @property
    def path(self) -> str:
        """The whole path, as it can be written into a header or a document."""
        return quote(self.scope["path"][:1000], safe="/~:@!$&'()*+,;=-._")

    def value(self, name: str) -> str:
        """A value out of the path."""
        found: str = self.scope["path_params"][name]
        return found

    @property
    def job_id(self) -> UUID:
        return uuid_of("jobId", self.value("job_id"))

    @property
    def asker(self) -> Asker:
        return Asker(
            correlation_id=self.correlation_id, client=self.client, operation=self.operation
        )

    @property
    def client(self) -> str:
        client = self.scope.get("client")
        return client[0] if client else ""

    @property
    def credentials(self) -> Credentials:
        return Credentials(headers=self.headers, cookies=self._cookies(), client=self.client)

    def _cookies(self) -> dict[str, str]:
        """As they were sent, without the quotes around them.

        Not by http.cookies: what is escaped in 60 kB takes many seconds there before Python 3.11.10
        and 3.12.6, and this is read before it is known who asks.
        """
        sent = self.headers.get("cookie")
        if not sent:
            return {}
        pairs = (part.partition("=") for part in sent.split(";"))
        return {name.strip(): _unquoted(value.strip()) for name, equals, value in pairs if equals}


def _unquoted(value: str) -> str:
    is_quoted = len(value) >= 2 and value[0] == value[-1] == '"'
    return value[1:-1] if is_quoted else value

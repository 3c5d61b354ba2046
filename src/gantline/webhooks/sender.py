"""The sender: one request to one checked address, bounded in time and size, and its answer."""

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Final

import msgspec

from gantline.contract.errors import Code
from gantline.webhooks.guard import Guard, Target, TargetRefused, read_target
from gantline.webhooks.hushed import hushed

if TYPE_CHECKING:
    import httpcore2

    from gantline.webhooks.connecting import GuardedBackend

_MOST_READ: Final = 64 * 1024
_READ_SECONDS: Final = 5.0
"""For the body of an answer, which is only kept to be looked at: its status has said all."""
_CONNECT_SECONDS: Final = 10.0
"""For each address of a host."""


class Answer(msgspec.Struct, frozen=True):
    """What a receiver answered; of its body as much as came in time."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    seconds: float


class NoAnswer(msgspec.Struct, frozen=True):
    """Why there is no answer; the message is safe to show."""

    code: str
    message: str
    seconds: float


class Sender:
    """Sends. Follows no redirect, heeds no proxy of the environment, keeps no connection open:
    what one receiver left in a connection is never another one's answer."""

    def __init__(self, guard: Guard, *, ssl_context: ssl.SSLContext | None = None) -> None:
        self.guard = guard
        self._ssl_context = ssl_context

    def prepare(self) -> None:
        """Load what sending needs; in a thread, for it takes a while."""
        import httpcore2

        import gantline.webhooks.connecting  # noqa: F401  # loads it

        if self._ssl_context is None:
            self._ssl_context = httpcore2.default_ssl_context()

    async def post(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        timeout_seconds: float,
        whose: str,
    ) -> Answer | NoAnswer:
        """Send once, when prepared. The status must come within the timeout, however slowly the
        other side goes on; the body has a few seconds more. `whose` is the tenant's name."""
        import httpcore2  # an extra, and only for who sends

        began = monotonic()

        def nothing(code: str, message: str) -> NoAnswer:
            return NoAnswer(code, message, monotonic() - began)

        try:
            with hushed():
                async with asyncio.timeout(timeout_seconds) as deadline:
                    target = read_target(url)
                    backend = self._backend(target, whose)
                    return await self._post(target, headers, body, backend, began, deadline)
        except TargetRefused as refused:
            return nothing("WEBHOOK_TARGET_REFUSED", f"The URL {refused}.")
        except (TimeoutError, httpcore2.TimeoutException):
            return nothing(Code.TIMEOUT, "The receiver did not answer in time.")
        except httpcore2.ConnectError:
            return nothing(Code.NETWORK_ERROR, "The receiver cannot be reached.")
        except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError):
            return nothing(Code.NETWORK_ERROR, "The receiver hung up, or answered no HTTP.")

    def _backend(self, target: Target, whose: str) -> "GuardedBackend":
        from gantline.webhooks.connecting import GuardedBackend

        return GuardedBackend(self.guard, target, whose=whose, seconds_each=_CONNECT_SECONDS)

    async def _post(
        self,
        target: Target,
        headers: Mapping[str, str],
        body: bytes,
        backend: "GuardedBackend",
        began: float,
        deadline: asyncio.Timeout,
    ) -> Answer:
        import httpcore2

        host = f"[{target.host}]" if ":" in target.host else target.host
        url = httpcore2.URL(scheme=target.scheme, host=host, port=target.port, target=target.path)
        sent = [(name.encode(), value.encode()) for name, value in headers.items()]
        pool = httpcore2.AsyncConnectionPool(
            ssl_context=self._ssl_context,
            max_connections=1,
            max_keepalive_connections=0,
            network_backend=backend,
        )
        async with pool, pool.stream("POST", url, headers=sent, content=body) as response:
            seconds = monotonic() - began
            deadline.reschedule(None)  # answered in time, whatever becomes of the body
            kept = await _read(response)
        return Answer(response.status, _texts(response.headers), kept, seconds)


async def _read(response: "httpcore2.Response") -> bytes:
    """As much of the body as comes; the status is known, so nothing here is a failure."""
    import httpcore2

    kept = bytearray()
    try:
        async with asyncio.timeout(_READ_SECONDS):
            async for part in response.aiter_stream():
                kept += part
                if len(kept) >= _MOST_READ:
                    break
    except (TimeoutError, httpcore2.NetworkError, httpcore2.ProtocolError, OSError):
        pass
    return bytes(kept[:_MOST_READ])


def _texts(headers: Iterable[tuple[bytes, bytes]]) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers
    )

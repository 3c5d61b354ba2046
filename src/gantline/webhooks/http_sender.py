"""Sends one request to one checked address, bounded in time and size, and reads its response."""

import asyncio
import logging
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import TYPE_CHECKING, Final

import msgspec

from gantline.contract.errors import Code
from gantline.webhooks.url_guard import TargetRefused, UrlGuard, WebhookTarget, parse_target

if TYPE_CHECKING:
    import httpcore2

    from gantline.webhooks.http_connection import GuardedBackend

_LOGGER: Final = "httpcore2.http11"
_is_ours: Final = ContextVar("gantline_webhook_is_sent", default=False)


@contextmanager
def silence_http_log() -> Iterator[None]:
    """Drop the DEBUG log of the HTTP library in this context: it has responses with cookies.

    Others who use the library keep its log."""
    logging.getLogger(_LOGGER).addFilter(_is_others)  # which adds it once
    before = _is_ours.set(True)
    try:
        yield
    finally:
        _is_ours.reset(before)


def _is_others(_: logging.LogRecord) -> bool:
    return not _is_ours.get()


_MOST_READ: Final = 64 * 1024
_READ_SECONDS: Final = 5.0
"""For the body of a response, which is only kept for people: the status decides."""
_CONNECT_SECONDS: Final = 10.0
"""For each address of a host."""


class WebhookResponse(msgspec.Struct, frozen=True):
    """What a receiver sent; of its body as much as came in time."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    seconds: float


class NoResponse(msgspec.Struct, frozen=True):
    """Why there is no response; the message is safe to show."""

    code: str
    message: str
    seconds: float


class HttpSender:
    """Sends requests. Follows no redirect, uses no proxy of the environment, keeps no connection
    open: bytes that one receiver left in it must never become the response of another."""

    def __init__(self, guard: UrlGuard, *, ssl_context: ssl.SSLContext | None = None) -> None:
        self.guard = guard
        self._ssl_context = ssl_context

    def prepare(self) -> None:
        """Import what sending needs; call it in a thread, since that takes a while."""
        import httpcore2

        import gantline.webhooks.http_connection  # noqa: F401  # loads it

        if self._ssl_context is None:
            self._ssl_context = httpcore2.default_ssl_context()

    async def post(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        timeout_seconds: float,
        tenant_id: str,
    ) -> WebhookResponse | NoResponse:
        """Send once; `prepare` comes first. The status must arrive within the timeout, even if the
        receiver sends slowly; the body has a few seconds more."""
        import httpcore2  # an extra

        began = monotonic()

        def fail(code: str, message: str) -> NoResponse:
            return NoResponse(code, message, monotonic() - began)

        try:
            with silence_http_log():
                async with asyncio.timeout(timeout_seconds) as deadline:
                    target = parse_target(url)
                    backend = self._backend(target, tenant_id)
                    return await self._post(target, headers, body, backend, began, deadline)
        except TargetRefused as refused:
            return fail("WEBHOOK_TARGET_REFUSED", f"The URL {refused}.")
        except (TimeoutError, httpcore2.TimeoutException):
            return fail(Code.TIMEOUT, "The receiver did not answer in time.")
        except httpcore2.ConnectError:
            return fail(Code.NETWORK_ERROR, "The receiver cannot be reached.")
        except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError):
            return fail(Code.NETWORK_ERROR, "The receiver hung up, or answered no HTTP.")

    def _backend(self, target: WebhookTarget, tenant_id: str) -> "GuardedBackend":
        from gantline.webhooks.http_connection import GuardedBackend

        return GuardedBackend(
            self.guard, target, tenant_id=tenant_id, seconds_each=_CONNECT_SECONDS
        )

    async def _post(
        self,
        target: WebhookTarget,
        headers: Mapping[str, str],
        body: bytes,
        backend: "GuardedBackend",
        began: float,
        deadline: asyncio.Timeout,
    ) -> WebhookResponse:
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
            deadline.reschedule(None)  # the status came in time, whatever becomes of the body
            kept = await _read_body(response)
        return WebhookResponse(response.status, _decode_headers(response.headers), kept, seconds)


async def _read_body(response: "httpcore2.Response") -> bytes:
    """Read as much of the body as comes; the status is known, so no error here matters."""
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


def _decode_headers(headers: Iterable[tuple[bytes, bytes]]) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers
    )

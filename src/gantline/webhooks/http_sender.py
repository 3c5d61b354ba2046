"""Sends one request to one checked address, bounded in time and size, and reads its response.

The only importer of httpcore2, which is an extra and takes a while to import.
"""

import asyncio
import logging
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import httpcore2

from gantline.contract.errors import Code
from gantline.runtime import monotonic
from gantline.webhooks.retry import NoResponse, WebhookResponse
from gantline.webhooks.url_guard import TargetRefused, UrlGuard, WebhookTarget, parse_target

_log = logging.getLogger("gantline.webhooks")
_LOGGER: Final = "httpcore2.http11"
_is_ours: Final = ContextVar("gantline_webhook_is_sent", default=False)
_MOST_RECEIVED: Final = 128 * 1024
"""The limit of a response with its head. One in tiny parts takes long to parse, and blocks the loop
meanwhile."""
_MOST_READ: Final = 64 * 1024
_READ_SECONDS: Final = 5.0
"""For the body of a response, which is only kept for people: the status decides."""
_CONNECT_SECONDS: Final = 10.0
"""For each address of a host."""
_UNREACHABLE: Final = NoResponse(
    Code.NETWORK_ERROR, "The receiver cannot be reached, or webhooks may not go there."
)
"""One for all: no such name, an internal one, nobody there. A tenant could map our network by the
difference; the log has the cause."""


class HttpSender:
    """Sends requests. Follows no redirect, uses no proxy of the environment, keeps no connection
    open: bytes that one receiver left in it must never become the response of another."""

    def __init__(self, guard: UrlGuard, *, ssl_context: ssl.SSLContext | None = None) -> None:
        self.guard = guard
        self._ssl_context = ssl_context or httpcore2.default_ssl_context()

    async def post(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        timeout_seconds: float,
        tenant_id: str,
    ) -> WebhookResponse | NoResponse:
        """Send once. The status must arrive within the timeout, even if the receiver sends slowly;
        the body has a few seconds more."""
        try:
            target = parse_target(url)
        except TargetRefused:  # it was stored when more was allowed
            return _UNREACHABLE
        backend = GuardedBackend(self.guard, target, tenant_id=tenant_id)
        try:
            with silence_http_log():
                async with asyncio.timeout(timeout_seconds) as deadline:
                    return await self._post(backend, headers, body, deadline)
        except TargetRefused:
            return _UNREACHABLE
        except (TimeoutError, httpcore2.TimeoutException, httpcore2.ConnectError) as error:
            if backend.is_connected and not isinstance(error, httpcore2.ConnectError):
                return NoResponse(Code.TIMEOUT, "The receiver did not answer in time.")
            _log.info(
                "no webhook of tenant %s reached %s port %d: %s",
                *(tenant_id, target.host, target.port, repr(error)),
            )
            return _UNREACHABLE
        except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError):
            return NoResponse(Code.NETWORK_ERROR, "The receiver hung up, or answered no HTTP.")

    async def _post(
        self,
        backend: "GuardedBackend",
        headers: Mapping[str, str],
        body: bytes,
        deadline: asyncio.Timeout,
    ) -> WebhookResponse:
        began, target = monotonic(), backend.target
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
            deadline.reschedule(None)  # the status came in time, whether or not the body does
            kept = await _read_body(response)
        return WebhookResponse(response.status, _decode_headers(response.headers), kept, seconds)


class GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Connects to one target. TLS still checks the name of the URL."""

    def __init__(self, guard: UrlGuard, target: WebhookTarget, *, tenant_id: str) -> None:
        self._guard = guard
        self.target = target
        self.is_connected = False
        self._tenant_id = tenant_id
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # as httpcore2 calls it
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        failed: Exception = httpcore2.ConnectError("no address")
        for address in await self._guard.addresses(self.target, tenant_id=self._tenant_id):
            try:
                stream = await self._network.connect_tcp(
                    str(address), self.target.port, timeout=_CONNECT_SECONDS
                )
                self.is_connected = True
                return _BoundedStream(stream)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failed = error
        raise failed


class _BoundedStream(httpcore2.AsyncNetworkStream):
    """A connection on which a limited number of bytes is received."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream
        self._left = _MOST_RECEIVED

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109  # as httpcore2 calls it
        if self._left <= 0:
            raise httpcore2.ReadError("the answer is too large")
        received = await self._stream.read(min(max_bytes, self._left), timeout)
        self._left -= len(received)
        return received

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as httpcore2 calls it
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # as httpcore2 calls it
    ) -> httpcore2.AsyncNetworkStream:
        return _BoundedStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


async def _read_body(response: httpcore2.Response) -> bytes:
    """Read as much of the body as comes; the status is known, so no error here matters."""
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

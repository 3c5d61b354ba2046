"""HTTP connections to addresses that the guard has checked, and to no others.

Apart from the sender, because httpcore2 is an extra and these are subclasses of its classes.
"""

import ssl
from collections.abc import Iterable
from typing import Any, Final

import httpcore2

from gantline.webhooks.url_guard import UrlGuard, WebhookTarget

_MOST_RECEIVED: Final = 128 * 1024
"""The limit of a response with its head. One in tiny parts takes long to parse, and blocks the loop
meanwhile."""


class GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Connects to one target. TLS still checks the name of the URL."""

    def __init__(
        self, guard: UrlGuard, target: WebhookTarget, *, tenant_id: str, seconds_each: float
    ) -> None:
        self._guard = guard
        self._target = target
        self._tenant_id = tenant_id
        self._seconds_each = seconds_each
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
        for address in await self._guard.addresses(self._target, tenant_id=self._tenant_id):
            try:
                return _BoundedStream(
                    await self._network.connect_tcp(
                        str(address), self._target.port, timeout=self._seconds_each
                    )
                )
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

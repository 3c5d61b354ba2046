"""Connecting: to an address that the guard has checked, and to none besides.

Apart from the sender, because httpcore2 is an extra and this is a class of its kind.
"""

from collections.abc import Iterable

import httpcore2

from windlass.webhooks.guard import Guard, Target


class GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Connects to one target. Name and certificate stay those of the URL, so TLS checks them."""

    def __init__(self, guard: Guard, target: Target, *, whose: str, seconds_each: float) -> None:
        self._guard = guard
        self._target = target
        self._whose = whose
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
        for address in await self._guard.addresses(self._target, whose=self._whose):
            try:
                return await self._network.connect_tcp(
                    str(address), self._target.port, timeout=self._seconds_each
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failed = error
        raise failed

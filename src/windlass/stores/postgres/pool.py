"""The connections of one event loop: made when needed, kept, and dropped when in doubt.

psycopg's own pool keeps background tasks and belongs to one loop; a store is called from several,
some of which end without a word.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar

import psycopg
from psycopg import AsyncConnection, waiting
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from windlass.stores.postgres import arrays
from windlass.stores.postgres.location import Location
from windlass.stores.postgres.sql import Row

# So that a host that is gone is noticed in seconds, not hours. The URL may say otherwise.
_DEFAULTS: Final[dict[str, Any]] = {
    "application_name": "windlass",
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
_PREPARE_AFTER: Final = 2
_GOODBYE_SECONDS: Final = 0.5
_LOOK_SECONDS: Final = 0.1  # as psycopg has it

RV = TypeVar("RV")


class _Connection(AsyncConnection[Row]):
    """One that a call can leave at once."""

    async def wait(
        self,
        gen: PQGen[RV],
        interval: float = _LOOK_SECONDS,
        timeout: float | None = None,  # noqa: ASYNC109  # psycopg's own
    ) -> RV:
        """Wait for the server; when cancelled, ask it to stop too and hang up.

        psycopg would wait for its answer, and a server that stands still gives none for as long as
        it likes.
        """
        try:
            return await waiting.wait_async(gen, self.pgconn.socket, interval, timeout)
        except asyncio.CancelledError:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                with suppress(psycopg.Error):
                    await self.cancel_safe(timeout=_GOODBYE_SECONDS)
                self.pgconn.finish()
            raise


def full_conninfo(location: Location) -> str:
    return make_conninfo(**_DEFAULTS | conninfo_to_dict(location.conninfo))


async def connect(location: Location) -> AsyncConnection[Row]:
    """Open one connection; it commits by itself unless told otherwise."""
    connection = await _Connection.connect(
        full_conninfo(location),
        autocommit=True,
        prepare_threshold=_PREPARE_AFTER if location.prepare else None,
    )
    arrays.register(connection.adapters)
    return connection


class Pool:
    """Lends connections, at most so many at once."""

    def __init__(self, location: Location, size: int) -> None:
        self._location = location
        self._free = asyncio.Semaphore(size)
        self._idle: list[AsyncConnection[Row]] = []
        self._closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection[Row]]:
        async with self._free:
            connection = self._idle.pop() if self._idle else await connect(self._location)
            try:
                yield connection
            finally:
                # Not idle: an error or a cancellation left it in the middle of something.
                is_sound = connection.pgconn.transaction_status == TransactionStatus.IDLE
                if is_sound and not self._closed:
                    self._idle.append(connection)
                else:
                    await connection.close()

    async def drop_idle(self) -> None:
        """Forget what is not in use: after one was lost, the others are as old."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()

    def abandon(self) -> None:
        """Hang up, where the loop has ended on which one could close them."""
        for connection in self._idle:
            connection.pgconn.finish()

    async def close(self) -> None:
        self._closed = True
        await self.drop_idle()

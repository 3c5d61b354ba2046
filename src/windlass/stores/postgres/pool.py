"""The connections of one event loop: made when needed, kept, and dropped when in doubt.

psycopg's own pool keeps background tasks and belongs to one loop; a store is called from several,
some of which end without a word.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from psycopg import AsyncConnection
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


def full_conninfo(location: Location) -> str:
    return make_conninfo(**_DEFAULTS | conninfo_to_dict(location.conninfo))


async def connect(location: Location) -> AsyncConnection[Row]:
    """Open one connection; it commits by itself unless told otherwise."""
    connection: AsyncConnection[Row] = await AsyncConnection.connect(
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

    async def close(self) -> None:
        self._closed = True
        await self.drop_idle()

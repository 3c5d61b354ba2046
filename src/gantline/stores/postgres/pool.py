"""The connections of one event loop: made when needed, kept, and dropped when in doubt.

psycopg's own pool keeps background tasks and belongs to one loop; a store is called from several,
some of which end without a word.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import psycopg
from psycopg.pq import TransactionStatus

from gantline.stores.postgres.connection import Connection

Connect = Callable[[], Awaitable[Connection]]

_RESET_SECONDS: Final = 5.0


class Pool:
    """Lends connections, at most so many at once."""

    def __init__(self, connect: Connect, size: int) -> None:
        self._connect = connect
        self._free = asyncio.Semaphore(size)
        self._idle: list[Connection] = []
        self._closed = False

    @property
    def is_exhausted(self) -> bool:
        return self._free.locked()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        async with self._free:
            connection = self._idle.pop() if self._idle else await self._connect()
            try:
                yield connection
            finally:
                await self._take_back(connection)

    @asynccontextmanager
    async def connection_for_others(self) -> AsyncIterator[Connection]:
        """One for code that is not ours: like new for each, whatever the one before did with it."""
        async with self.connection() as connection:
            lent = await connection.lend()
            try:
                yield lent
            finally:
                lent.part_with()
                await _clean(connection)

    async def _take_back(self, connection: Connection) -> None:
        # Not idle: an error or a cancellation left it in the middle of something.
        if _is_idle(connection) and not self._closed:
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


def _is_idle(connection: Connection) -> bool:
    return connection.pgconn.transaction_status == TransactionStatus.IDLE


async def _clean(connection: Connection) -> None:
    """Reset the session, or hang up where that does not work: what was done stays done."""
    if not _is_idle(connection):
        return
    try:
        async with asyncio.timeout(_RESET_SECONDS):
            await connection.reset()
    except (psycopg.Error, TimeoutError):
        await connection.close()

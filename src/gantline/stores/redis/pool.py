"""The connections of one event loop: made when needed, kept, and dropped when in doubt."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from gantline.stores.redis.connection import Connection

Connect = Callable[[], Awaitable[Connection]]


class Pool:
    """Lends connections, at most so many at once."""

    def __init__(self, connect: Connect, size: int) -> None:
        self._connect = connect
        self._free = asyncio.Semaphore(size)
        self._idle: list[Connection] = []
        self._closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        async with self._free:
            connection = await self._take_idle() or await self._connect()
            try:
                yield connection
            except BaseException:
                # An answer may be under way that nobody will read.
                await connection.close()
                raise
            await self._take_back(connection)

    async def _take_idle(self) -> Connection | None:
        """One that the server has not ended meanwhile."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
            await connection.close()
        return None

    async def _take_back(self, connection: Connection) -> None:
        if connection.is_open and not self._closed:
            self._idle.append(connection)
        else:
            await connection.close()

    async def drop_idle(self) -> None:
        """Forget what is not in use: after one was lost, the others are as old."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()

    def abandon(self) -> None:
        """Let go, where the loop has ended on which one could close them."""
        for connection in self._idle:
            connection.abandon()

    async def close(self) -> None:
        self._closed = True
        await self.drop_idle()

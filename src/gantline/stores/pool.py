"""The connections of a store to its server: a pool per event loop and purpose.

A store is called from several event loops, and some of them end without closing anything.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from enum import Enum
from typing import Final, Generic, Protocol, TypeVar

from gantline.contract.errors import StoreUnavailable
from gantline.runtime import jittered

_FIRST_WAIT_SECONDS: Final = 0.02
_LONGEST_WAIT_SECONDS: Final = 1.0
_CLOSE_SECONDS: Final = 2.0


class Purpose(Enum):
    """Whose connections a call uses: none of these can starve another."""

    VERBS = "verbs"
    CONTROL = "control"
    """Leases and leadership."""
    HANDLERS = "handlers"
    """Transactions that handlers hold open for as long as they like."""


class Pooled(Protocol):
    """What a pool asks of a connection."""

    @property
    def is_reusable(self) -> bool:
        """Whether it is open and nothing on it is unfinished."""
        ...

    async def close(self) -> None: ...

    def abandon(self) -> None:
        """Close it where its event loop has ended."""
        ...


C = TypeVar("C", bound=Pooled)


class Pool(Generic[C]):
    """Lends the connections of one event loop, at most so many at once."""

    def __init__(self, connect: Callable[[], Awaitable[C]], size: int) -> None:
        self._connect = connect
        self._free = asyncio.Semaphore(size)
        self._idle: list[C] = []
        self._closed = False

    @property
    def is_exhausted(self) -> bool:
        return self._free.locked()

    def connection(self) -> "Lent[C]":
        """Lend one for the time of an `async with`."""
        return Lent(self)

    async def take(self) -> C:
        """Wait for a connection, which must be given back."""
        await self._free.acquire()
        try:
            while self._idle:
                connection = self._idle.pop()
                if connection.is_reusable:  # the server has not closed it meanwhile
                    return connection
                await connection.close()
            return await self._connect()
        except BaseException:
            self._free.release()
            raise

    async def give_back(self, connection: C) -> None:
        try:
            # An error or a cancellation may have left a response that nobody will read.
            if connection.is_reusable and not self._closed:
                self._idle.append(connection)
            else:
                await connection.close()
        finally:
            self._free.release()

    async def drop_idle(self) -> None:
        """Close what is not in use: after one connection was lost, the others are as old."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()

    def abandon(self) -> None:
        self._closed = True
        for connection in self._idle:
            connection.abandon()

    async def close(self) -> None:
        self._closed = True
        await self.drop_idle()


class Lent(Generic[C]):
    """A connection of a pool for the time of a block. Every call of a store needs one: a class,
    since a generator for each was 3 µs of them."""

    __slots__ = ("_connection", "_pool")

    def __init__(self, pool: Pool[C]) -> None:
        self._pool = pool

    async def __aenter__(self) -> C:
        self._connection = await self._pool.take()
        return self._connection

    async def __aexit__(self, *error: object) -> None:
        await self._pool.give_back(self._connection)


class Pools(Generic[C]):
    """The pools of one store."""

    def __init__(self, connect: Callable[[], Awaitable[C]], size: int) -> None:
        self._connect = connect
        self._size = size
        self._pools: dict[tuple[asyncio.AbstractEventLoop, Purpose], Pool[C]] = {}
        self._closed = False

    def get(self, purpose: Purpose) -> Pool[C]:
        """Give the pool of the running event loop."""
        if self._closed:
            raise StoreUnavailable("The store is closed.", next_step="Open it again.")
        owner = (asyncio.get_running_loop(), purpose)
        pool = self._pools.get(owner)
        if pool is None:
            self._abandon_ended_loops()
            size = 1 if purpose is Purpose.CONTROL else self._size
            pool = self._pools[owner] = Pool(self._connect, size)
        return pool

    def _abandon_ended_loops(self) -> None:
        for loop, purpose in list(self._pools):
            # Another thread may do the same just now.
            if loop.is_closed() and (pool := self._pools.pop((loop, purpose), None)):
                pool.abandon()

    async def close(self) -> None:
        self._closed = True
        for (loop, _), pool in list(self._pools.items()):
            if loop is asyncio.get_running_loop():
                await pool.close()
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(pool.close(), loop)
                with suppress(TimeoutError):  # then that loop ends, or is blocked
                    async with asyncio.timeout(_CLOSE_SECONDS):
                        await asyncio.wrap_future(closing)
            else:
                pool.abandon()


def retry_waits() -> Iterator[float]:
    """Yield how many seconds to wait before each further attempt, with jitter."""
    wait = _FIRST_WAIT_SECONDS
    while True:
        yield jittered(wait, by=0.5)
        wait = min(2 * wait, _LONGEST_WAIT_SECONDS)


def is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def raise_if_cancelled() -> None:
    """Raise a cancellation that an error of the server has hidden."""
    if is_being_cancelled():
        raise asyncio.CancelledError

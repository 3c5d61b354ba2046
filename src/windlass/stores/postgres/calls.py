"""Calls: every verb goes through here, with a deadline, further attempts and errors in our words.

An attempt whose answer was lost is simply made again: all verbs survive that.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from enum import Enum
from typing import Final, TypeVar

import psycopg

from windlass.contract.errors import StoreUnavailable
from windlass.stores.postgres import failures
from windlass.stores.postgres.location import Location
from windlass.stores.postgres.pool import Pool
from windlass.stores.postgres.sql import Sql

T = TypeVar("T")
Work = Callable[[Sql], Awaitable[T]]

_FIRST_WAIT_SECONDS: Final = 0.02
_LONGEST_WAIT_SECONDS: Final = 1.0


class Purpose(Enum):
    """Whose connections a call uses: none of these can starve another."""

    VERBS = "verbs"
    CONTROL = "control"
    """Leases and leadership."""
    HANDLERS = "handlers"
    """Transactions that handlers hold open for as long as they like."""


class Calls:
    """Runs pieces of work on connections of the loop that calls."""

    def __init__(
        self, location: Location, *, before_commit: Callable[[], None] | None = None
    ) -> None:
        self._location = location
        self._before_commit = before_commit
        self._pools: dict[tuple[asyncio.AbstractEventLoop, Purpose], Pool] = {}
        self._closed = False
        self.losses = 0
        """How often a connection was lost. What is on the other side may be an older database."""

    async def run(
        self, work: Work[T], *, purpose: Purpose = Purpose.VERBS, atomic: bool = False
    ) -> T:
        """Do `work`; as one transaction where it takes several statements."""
        pool = self._pool(purpose)
        seconds = self._location.deadline.total_seconds()
        failed: list[psycopg.Error] = []
        try:
            async with asyncio.timeout(seconds):
                return await self._until_it_works(pool, work, atomic, failed)
        except TimeoutError:
            if failed:
                raise failures.translate(failed[-1]) from failed[-1]
            raise StoreUnavailable(
                f"PostgreSQL has not answered within {seconds:g} s.",
                next_step="Look for locks in pg_stat_activity, or for what keeps the server busy.",
            ) from None

    async def _until_it_works(
        self, pool: Pool, work: Work[T], atomic: bool, failed: list[psycopg.Error]
    ) -> T:
        wait = _FIRST_WAIT_SECONDS
        while True:
            try:
                async with pool.connection() as connection:
                    return await self._attempt(Sql(connection, self._location), work, atomic)
            except psycopg.Error as error:
                _stop_if_cancelled()
                if not failures.is_worth_another_attempt(error):
                    raise failures.translate(error) from error
                if failures.is_lost(error):
                    self.losses += 1
                    await pool.drop_idle()
                failed.append(error)
            await asyncio.sleep(wait * random.uniform(0.5, 1.5))  # noqa: S311  # not a secret
            wait = min(2 * wait, _LONGEST_WAIT_SECONDS)

    async def _attempt(self, sql: Sql, work: Work[T], atomic: bool) -> T:
        if not atomic and self._before_commit is None:
            return await work(sql)
        async with sql.connection.transaction():
            answer = await work(sql)
            if self._before_commit is not None:
                await asyncio.to_thread(self._before_commit)
        return answer

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Sql]:
        """Begin a transaction of a handler's own. Never repeated: its statements are not ours.

        Nor are their errors: what is raised in the block leaves it as it is.
        """
        raised: BaseException | None = None
        try:
            async with (
                self._pool(Purpose.HANDLERS).connection() as connection,
                connection.transaction(),
            ):
                try:
                    yield Sql(connection, self._location)
                except BaseException as error:
                    raised = error
                    raise
        except psycopg.Error as error:
            if error is raised:
                raise
            raise failures.translate(error) from error

    def _pool(self, purpose: Purpose) -> Pool:
        if self._closed:
            raise StoreUnavailable("The store is closed.", next_step="Open it again.")
        place = (asyncio.get_running_loop(), purpose)
        pool = self._pools.get(place)
        if pool is None:
            self._forget_loops_that_ended()
            size = 1 if purpose is Purpose.CONTROL else self._location.connections
            pool = self._pools[place] = Pool(self._location, size)
        return pool

    def _forget_loops_that_ended(self) -> None:
        for loop, purpose in list(self._pools):
            if loop.is_closed():
                self._pools.pop((loop, purpose)).abandon()

    async def close(self) -> None:
        self._closed = True
        for pool in list(self._pools.values()):
            await pool.close()


def _stop_if_cancelled() -> None:
    """A cancellation that meets an error of the server is hidden by it."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError

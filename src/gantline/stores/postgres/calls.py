"""Calls: every verb goes through here, with a deadline, further attempts and errors in our words.

An attempt whose answer was lost is simply made again: all verbs survive that.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from enum import Enum
from types import TracebackType
from typing import Final, TypeVar

import psycopg

from gantline.contract.errors import StoreBusy, StoreUnavailable
from gantline.stores.postgres import failures
from gantline.stores.postgres.connection import Connection, Pool, connect, is_being_cancelled
from gantline.stores.postgres.location import Location
from gantline.stores.postgres.sql import Sql

T = TypeVar("T")
Work = Callable[[Sql], Awaitable[T]]

_FIRST_WAIT_SECONDS: Final = 0.02
_LONGEST_WAIT_SECONDS: Final = 1.0


T_co = TypeVar("T_co", covariant=True)


class Bounded(AbstractAsyncContextManager[T_co]):
    """Enter and leave another context, or raise `too_late`."""

    def __init__(
        self,
        inner: AbstractAsyncContextManager[T_co],
        *,
        seconds: float,
        too_late: Callable[[], Exception],
    ) -> None:
        self._inner = inner
        self._seconds = seconds
        self._too_late = too_late

    async def __aenter__(self) -> T_co:
        try:
            async with asyncio.timeout(self._seconds):
                return await self._inner.__aenter__()
        except TimeoutError:
            raise self._too_late() from None

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        try:
            async with asyncio.timeout(self._seconds):
                return await self._inner.__aexit__(kind, error, trace)
        except TimeoutError:
            if error is None:
                raise self._too_late() from None
            return None  # what was raised in the block tells more


async def nothing(sql: Sql) -> None:
    """The work of a call for which all that is to be done comes before."""


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
        self._seconds = location.deadline.total_seconds()
        self._before_commit = before_commit
        self._pools: dict[tuple[asyncio.AbstractEventLoop, Purpose], Pool] = {}
        self._connected = 0
        self._closed = False
        self.are_durable = True
        """Whether every connection so far keeps what it has committed."""

    async def run(
        self,
        work: Work[T],
        *,
        purpose: Purpose = Purpose.VERBS,
        atomic: bool = False,
        before: Work[None] | None = None,
    ) -> T:
        """Do `work`; as one transaction where it takes several statements.

        What has to be done `before`, is done in every attempt: on the same connection, but not in
        that transaction.
        """
        pool = self._pool(purpose)
        failed: list[psycopg.Error] = []
        try:
            async with asyncio.timeout(self._seconds):
                return await self._until_it_works(pool, work, atomic, before, failed)
        except TimeoutError:
            pass
        raise failures.told(failed[-1]) if failed else self._silence()

    async def _until_it_works(
        self,
        pool: Pool,
        work: Work[T],
        atomic: bool,
        before: Work[None] | None,
        failed: list[psycopg.Error],
    ) -> T:
        wait, is_repeated = _FIRST_WAIT_SECONDS, False
        while True:
            was_sent = False
            try:
                async with pool.connection() as connection:
                    sql = Sql(connection, self._location, is_repeated=is_repeated)
                    if before is not None:
                        await before(sql)
                    was_sent = True
                    return await self._attempt(sql, work, atomic)
            except failures.RAISED as error:
                _stop_if_cancelled()
                failed.append(failures.as_error(error))
            if not failures.is_worth_another_attempt(failed[-1]):
                raise failures.told(failed[-1])
            if failures.is_lost(failed[-1]):
                is_repeated |= was_sent and failures.may_be_done(failed[-1])
                await pool.drop_idle()
            await asyncio.sleep(wait * random.uniform(0.5, 1.5))  # noqa: S311  # not a secret
            wait = min(2 * wait, _LONGEST_WAIT_SECONDS)

    async def _attempt(self, sql: Sql, work: Work[T], atomic: bool) -> T:
        by_itself = not atomic and self._before_commit is None
        if by_itself and sql.connection.is_read_committed:
            return await work(sql)
        async with sql.connection.transaction():
            answer = await work(sql)
            if self._before_commit is not None:
                await asyncio.to_thread(self._before_commit)
        return answer

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Sql]:
        """Begin a transaction of a handler's own. Never repeated: its statements are not ours.

        Nor are their errors: what is raised in the block leaves it as it is. The block may take as
        long as it likes; its beginning and its end have a deadline each.
        """
        pool, raised = self._pool(Purpose.HANDLERS), list[BaseException]()
        try:
            async with (
                self._bounded(pool.connection_for_others(), pool) as connection,
                self._bounded(connection.transaction()),
            ):
                try:
                    yield Sql(connection, self._location)
                except BaseException as error:
                    raised.append(error)
                    raise
            return
        except psycopg.Error as error:
            if error in raised:
                raise
            failed = error
        raise failures.told(failed)

    async def in_time(self, work: Awaitable[T]) -> T:
        """Wait for something that is done on a handler's connection no longer than for a call."""
        try:
            async with asyncio.timeout(self._seconds):
                return await work
        except TimeoutError:
            raise self._silence() from None

    def _bounded(
        self, inner: AbstractAsyncContextManager[T], pool: Pool | None = None
    ) -> Bounded[T]:
        def too_late() -> StoreUnavailable:
            return self._none_free() if pool and pool.is_exhausted else self._silence()

        return Bounded(inner, seconds=self._seconds, too_late=too_late)

    def _silence(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"PostgreSQL has not answered within {self._seconds:g} s.",
            next_step="Look for locks in pg_stat_activity, or for what keeps the server busy.",
        )

    def _none_free(self) -> StoreBusy:
        return StoreBusy(
            f"All {self._location.connections} connections for transactions of handlers have been "
            f"in use for {self._seconds:g} s.",
            next_step="Do not begin one inside another, end them sooner, or allow more with "
            "`connections` in the store URL.",
        )

    def _pool(self, purpose: Purpose) -> Pool:
        if self._closed:
            raise StoreUnavailable("The store is closed.", next_step="Open it again.")
        place = (asyncio.get_running_loop(), purpose)
        pool = self._pools.get(place)
        if pool is None:
            self._forget_loops_that_ended()
            size = 1 if purpose is Purpose.CONTROL else self._location.connections
            pool = self._pools[place] = Pool(self._connect, size)
        return pool

    async def _connect(self) -> Connection:
        connection = await connect(self._location)
        # Counted when it is there: one that took long may have reached another server by then.
        self._connected += 1
        connection.number = self._connected
        self.are_durable &= connection.is_durable
        return connection

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
    if is_being_cancelled():
        raise asyncio.CancelledError

"""Calls: every verb runs through here, with a deadline, retries and our errors.

A call whose response was lost is repeated: all verbs allow that.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import TypeVar

import psycopg

from gantline.contract.errors import StoreBusy, StoreUnavailable
from gantline.stores.pool import Pool, Pools, Purpose, raise_if_cancelled, retry_waits
from gantline.stores.postgres import failures
from gantline.stores.postgres.connection import Connection, connect, lend
from gantline.stores.postgres.location import Location
from gantline.stores.postgres.sql import Sql

T = TypeVar("T")
Work = Callable[[Sql], Awaitable[T]]


T_co = TypeVar("T_co", covariant=True)


class Bounded(AbstractAsyncContextManager[T_co]):
    """Enters and leaves another context, each with a deadline; what is between has none."""

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
            return None  # what was raised in the block says more


async def do_nothing(sql: Sql) -> None:
    """The work of a call that does everything in `before`."""


class Calls:
    """Runs pieces of work on connections of the calling event loop."""

    def __init__(
        self, location: Location, *, before_commit: Callable[[], None] | None = None
    ) -> None:
        self._location = location
        self._seconds = location.deadline.total_seconds()
        self._before_commit = before_commit
        self._pools = Pools(self._connect, location.connections)
        self._connected = 0
        self.are_durable = True
        """Whether commits on every connection so far survive a crash of the server."""

    async def run(
        self,
        work: Work[T],
        *,
        purpose: Purpose = Purpose.VERBS,
        atomic: bool = False,
        before: Work[None] | None = None,
    ) -> T:
        """Do `work`; in one transaction where `atomic`.

        `before` is done in every attempt, on the same connection, but not in that transaction.
        """
        pool = self._pools.get(purpose)
        failed: list[psycopg.Error] = []
        try:
            async with asyncio.timeout(self._seconds):
                return await self._retry(pool, work, atomic, before, failed)
        except TimeoutError:
            pass
        raise failures.translate_with_cause(failed[-1]) if failed else self._no_response()

    async def _retry(
        self,
        pool: Pool[Connection],
        work: Work[T],
        atomic: bool,
        before: Work[None] | None,
        failed: list[psycopg.Error],
    ) -> T:
        waits, is_repeated = retry_waits(), False
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
                raise_if_cancelled()
                failed.append(failures.to_psycopg_error(error))
            if not failures.is_retryable(failed[-1]):
                raise failures.translate_with_cause(failed[-1])
            if failures.is_lost(failed[-1]):
                is_repeated |= was_sent and failures.may_be_done(failed[-1])
                await pool.drop_idle()
            await asyncio.sleep(next(waits))

    async def _attempt(self, sql: Sql, work: Work[T], atomic: bool) -> T:
        by_itself = not atomic and self._before_commit is None
        if by_itself and sql.connection.is_read_committed:
            return await work(sql)
        async with sql.connection.transaction():
            result = await work(sql)
            if self._before_commit is not None:
                await asyncio.to_thread(self._before_commit)
        return result

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Sql]:
        """Begin a transaction of a handler's own. Never repeated: its statements are not ours.

        Nor are their errors: what is raised in the block leaves it as it is. The block may take as
        long as it likes; its beginning and its end have a deadline each.
        """
        pool, raised = self._pools.get(Purpose.HANDLERS), list[BaseException]()
        try:
            async with (
                self._bounded(lend(pool), pool) as connection,
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
        raise failures.translate_with_cause(failed)

    async def run_in_time(self, work: Awaitable[T]) -> T:
        """Wait for work on a handler's connection, with the deadline of a call."""
        try:
            async with asyncio.timeout(self._seconds):
                return await work
        except TimeoutError:
            raise self._no_response() from None

    def _bounded(
        self, inner: AbstractAsyncContextManager[T], pool: Pool[Connection] | None = None
    ) -> Bounded[T]:
        def too_late() -> StoreUnavailable:
            return self._none_free() if pool and pool.is_exhausted else self._no_response()

        return Bounded(inner, seconds=self._seconds, too_late=too_late)

    def _no_response(self) -> StoreUnavailable:
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

    async def _connect(self) -> Connection:
        connection = await connect(self._location)
        # Numbered once it is open: a slow one may have reached another server by then.
        self._connected += 1
        connection.number = self._connected
        self.are_durable &= connection.is_durable
        return connection

    async def close(self) -> None:
        await self._pools.close()

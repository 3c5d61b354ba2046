"""ctx.transaction: a handler's writes and the end of its run are one, or neither happened."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from gantline import Context, Fixed, Gantline, Handle, JobFailed, JobStatus, Permanent
from gantline.contract.errors import RunOver, StoreUnavailable
from gantline.contract.outcome import Success
from gantline.contract.policy import DEFAULT_POLICY
from gantline.contract.query import JobFilter
from gantline.contract.results import Applied, Renewal, Stale
from gantline.contract.snapshot import Run
from gantline.contract.status import Event
from gantline.contract.transition import Transition
from gantline.manager.decide import decide
from gantline.testing.conformance import Bench
from gantline.testing.conformance.bench import LEASE
from gantline.worker.settings import WorkerSettings
from tests.harness import PostgresHarness
from tests.servers.postgres import PostgresServer

pytestmark = pytest.mark.matrix

ONE_SECOND = timedelta(seconds=1)


def completed(run: Run) -> Transition:
    return decide(run, Success(b"1"), DEFAULT_POLICY, jitter=0.0)


class Bookings:
    """A table of the handler's own beside the jobs."""

    def __init__(self, server: PostgresServer, schema: str) -> None:
        self._server = server
        self.table = f"{schema}.bookings"
        self.add = f"INSERT INTO {self.table} VALUES (%s)".encode()

    async def execute(self, sql: str, *values: object) -> list[Any]:
        async with await psycopg.AsyncConnection.connect(self._server.url()) as connection:
            cursor = await connection.execute(sql.encode(), values)
            return await cursor.fetchall() if cursor.description else []

    async def all(self) -> list[int]:
        return [row[0] for row in await self.execute(f"SELECT n FROM {self.table} ORDER BY n")]


@pytest.fixture
async def jobs(url: str) -> AsyncIterator[Gantline]:
    async with Gantline(url) as jobs:
        yield jobs


@pytest.fixture
async def bookings(postgres: PostgresServer, schema: str, jobs: Gantline) -> Bookings:
    bookings = Bookings(postgres, schema)
    await bookings.execute(f"CREATE TABLE {bookings.table} (n int PRIMARY KEY)")
    return bookings


@asynccontextmanager
async def working(jobs: Gantline) -> AsyncIterator[None]:
    settings = WorkerSettings(
        lease=ONE_SECOND, drain=timedelta(0), maintain_every=timedelta(milliseconds=100)
    )
    async with jobs.running(settings):
        yield


async def test_writes_and_completion_are_committed_together_or_not_at_all(
    jobs: Gantline, bookings: Bookings
) -> None:
    @jobs.job("next")
    async def next_(value: int) -> None: ...

    @jobs.job("book")
    async def book(value: int, ctx: Context) -> None:
        async with ctx.transaction(result={"booked": value}) as connection:
            await connection.execute(bookings.add, (value,))
            ctx.follow_up(next_, value)
            if value < 0:
                raise Permanent("NEGATIVE", "no")

    async with working(jobs):
        handle: Handle[Any] = await book.submit(7)
        job = await handle.wait(timeout=10)
        assert job.last is not None
        assert (job.status, job.last.result) == (JobStatus.COMPLETED, b'{"booked":7}')
        with pytest.raises(JobFailed):
            await (await book.submit(-1)).result(timeout=10)
        assert await bookings.all() == [7]
    found = await jobs.store.find(JobFilter(job_types=frozenset({"next"})), limit=10)
    assert len(found.items) == 1


async def test_a_handler_sees_the_errors_of_its_own_statements_as_its_driver_raises_them(
    jobs: Gantline, bookings: Bookings
) -> None:
    @jobs.job("book")
    async def book(value: int, ctx: Context) -> str:
        try:
            async with ctx.transaction() as connection:
                await connection.execute(bookings.add, (value,))
                await connection.execute(bookings.add, (value,))
        except psycopg.errors.UniqueViolation:
            return "twice"
        return "once"

    async with working(jobs):
        assert await (await book.submit(7)).result(timeout=10) == "twice"
    assert await bookings.all() == []


async def test_the_writes_of_a_run_that_was_taken_over_are_rolled_back(
    jobs: Gantline, bookings: Bookings, schema: str
) -> None:
    started, may_write = asyncio.Event(), asyncio.Event()
    errors: list[BaseException] = []

    @jobs.job("zombie")
    async def zombie(value: int, ctx: Context) -> None:
        if ctx.fence > 1:
            return
        try:
            async with ctx.transaction() as connection:
                await connection.execute(bookings.add, (value,))
                started.set()
                await may_write.wait()
        except BaseException as error:
            errors.append(error)
            raise

    async with jobs.running(WorkerSettings(lease=timedelta(seconds=4))):  # looked for every second
        handle = await zombie.submit(1)
        await asyncio.wait_for(started.wait(), 10)
        await bookings.execute(f"UPDATE {schema}.lease SET token = gen_random_uuid(), until = 0")
        may_write.set()
        assert (await handle.wait(timeout=20)).status is JobStatus.COMPLETED
    # Told by the commit, or by the lease keeper where that looked first.
    assert [type(error) in (RunOver, asyncio.CancelledError) for error in errors] == [True]
    assert await bookings.all() == []
    rows = await jobs.store.history(handle.job_id, tenant_id=None)
    assert [row.event for row in rows] == [Event.CRASHED, Event.COMPLETED]


async def test_a_transaction_that_is_open_for_longer_than_a_lease_keeps_it(
    jobs: Gantline, bookings: Bookings, schema: str
) -> None:
    async def renewals() -> int:
        ((until,),) = await bookings.execute(f"SELECT until FROM {schema}.lease")
        return int(until)

    @jobs.job("slow")
    async def slow(value: int, ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(bookings.add, (value,))
            first = await renewals()
            # Until it was renewed to twice the first lease, which only the database can tell.
            while await renewals() < first + 2_000_000:  # noqa: ASYNC110  # see above
                await asyncio.sleep(0.02)

    async with working(jobs):
        job = await (await slow.submit(1)).wait(timeout=10)
    assert (job.status, job.fence, job.crashes) == (JobStatus.COMPLETED, 1, 0)
    assert await bookings.all() == [1]


async def test_a_run_that_is_being_committed_is_neither_waited_for_nor_stolen(
    postgres: PostgresServer,
) -> None:
    bench = await Bench.on(PostgresHarness(postgres, deadline="5"))
    run = await bench.start()
    other = await bench.another()
    async with asyncio.timeout(4), bench.store.transaction() as transaction:
        assert isinstance(await transaction.apply(completed(run)), Applied)
        assert await bench.store.renew("worker-1", [run.ref], lease=LEASE) == Renewal()
        await bench.let_leases_expire()
        assert await other.store.expired(limit=10) != []
        assert (await other.reap()).requeued == 0
        assert await other.store.renew("worker-1", [run.ref], lease=LEASE) == Renewal()
    assert await bench.status(run.job.job_id) is JobStatus.COMPLETED
    assert (await other.reap()).requeued == 0
    await bench.close()


async def test_a_commit_that_comes_after_a_reaper_is_refused(postgres: PostgresServer) -> None:
    bench = await Bench.on(PostgresHarness(postgres))
    run = await bench.start()
    async with bench.store.transaction() as transaction:
        await transaction.connection.execute("SELECT 1")
        await bench.reap_expired()
        assert isinstance(await transaction.apply(completed(run)), Stale)
    assert await bench.status(run.job.job_id) is JobStatus.QUEUED
    await bench.close()


async def test_a_connection_lost_before_the_commit_undoes_all_of_it(
    jobs: Gantline, bookings: Bookings, postgres: PostgresServer
) -> None:
    """The job runs again; its second run writes."""

    @jobs.job("book", retry=Fixed(every=timedelta(0), attempts=2))
    async def book(value: int, ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(bookings.add, (value,))
            if ctx.fence == 1:
                pid = connection.info.backend_pid
                await bookings.execute("SELECT pg_terminate_backend(%s, 5000)", pid)

    async with working(jobs):
        job = await (await book.submit(1)).wait(timeout=30)
    assert (job.status, job.fence) == (JobStatus.COMPLETED, 2)
    assert await bookings.all() == [1]


async def test_a_lost_connection_is_told_in_our_words(postgres: PostgresServer) -> None:
    bench = await Bench.on(PostgresHarness(postgres))
    run = await bench.start()
    killer = Bookings(postgres, "unused")

    async def settle_on_a_killed_connection() -> None:
        async with bench.store.transaction() as transaction:
            pid = transaction.connection.info.backend_pid
            await killer.execute("SELECT pg_terminate_backend(%s, 5000)", pid)
            await transaction.apply(completed(run))

    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await settle_on_a_killed_connection()
    assert await bench.status(run.job.job_id) is JobStatus.RUNNING
    await bench.close()

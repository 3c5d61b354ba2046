"""The outbox: a job that was submitted in a transaction of another database is moved, once."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from gantline import Context, Gantline
from gantline.app.handle import Handle
from gantline.app.outbox import Outbox
from gantline.contract.errors import StoreMisconfigured, StoreUnavailable
from gantline.contract.query import JobFilter
from gantline.contract.results import InsertResult
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.status import JobStatus
from gantline.contract.submission import NewJob
from gantline.manager.manager import JobManager
from gantline.manager.reaper import Reaper
from gantline.manager.relay import OUTBOX, OutboxRelay
from gantline.manager.submitter import Submission
from gantline.testing.clock import FakeClock
from gantline.testing.factories import make_job
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

Connect = Callable[[], Any]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    postgres = PostgresServer()
    yield postgres
    postgres.stop()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.xdist_group("pg"))])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Connect]:
    """The URL of a database of the user's own, and how the user connects to it."""
    if request.param == "sqlite":
        file = tmp_path / "shop.db"
        return f"sqlite:///{file}", lambda: sqlite3.connect(file, check_same_thread=False)
    server: PostgresServer = request.getfixturevalue("server")
    schema = f"s{uuid4().hex}"
    return server.url(schema=schema), lambda: psycopg.connect(server.url())


class Shop:
    """An application whose store is not in the user's database."""

    def __init__(
        self,
        url: str,
        connect: Connect,
        clock: FakeClock | None = None,
        *,
        target: str = "memory://",
    ) -> None:
        self.jobs = Gantline(target, outbox=url)
        self.jobs.move_to(target, clock=clock)
        self.connect = connect
        self.ran = list[int]()

        @self.jobs.job("index", idempotency_key=lambda payload: payload["key"])
        async def index(payload: dict[str, Any]) -> int:
            self.ran.append(payload["n"])
            return int(payload["n"])

        self.index = index

    @property
    def outbox(self) -> Outbox:
        assert self.jobs.outbox is not None
        return self.jobs.outbox

    async def waiting(self, status: JobStatus | None = None) -> Sequence[JobSnapshot]:
        statuses = frozenset({status} if status else ())
        job_filter = JobFilter(tenant_id=None, job_types=frozenset({OUTBOX}), statuses=statuses)
        return (await self.outbox.store.find(job_filter, limit=500)).items

    async def moved(self) -> list[int]:
        page = await self.jobs.store.find(JobFilter(tenant_id=None), limit=500)
        return sorted(found.job.data()["n"] for found in page.items)

    async def put(self, *numbers: int, key: str = "", **options: Any) -> None:
        """Submit in one transaction of the user's own."""
        connection = self.connect()
        for number in numbers:
            payload = {"n": number, "key": key and f"{key}-{number}"}
            await self.index.submit(payload, connection=connection, **options)
        connection.commit()
        connection.close()


@asynccontextmanager
async def opened(shop: Shop) -> AsyncIterator[Shop]:
    async with shop.jobs:
        yield shop


@pytest.fixture
async def shop(place: tuple[str, Connect]) -> AsyncIterator[Shop]:
    async with opened(Shop(*place)) as shop:
        yield shop


async def test_what_is_committed_runs_and_leaves_nothing_behind(shop: Shop) -> None:
    connection = shop.connect()
    handle = await shop.index.submit({"n": 7, "key": ""}, connection=connection)
    connection.commit()
    connection.close()
    async with shop.jobs.running():
        assert await handle.result(timeout=30) == 7
    assert await shop.waiting() == ()


async def test_what_is_rolled_back_never_was(shop: Shop) -> None:
    connection = shop.connect()
    handle = await shop.index.submit({"n": 7, "key": ""}, connection=connection)
    connection.rollback()
    connection.close()
    assert await shop.outbox.relay().run_once() == 0
    with pytest.raises(TimeoutError, match="still in the outbox"):
        await handle.wait(0.01)


async def test_a_job_keeps_its_envelope_and_its_delay(shop: Shop) -> None:
    await shop.put(1, delay=timedelta(hours=3), priority=1, tenant="acme", owner="ann")
    assert await shop.outbox.relay().run_once() == 1
    (found,) = (await shop.jobs.store.find(JobFilter(tenant_id="acme"), limit=5)).items
    assert (found.job.priority, found.job.created_by, found.job.queue) == (1, "ann", "default")
    assert found.run_at is not None
    late = found.run_at - found.job.created_at - timedelta(hours=3)
    assert abs(late) < timedelta(minutes=1)


async def test_many_relays_at_once_move_each_job_once(shop: Shop) -> None:
    numbers = range(450)
    await shop.put(*numbers)
    relays = [shop.outbox.relay() for _ in range(4)]
    assert sum(await asyncio.gather(*(relay.run_once() for relay in relays))) <= 450
    while await relays[0].run_once():
        pass
    assert await shop.moved() == list(numbers)
    assert await shop.waiting() == ()


async def test_while_the_store_is_away_jobs_stay_and_no_attempt_is_spent(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shop.put(1, 2)

    async def away(jobs: Sequence[NewJob]) -> list[InsertResult]:
        raise StoreUnavailable("It is away.")

    with monkeypatch.context() as patch:
        patch.setattr(shop.jobs.store, "insert", away)
        for _ in range(10):
            with pytest.raises(StoreUnavailable):
                await shop.outbox.relay().run_once()
    assert [job.status for job in await shop.waiting()] == [JobStatus.QUEUED] * 2
    assert await shop.outbox.relay().run_once() == 2
    assert await shop.moved() == [1, 2]


class Died(BaseException):
    """The process is gone."""


@pytest.fixture(params=["memory", "redis"])
def target(request: pytest.FixtureRequest) -> str:
    """The URL of the store to which jobs are moved."""
    if request.param == "memory":
        return "memory://"
    redis: RedisServer = request.getfixturevalue("redis")
    return redis.url(prefix=f"w{uuid4().hex}")


@pytest.mark.parametrize("step", ["insert", "apply", "delete"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_relay_that_dies_at_any_step_loses_and_doubles_nothing(
    place: tuple[str, Connect],
    target: str,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    when: str,
) -> None:
    clock = FakeClock()
    async with opened(Shop(*place, clock, target=target)) as shop:
        await shop.put(*range(5), key="k")
        store = shop.jobs.store if step == "insert" else shop.outbox.store
        whole = getattr(store, step)

        async def dying(*arguments: Any) -> Any:
            if when == "after":
                await whole(*arguments)
            raise Died

        with monkeypatch.context() as patch:
            patch.setattr(store, step, dying)
            if step == "insert":  # what is dead gives nothing back
                patch.setattr(OutboxRelay, "_move", _moving_without_giving_back)
            with pytest.raises(Died):
                await shop.outbox.relay().run_once()
        clock.advance(timedelta(minutes=1))
        await shop.outbox.relay().sweep()
        while await shop.outbox.relay().run_once():
            pass
        assert await shop.moved() == list(range(5))
        assert await shop.waiting() == ()


async def _moving_without_giving_back(relay: OutboxRelay, runs: Any) -> None:
    await relay._insert([new for run in runs if isinstance(new := relay._prepared(run), NewJob)])


async def test_a_job_that_killed_relays_is_given_up_by_nobody(place: tuple[str, Connect]) -> None:
    """The outbox may be the store of other workers, whose reaper counts crashes."""
    clock = FakeClock()
    async with opened(Shop(*place, clock)) as shop:
        await shop.put(1)
        for _ in range(5):
            await _claim_and_die(shop)
            clock.advance(timedelta(minutes=5))
            await Reaper(shop.outbox.store).run_once()
            clock.advance(timedelta(minutes=20))
        assert len(await shop.waiting(JobStatus.POISONED)) == 1
        await shop.outbox.relay().sweep()
        assert await shop.outbox.relay().run_once() == 1
        assert await shop.moved() == [1]


async def _claim_and_die(shop: Shop) -> None:
    async def dying(jobs: Sequence[NewJob]) -> list[InsertResult]:
        raise Died

    relay = OutboxRelay(shop.outbox.store, dying, "dying", prepare=shop.outbox.relay()._prepare)
    relay._move = _nothing  # type: ignore[method-assign]  # it dies before it can do anything
    await relay.run_once()


async def _nothing(runs: Any) -> None: ...


async def test_a_key_with_another_payload_stays_in_the_outbox_as_failed(shop: Shop) -> None:
    await shop.index.submit({"n": 1, "key": "same"})
    connection = shop.connect()
    await shop.index.submit({"n": 2, "key": "same"}, connection=connection)
    connection.commit()
    connection.close()
    assert await shop.outbox.relay().run_once() == 1
    assert await shop.moved() == [1]
    (failed,) = await shop.waiting(JobStatus.FAILED)
    assert failed.last is not None
    assert failed.last.error is not None
    assert failed.last.error.code == "IDEMPOTENCY_CONFLICT"


async def test_a_repeat_by_its_key_is_the_job_that_is_there(shop: Shop) -> None:
    for _ in range(2):
        await shop.put(1, key="k")
    while await shop.outbox.relay().run_once():
        pass
    assert await shop.moved() == [1]
    assert await shop.waiting() == ()


async def test_a_repeat_by_its_external_id_is_the_job_that_is_there(shop: Shop) -> None:
    """Whether the first is still in the outbox or was moved; in its own tenant only."""
    given = uuid4()

    async def put(tenant: str, number: int) -> Handle[int]:
        connection = shop.connect()
        payload = {"n": number, "key": ""}
        handle = await shop.index.submit(
            payload, job_id=given, tenant=tenant, connection=connection
        )
        connection.commit()
        connection.close()
        return handle

    handles = [await put("default", 1), await put("default", 1), await put("other", 2)]
    while await shop.outbox.relay().run_once():
        pass
    handles.append(await put("default", 1))
    while await shop.outbox.relay().run_once():
        pass
    first, again, other, later = [(await handle.status()).job for handle in handles]
    assert first.job_id == again.job_id == later.job_id != other.job_id
    assert {first.external_id, other.external_id} == {given}
    assert await shop.moved() == [1, 2]
    assert await shop.waiting() == ()


async def test_an_external_id_with_another_payload_stays_in_the_outbox_as_failed(
    shop: Shop,
) -> None:
    given = uuid4()
    await shop.index.submit({"n": 1, "key": ""}, job_id=given)
    await shop.put(2, job_id=given)
    assert await shop.outbox.relay().run_once() == 1
    assert await shop.moved() == [1]
    (failed,) = await shop.waiting(JobStatus.FAILED)
    assert failed.last is not None
    assert failed.last.error is not None
    assert failed.last.error.code == "JOB_ID_CONFLICT"


async def test_other_jobs_in_the_same_database_are_left_alone(shop: Shop) -> None:
    theirs = make_job(job_type="theirs")
    await JobManager(shop.outbox.store).submit([Submission(theirs)])
    await shop.put(1)
    await shop.outbox.relay().sweep()
    assert await shop.outbox.relay().run_once() == 1
    (found,) = await shop.outbox.store.get([theirs.job_id], tenant_id=None)
    assert found is not None
    assert found.status is JobStatus.QUEUED


async def test_the_transaction_of_a_run_and_its_follow_ups_are_the_stores_not_the_outboxs(
    tmp_path: Path,
) -> None:
    jobs = Gantline(f"sqlite:///{tmp_path}/jobs.db", outbox=f"sqlite:///{tmp_path}/shop.db")

    @jobs.job
    async def notify(order: str) -> None: ...

    @jobs.job
    async def ship(order: str, ctx: Context) -> str:
        async with ctx.transaction("shipped") as connection:
            ctx.follow_up(notify, order)
            (_, _, file) = connection.execute("PRAGMA database_list").fetchone()
            files.append(Path(file).name)
        return "shipped"

    files: list[str] = []
    async with jobs, jobs.running():
        assert await (await ship.submit("o-1")).result(timeout=30) == "shipped"
        async with jobs.transaction() as connection:
            (_, _, file) = connection.execute("PRAGMA database_list").fetchone()
            (waiting,) = connection.execute("SELECT count(*) FROM gantline_job").fetchone()
        follow_ups = await jobs.store.find(JobFilter(job_types=frozenset({"notify"})), limit=2)
    assert (files, Path(file).name, waiting) == (["jobs.db"], "shop.db", 0)
    assert len(follow_ups.items) == 1


def test_an_outbox_without_transactions_is_refused() -> None:
    with pytest.raises(StoreMisconfigured, match="transactions of yours"):
        Gantline("memory://", outbox="memory://")

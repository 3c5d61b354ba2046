"""The metrics page: what was counted, what the store has, and labels that stay few."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from gantline import (
    Context,
    Fixed,
    Gantline,
    JobFailed,
    JobPoisoned,
    Permanent,
    Retention,
    Snooze,
    WorkerSettings,
)
from gantline.contract.errors import StoreUnavailable, SubmitConflict
from gantline.contract.outcome import ErrorInfo, Failure, Success
from gantline.manager.cursors import begin_cursor
from gantline.manager.manager import Ending, JobManager
from gantline.manager.observer import Observer
from gantline.manager.orphans import OrphanSweeper
from gantline.manager.reaper import Reaper
from gantline.manager.sequencer import number_events
from gantline.manager.submitter import Submission
from gantline.stores.memory import MemoryStore
from gantline.telemetry import metrics
from gantline.telemetry.metrics_page import MAX_AGE_SECONDS, Depths, KnownLabels
from gantline.testing.clock import FakeClock
from gantline.testing.factories import lane_requests, make_job, make_new, register_sessions
from gantline.testing.faults import Call, intercepted
from tests.harness import MemoryHarness, PostgresHarness, SqliteHarness
from tests.servers.postgres import PostgresServer
from tests.telemetry.asking import Samples, samples

HOUR = timedelta(hours=1)
NOW = timedelta(0)


def shop(store: Any) -> Gantline:
    jobs = Gantline(store)

    @jobs.job("well")
    async def well(value: int) -> int:
        return value

    @jobs.job("for-good")
    async def for_good(value: int) -> None:
        raise Permanent("BROKEN", "for good")

    @jobs.job("flaky", retry=Fixed(every=NOW, attempts=2))
    async def flaky(value: int) -> None:
        raise RuntimeError("again")

    @jobs.job("later", queue="slow")
    async def later(value: int, ctx: Context) -> None:
        if ctx.fence == 1:
            raise Snooze(NOW)
        ctx.follow_up(well, 1)

    @jobs.job("in-its-transaction")
    async def in_its_transaction(value: int, ctx: Context) -> None:
        async with ctx.transaction():
            pass

    return jobs


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """An empty place of every kind of store, whose clock stands still."""
    harness: Any
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        harness = PostgresHarness(server)
    else:
        harness = MemoryHarness() if request.param == "memory" else SqliteHarness()
    yield harness
    await harness.close()


async def test_depth_and_age_are_what_the_store_counts(place: Any) -> None:
    store = await place.open()
    jobs = shop(store)
    manager = JobManager(store)
    for job_type, queue, count in (
        ("well", "default", 3),
        ("well", "slow", 1),
        ("flaky", "default", 2),
        ("for-good", "default", 2),
    ):
        await store.insert([make_new(0, job_type=job_type, queue=queue) for _ in range(count)])
    await store.insert([make_new(0, job_type="well", delay=HOUR) for _ in range(4)])
    await register_sessions(store, "w")
    failing = await manager.claim("w", uuid4(), lane_requests("for-good"), lease=HOUR)
    failure = Failure(ErrorInfo("BROKEN", "for good"), retryable=False)
    await manager.settle([Ending(run, failure) for run in failing])
    await manager.claim("w", uuid4(), lane_requests("flaky", limit=1), lease=HOUR)
    place.clock.advance(timedelta(seconds=90))

    page = await samples(jobs.health_app())
    now = await store.ping()
    lanes = await store.counts(tenant_id=None)
    assert len(lanes) == 4
    for lane in lanes:
        labels = {"queue": lane.queue, "job_type": lane.job_type}
        assert page.get("gantline_queue_depth", **labels) == lane.queued
        assert page.get("gantline_queue_scheduled", **labels) == lane.scheduled
        assert page.get("gantline_queue_running", **labels) == lane.running
        assert page.get("gantline_dead_letters", **labels, status="Failed") == lane.failed
        assert page.get("gantline_dead_letters", **labels, status="Poisoned") == lane.poisoned
        oldest = lane.oldest_due_at
        age = (now - oldest).total_seconds() if oldest else 0
        assert page.get("gantline_queue_oldest_age_seconds", **labels) == age
    well = {"queue": "default", "job_type": "well"}
    assert page.get("gantline_queue_depth", **well) == 7
    assert page.get("gantline_queue_scheduled", **well) == 4
    assert page.get("gantline_queue_oldest_age_seconds", **well) == 90
    assert page.get("gantline_queue_running", queue="default", job_type="flaky") == 1
    failed = {"queue": "default", "job_type": "for-good", "status": "Failed"}
    assert page.get("gantline_dead_letters", **failed) == 2
    assert page.get("gantline_store_up") == 1


async def test_the_lag_of_a_consumer_is_what_it_has_still_to_read_and_since_when(
    place: Any,
) -> None:
    store = await place.open()
    jobs, manager = shop(store), JobManager(store)
    await begin_cursor(store, "webhooks", from_start=False)
    place.clock.advance(HOUR)
    page = await samples(jobs.health_app())
    assert page.get("gantline_consumer_lag_seconds", consumer="webhooks") == 0
    await store.insert([make_new(0, job_type="well") for _ in range(3)])
    await register_sessions(store, "w")
    runs = await manager.claim("w", uuid4(), lane_requests("well"), lease=HOUR)
    await manager.settle([Ending(run, Success()) for run in runs])
    await number_events(store)
    place.clock.advance(timedelta(seconds=90))
    page = await samples(jobs.health_app())
    assert page.get("gantline_consumer_lag_events", consumer="webhooks") == 3
    assert page.get("gantline_consumer_lag_seconds", consumer="webhooks") == 90


async def test_the_lag_of_retention_is_how_long_the_oldest_job_should_have_been_gone(
    place: Any,
) -> None:
    store = await place.open()
    jobs, manager = shop(store), JobManager(store)
    await store.insert([make_new(0, job_type="well")])
    await register_sessions(store, "w")
    runs = await manager.claim("w", uuid4(), lane_requests("well"), lease=HOUR)
    await manager.settle([Ending(run, Success()) for run in runs])
    lag = "gantline_retention_lag_seconds"
    place.clock.advance(store.capabilities.retention.completed or HOUR)
    assert (await samples(jobs.health_app())).get(lag) == 0
    place.clock.advance(timedelta(seconds=90))
    assert (await samples(jobs.health_app())).get(lag) == 90


async def test_types_and_queues_that_nobody_declared_are_other(place: Any) -> None:
    store = await place.open()
    await store.insert([make_new(0, job_type=f"type-{number}") for number in range(5)])
    await store.insert([make_new(0, job_type="well", queue=f"q{number}") for number in range(5)])
    place.clock.advance(timedelta(seconds=30))
    await store.insert([make_new(0, job_type="unheard-of", queue="of-a-tenant")])
    await store.insert([make_new(0, job_type="type-9")])
    page = await samples(shop(store).health_app())
    depth = "gantline_queue_depth"
    assert page.get(depth, queue="default", job_type="other") == 6
    assert page.get(depth, queue="other", job_type="well") == 5
    assert page.get(depth, queue="other", job_type="other") == 1
    assert len(page.labels(depth)) == 3
    age = "gantline_queue_oldest_age_seconds"
    assert page.get(age, queue="default", job_type="other") == 30, "the oldest of all of them"


@asynccontextmanager
async def working(jobs: Gantline) -> AsyncIterator[None]:
    settings = WorkerSettings(
        queues={"default": 5, "slow": 2}, poll=timedelta(milliseconds=50), drain=NOW
    )
    async with jobs, jobs.running(settings):
        yield


async def test_what_becomes_of_jobs_is_counted(tmp_path: Any) -> None:
    jobs = shop(f"sqlite:///{tmp_path}/gantline.db")
    types = {one.name: one for one in jobs.job_types}
    app = jobs.health_app()
    async with working(jobs):
        handles = await types["well"].submit_many([1, 2, 3])
        handles.append(await types["well"].submit(1, idempotency_key="k"))
        assert (await types["well"].submit(1, idempotency_key="k")).duplicate
        handles.append(await types["later"].submit(1))
        handles.append(await types["in-its-transaction"].submit(1))
        for handle in handles:
            await handle.result(timeout=30)
        with pytest.raises(JobFailed):
            await (await types["for-good"].submit(1)).result(timeout=30)
        with pytest.raises(JobPoisoned):
            await (await types["flaky"].submit(1)).result(timeout=30)
        cancelled = await types["well"].submit(1, delay=HOUR)
        await cancelled.cancel()
        page = await _once_all_is_counted(app, completed=5)
        slots = {
            (labels["queue"], labels["state"]): page.get("gantline_worker_slots", **labels)
            for labels in page.labels("gantline_worker_slots")
        }

    def count(name: str, **labels: str) -> float | None:
        return page.get(f"gantline_{name}", **labels)

    assert count("jobs_submitted_total", job_type="well") == 6, "a follow-up, and no duplicate"
    assert count("jobs_submitted_total", job_type="later") == 1
    finished = "jobs_finished_total"
    assert count(finished, job_type="well", status="Completed") == 5
    assert count(finished, job_type="well", status="Cancelled") == 1
    assert count(finished, job_type="later", status="Completed") == 1
    assert count(finished, job_type="in-its-transaction", status="Completed") == 1
    assert count(finished, job_type="for-good", status="Failed") == 1
    assert count(finished, job_type="flaky", status="Poisoned") == 1
    assert count("retries_total", job_type="flaky") == 1
    assert count("retries_total", job_type="later") == 0, "a snooze is no retry"
    assert count("job_run_seconds_count", job_type="well") == 5
    assert count("job_run_seconds_count", job_type="flaky") == 2
    assert count("job_wait_seconds_count", job_type="later") == 2
    assert count("job_run_seconds_bucket", job_type="in-its-transaction", le="+Inf") == 1
    assert slots == {
        ("default", "busy"): 0,
        ("default", "free"): 5,
        ("slow", "busy"): 0,
        ("slow", "free"): 2,
    }


async def _once_all_is_counted(app: Any, *, completed: float) -> Samples:
    """The follow-up runs behind the test's back, and slots are given back after the answer."""
    async with asyncio.timeout(30):
        while True:
            page = await samples(app)
            done = page.get("gantline_jobs_finished_total", job_type="well", status="Completed")
            busy = page.get("gantline_worker_slots", queue="default", state="busy")
            if (done, busy) == (completed, 0):
                return page
            await asyncio.sleep(0.01)


async def test_times_fall_into_their_buckets() -> None:
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    jobs = shop(store)
    app = jobs.health_app()
    await register_sessions(store, "w")
    for waited in (0.0, 0.005, 0.006, 59.0, 4000.0):
        await store.insert([make_new(0, job_type="well")])
        clock.advance(timedelta(seconds=waited))
        await jobs.manager.claim("w", uuid4(), lane_requests("well"), lease=HOUR)
    page = await samples(app)
    name, kind = "gantline_job_wait_seconds", {"job_type": "well"}
    assert page.get(f"{name}_bucket", **kind, le="0.005") == 2, "a bound belongs to its bucket"
    assert page.get(f"{name}_bucket", **kind, le="0.01") == 3
    assert page.get(f"{name}_bucket", **kind, le="60.0") == 4
    assert page.get(f"{name}_bucket", **kind, le="3600.0") == 4
    assert page.get(f"{name}_bucket", **kind, le="+Inf") == 5
    assert page.get(f"{name}_count", **kind) == 5
    assert page.get(f"{name}_sum", **kind) == pytest.approx(4059.011)
    assert page.get(f"{name}_count", job_type="flaky") is None, "nothing was timed"


async def test_a_lost_lease_is_counted_by_who_finds_it() -> None:
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    jobs = shop(store)
    app, observer = jobs.health_app(), jobs.watching.observer
    await store.insert([make_new(0, job_type="well"), make_new(0, job_type="unheard-of")])
    await register_sessions(store, "w")
    await jobs.manager.claim("w", uuid4(), lane_requests("well", "unheard-of"), lease=HOUR)
    clock.advance(2 * HOUR)
    await Reaper(store, observer=observer).run_once()
    page = await samples(app)
    assert page.get("gantline_leases_lost_total", job_type="well") == 1
    assert page.get("gantline_leases_lost_total", job_type="other") == 1
    assert page.get("gantline_retries_total", job_type="well") == 0


async def test_a_run_that_was_over_is_not_counted() -> None:
    """What the store refused did not happen; whoever has the job now will tell."""
    store = MemoryStore(clock=FakeClock())
    jobs = shop(store)
    app = jobs.health_app()
    await store.insert([make_new(0, job_type="well")])
    await register_sessions(store, "w")
    (run,) = await jobs.manager.claim("w", uuid4(), lane_requests("well"), lease=HOUR)
    failure = Failure(ErrorInfo("BROKEN", "for good"), retryable=False)
    stale = msgspec.structs.replace(run, token=uuid4())
    for ending in (Ending(stale, failure, 1.0), Ending(run, failure, 1.0)):
        await jobs.manager.settle([ending])
    page = await samples(app)
    labels = {"job_type": "well", "status": "Failed"}
    assert page.get("gantline_jobs_finished_total", **labels) == 1
    assert page.get("gantline_job_run_seconds_count", job_type="well") == 1


async def test_what_nobody_handles_is_counted_when_it_is_given_up() -> None:
    store = MemoryStore(clock=FakeClock())
    jobs = shop(store)
    app = jobs.health_app()
    await store.insert([make_new(0, job_type="well")])
    sweeper = OrphanSweeper(store, grace=NOW, observer=jobs.watching.observer)
    await sweeper.run_once()
    await sweeper.run_once()
    page = await samples(app)
    status = {"job_type": "well", "status": "Poisoned"}
    assert page.get("gantline_jobs_finished_total", **status) == 1


async def test_a_type_that_is_declared_late_is_counted_by_its_name() -> None:
    jobs = Gantline("memory://")
    app = jobs.health_app()

    @jobs.job("late", aliases=("old-name",))
    async def late(value: int) -> None: ...

    async with jobs:
        await late.submit(1)
    page = await samples(app)
    assert page.get("gantline_jobs_submitted_total", job_type="late") == 1
    assert page.get("gantline_jobs_submitted_total", job_type="old-name") == 0


async def test_jobs_that_came_in_through_the_manager_are_counted_too() -> None:
    jobs = shop(MemoryStore(clock=FakeClock()))
    app = jobs.health_app()
    await jobs.manager.submit([Submission(make_job(0, job_type="well"))])
    page = await samples(app)
    assert page.get("gantline_jobs_submitted_total", job_type="well") == 1


async def test_a_submit_that_finds_its_job_there_is_counted_as_a_duplicate(tmp_path: Path) -> None:
    """By each way in: alone, many at once, in a transaction, and by the manager, as HTTP does."""
    jobs = shop(f"sqlite:///{tmp_path}/gantline.db")
    app = jobs.health_app()
    well = jobs.find_type("well")
    assert well is not None
    async with jobs:
        for _ in range(2):
            await well.submit(1, idempotency_key="alone")
            await well.submit_many([1, 1], idempotency_key="many")
            with closing(sqlite3.connect(tmp_path / "gantline.db")) as connection:
                await well.submit(1, idempotency_key="mine", connection=connection)
                connection.commit()
        await jobs.manager.submit(
            [Submission(make_job(1, job_type="well", idempotency_key="alone"))]
        )
        with pytest.raises(SubmitConflict):
            await well.submit(2, idempotency_key="alone")
    page = await samples(app)
    assert page.get("gantline_jobs_submitted_total", job_type="well") == 3
    assert page.get("gantline_jobs_duplicates_total", job_type="well") == 6
    assert page.get("gantline_jobs_duplicates_total", job_type="flaky") == 0


async def test_an_observer_that_fails_harms_no_job() -> None:
    class Broken(Observer):
        def __getattribute__(self, name: str) -> Any:
            def fail(*args: object) -> None:
                raise RuntimeError("no")

            return fail

    store = MemoryStore(clock=FakeClock())
    await register_sessions(store, "w")
    manager = JobManager(store, observer=Broken())
    job = make_job(0)
    await manager.submit([Submission(job)])
    (run,) = await manager.claim("w", uuid4(), lane_requests(), lease=HOUR)
    failure = Failure(ErrorInfo("BROKEN", "for good"), retryable=False)
    (settled,) = await manager.settle([Ending(run, failure)])
    assert settled.accepted


class Counted:
    """A store that counts how often it is counted, and can go away."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_away = False
        self.store = intercepted(MemoryStore(clock=FakeClock()), self._around)

    async def _around(self, verb: str, call: Call) -> Any:
        if self.is_away:
            raise StoreUnavailable("The store at db.internal is away.")
        self.asked += verb == "counts"
        await asyncio.sleep(0)  # or they would not meet
        return await call()


async def test_however_often_the_page_is_asked_for_the_store_is_counted_once() -> None:
    counted = Counted()
    app = shop(counted.store).health_app()
    await asyncio.gather(*(samples(app) for _ in range(100)))
    assert counted.asked == 1


async def test_the_store_is_counted_anew_after_a_while() -> None:
    counted, now = Counted(), 1000.0
    depths = Depths(
        lambda: counted.store, lambda: KnownLabels((), ()), Retention, clock=lambda: now
    )
    await depths.read()
    now += MAX_AGE_SECONDS - 0.1
    await depths.read()
    assert counted.asked == 1
    now += 0.1
    await depths.read()
    assert counted.asked == 2


async def test_without_the_store_the_page_has_the_rest() -> None:
    counted = Counted()
    app = shop(counted.store).health_app()
    counted.is_away = True
    page = await samples(app)
    assert page.get("gantline_store_up") == 0
    assert page.labels("gantline_queue_depth") == [], "rather nothing than something old"
    assert page.get("gantline_jobs_submitted_total", job_type="well") == 0


async def test_all_that_the_page_names_is_declared() -> None:
    jobs = shop(MemoryStore(clock=FakeClock()))
    app = jobs.health_app()
    page = await samples(app)
    declared = {metric.name.removesuffix("_total"): metric for metric in metrics.METRICS}
    for name, family in page.families.items():
        if name.startswith("gantline_"):
            metric = declared[name]
            assert (family.type, family.documentation) == (metric.kind, metric.help)
            for sample in family.samples:
                assert sample.labels.keys() - {"le"} == set(metric.labels)


async def test_what_handlers_count_themselves_is_on_the_page() -> None:
    """And what Python and the process tell: all of the library's default registry."""
    page = await samples(shop(MemoryStore(clock=FakeClock())).health_app())
    assert "process_resident_memory_bytes" in page.families
    assert "python_info" in page.families


def test_names_follow_the_conventions() -> None:
    for metric in metrics.METRICS:
        assert metric.name.startswith("gantline_")
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert metric.kind != "histogram" or metric.name.endswith("_seconds")
        assert "tenant" not in metric.labels

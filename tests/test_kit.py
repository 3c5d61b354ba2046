"""The kit for users' own tests."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from gantline import Context, Gantline, JobEvent, Permanent
from gantline.testing.faults import Crash
from gantline.testing.kit import Drained, JobsTest

pytest_plugins = ["gantline.testing.plugin"]

jobs = Gantline("sqlite:///never-made.db")


class Order(msgspec.Struct):
    order_id: str


@jobs.job("ship")
async def ship(order: Order, ctx: Context) -> str:
    ctx.follow_up(thank, order.order_id)
    return order.order_id


@jobs.job("thank")
def thank(order_id: str) -> None:
    """In a thread."""


@jobs.job("flaky")
async def flaky(succeeds_at: int, ctx: Context) -> None:
    if ctx.attempt < succeeds_at:
        raise ConnectionError


@jobs.job("wrong")
async def wrong(value: None) -> None:
    raise Permanent("WRONG", "wrong")


async def test_what_was_submitted_can_be_seen() -> None:
    async with JobsTest(jobs) as kit:
        await ship.submit(Order("o-1"), priority=1)
        order = (await kit.submitted(ship)).one()
        assert (order.payload, order.status.priority) == (Order("o-1"), 1)
        assert len(await kit.submitted(thank)) == 0
        with pytest.raises(AssertionError, match="0 jobs of type 'thank'"):
            (await kit.submitted(thank)).one()


async def test_a_drain_runs_what_is_due_and_what_follows() -> None:
    async with JobsTest(jobs) as kit:
        await ship.submit(Order("o-1"))
        await wrong.submit(None)
        drained = await kit.drain()
        assert (drained.completed, drained.failed) == (2, 1)
        assert (await kit.submitted(thank)).payloads == ["o-1"]


class Shop:
    """An application with functions that hear of events, and what they have heard."""

    def __init__(self) -> None:
        self.jobs = Gantline("sqlite:///never-made.db")
        self.heard: list[tuple[str, str]] = []
        self.refuses = 0
        jobs = self.jobs

        @jobs.job("pack")
        async def pack(order_id: str) -> None:
            if order_id == "bad":
                raise Permanent("BAD", "bad")

        @jobs.job("invoice")
        async def invoice(order_id: str) -> None: ...

        @jobs.on("job.completed", job_type=pack, name="bill")
        async def bill(event: JobEvent) -> None:
            if self.refuses:
                self.refuses -= 1
                raise ConnectionError("the bank is away")
            self.heard.append(("bill", event.job.data()))
            await invoice.submit(event.job.data())

        @jobs.on("job.failed", name="page")
        def page(event: JobEvent) -> None:
            self.heard.append(("page", event.job.data()))
            raise Permanent("NOBODY", "nobody is awake")

        @jobs.on("job.completed", job_type="invoice", name="archive")
        async def archive(event: JobEvent) -> None:
            self.heard.append(("archive", event.job.data()))

        self.pack = pack
        self.invoice = invoice


async def test_a_drain_tells_consumers_and_runs_what_they_submit() -> None:
    shop = Shop()
    async with JobsTest(shop.jobs) as kit:
        await shop.pack.submit("o-1")
        await shop.pack.submit("bad")
        drained = await kit.drain()
        assert (drained.completed, drained.failed) == (2, 1)
        assert sorted(shop.heard) == [("archive", "o-1"), ("bill", "o-1"), ("page", "bad")]
        await kit.drain()
        assert len(shop.heard) == 3
        kit.clock.advance(timedelta(days=1))
        await shop.pack.submit("o-2")
        await kit.drain()
        assert shop.heard[3:] == [("bill", "o-2"), ("archive", "o-2")]


async def test_what_a_consumer_raises_fails_the_test_and_the_next_drain_tells_it_again() -> None:
    shop = Shop()
    shop.refuses = 2
    async with JobsTest(shop.jobs) as kit:
        await shop.pack.submit("o-1")
        for _ in range(2):
            with pytest.raises(ConnectionError, match="bank"):
                await kit.drain()
            assert shop.heard == []
        await kit.drain()
        assert shop.heard == [("bill", "o-1"), ("archive", "o-1")]


async def test_inline_tells_consumers_too() -> None:
    shop = Shop()
    async with JobsTest(shop.jobs, inline=True) as kit:
        await shop.pack.submit("o-1")
        assert shop.heard == [("bill", "o-1"), ("archive", "o-1")]
        assert (await kit.submitted(shop.invoice)).payloads == ["o-1"]


async def test_every_test_begins_with_an_empty_log() -> None:
    shop = Shop()
    for order in ("o-1", "o-2"):
        async with JobsTest(shop.jobs) as kit:
            await shop.pack.submit(order)
            await kit.drain()
    assert [what for who, what in shop.heard if who == "bill"] == ["o-1", "o-2"]


async def test_nothing_is_published_to_a_broker() -> None:
    outward = Gantline("memory://", bridge="amqp://127.0.0.1:1/?outcomes=jobs")

    @outward.job("pack")
    async def pack(order_id: str) -> None: ...

    names = [one.name for one in outward.consumers]
    assert names == ["bridge:jobs", "bridge-send:gantline.jobs"]
    async with JobsTest(outward) as kit:
        await pack.submit("o-1")
        assert (await kit.drain()).completed == 1
        assert outward.bridge is not None
        await outward.bridge.send({"jobType": "elsewhere"})
        await kit.drain()  # it would raise what the broker says


async def test_consumers_that_make_work_for_ever_are_told_of() -> None:
    jobs = Gantline("memory://")

    @jobs.job("tick")
    async def tick(value: None) -> None: ...

    @jobs.on("job.completed", name="again")
    async def again(event: JobEvent) -> None:
        await tick.submit(None)

    async with JobsTest(jobs) as kit:
        await tick.submit(None)
        kit.most_runs = 20
        with pytest.raises(AssertionError, match="after 20 runs"):
            await kit.drain()


async def test_time_is_the_test_s() -> None:
    async with JobsTest(jobs) as kit:
        await flaky.submit(2)
        assert (await kit.drain()).retried == 1
        assert (await kit.drain()).completed == 0
        kit.clock.advance(3)
        assert (await kit.drain()).completed == 1
        await ship.submit(Order("later"), delay=timedelta(hours=1))
        assert (await kit.drain()).completed == 0
        kit.clock.advance(timedelta(hours=1))
        assert (await kit.drain()).completed == 2


async def test_what_is_rolled_back_was_never_submitted() -> None:
    async with JobsTest(jobs) as kit:
        connection = sqlite3.connect(kit.path)
        connection.execute("CREATE TABLE orders (id)")
        await ship.submit(Order("lost"), connection=connection)
        connection.rollback()
        await ship.submit(Order("kept"), connection=connection)
        connection.commit()
        connection.close()
        assert (await kit.submitted(ship)).payloads == [Order("kept")]


async def test_inline_runs_a_job_when_it_is_submitted() -> None:
    async with JobsTest(jobs, inline=True):
        handle = await ship.submit(Order("o-1"))
        assert await handle.result(timeout=30) == "o-1"


async def test_a_crash_can_be_put_after_any_store_call() -> None:
    async with JobsTest(jobs) as kit:
        handle = await ship.submit(Order("o-1"))
        kit.crash_after("claim")
        with pytest.raises(Crash):
            await kit.drain()
        await kit.expire_leases()
        assert (await kit.drain()).completed == 2
        assert (await handle.status()).crashes == 1


async def test_the_application_is_given_back_as_it_was() -> None:
    before = (jobs.store_source, jobs.clock)
    async with JobsTest(jobs):
        assert jobs.store_source != before[0]
    assert (jobs.store_source, jobs.clock) == before


async def test_an_application_that_is_opened_and_closed_in_a_test_keeps_its_store() -> None:
    """As by the lifespan of a web application, which a test client enters and leaves."""
    async with JobsTest(jobs) as kit:
        async with jobs:
            await ship.submit(Order("o1"))
        assert (await kit.drain()).completed == 2


async def test_the_fixture_opens_and_closes_a_kit(
    jobs_test: Callable[[Gantline], Awaitable[JobsTest]],
) -> None:
    kit = await jobs_test(jobs)
    await asyncio.gather(*(ship.submit(Order(str(n))) for n in range(3)))
    assert (await kit.drain()).completed == 6


# -- schedules ----------------------------------------------------------------------------------


def scheduled_app() -> tuple[Gantline, list[tuple[str, datetime]]]:
    """An application with schedules, and what its handlers have done, when."""
    app = Gantline("sqlite:///never-made.db")
    done: list[tuple[str, datetime]] = []

    @app.job("report")
    async def report(kind: str, ctx: Context) -> None:
        assert ctx.job.scheduled_at is not None
        done.append((kind, ctx.job.scheduled_at))
        if kind == "flaky" and ctx.attempt == 1:
            raise ConnectionError

    report.cron("30 2 * * *", timezone="Europe/Berlin", payload="daily", name="daily")
    return app, done


SPRING = datetime(2026, 3, 28, 12, tzinfo=UTC)


async def test_what_is_due_by_a_schedule_is_fired_when_the_test_says() -> None:
    app, done = scheduled_app()
    async with JobsTest(app, now=SPRING) as kit:
        assert await kit.fire() == 0
        kit.clock.advance(timedelta(days=3))  # nobody fired meanwhile: a downtime
        assert await kit.fire() == 1  # misfire="coalesce"
        assert await kit.fire() == 0
        assert (await kit.drain()).completed == 1
    assert done == [("daily", datetime(2026, 3, 31, 0, 30, tzinfo=UTC))]


async def test_time_passes_as_with_a_worker_that_lives() -> None:
    app, done = scheduled_app()
    async with JobsTest(app, now=SPRING) as kit:
        assert (await kit.run_for(timedelta(days=3))).completed == 3
        assert kit.clock.now() == SPRING + timedelta(days=3)
    days = [at for _, at in done]
    assert [at.isoformat() for at in days] == [
        "2026-03-29T01:00:00+00:00",  # 02:30 is skipped that night, so at the end of the gap
        "2026-03-30T00:30:00+00:00",
        "2026-03-31T00:30:00+00:00",
    ]


async def test_what_is_due_at_the_end_of_the_time_is_run_too() -> None:
    app, _ = scheduled_app()
    async with JobsTest(app, now=SPRING) as kit:
        until = datetime(2026, 3, 29, 1, tzinfo=UTC) - SPRING
        assert (await kit.run_for(until - timedelta(microseconds=1))).completed == 0
        assert (await kit.run_for(timedelta(microseconds=1))).completed == 1


async def test_delays_and_retries_are_run_in_time_that_passes() -> None:
    app, done = scheduled_app()
    report = app.find_type("report")
    assert report is not None
    async with JobsTest(app, now=SPRING) as kit:
        await report.submit("flaky", delay=timedelta(hours=2))
        ran = await kit.run_for(timedelta(hours=3))
        assert (ran.retried, ran.completed) == (1, 1)
    assert [kind for kind, _ in done] == ["flaky", "flaky"]


async def test_a_schedule_that_is_switched_off_submits_nothing() -> None:
    app, done = scheduled_app()
    async with JobsTest(app, now=SPRING) as kit:
        await app.schedules.pause("default", "daily")
        assert await kit.run_for(timedelta(days=2)) == Drained()
        await app.switches.disable_type("report")
        await app.schedules.pause("default", "daily", paused=False)
        assert await kit.run_for(timedelta(days=1)) == Drained()
    assert done == []


async def test_inline_a_run_is_made_as_it_is_fired() -> None:
    app, done = scheduled_app()
    async with JobsTest(app, inline=True, now=SPRING) as kit:
        kit.clock.advance(timedelta(days=1))
        assert await kit.fire() == 1
    assert [kind for kind, _ in done] == ["daily"]


async def test_a_time_that_would_never_end_is_told() -> None:
    app = Gantline("sqlite:///never-made.db")

    @app.every(timedelta(seconds=1))
    @app.job("tick")
    async def tick() -> None: ...

    async with JobsTest(app) as kit:
        kit.most_runs = 5
        with pytest.raises(AssertionError, match="after 5 runs"):
            await kit.run_for(timedelta(days=365))

"""Schedules in workers: declared in code, fired by one of the fleet, changed while it works."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from gantline import Context, Gantline, InvalidInput, JobDefaults, JobGroup, WorkerSettings
from gantline.contract.clock import EPOCH
from gantline.contract.query import JobFilter
from gantline.schedules.recurrence import Cron, Every
from gantline.schedules.schedule import Schedule
from gantline.testing.faults import Call, intercepted
from tests.ear import PATIENCE_SECONDS
from tests.servers.postgres import PostgresServer

QUICK = WorkerSettings(queues={"default": 10}, drain=timedelta(0), maintain_every=None)
SECOND = timedelta(seconds=1)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "memory":
            return "memory://"
        case "sqlite":
            return f"sqlite:///{tmp_path}/gantline.db"
        case _:
            server: PostgresServer = request.getfixturevalue("postgres")
            return server.url(schema=f"w{uuid4().hex}")


class Ticks:
    """The instants that a handler was run for, which can be waited for."""

    def __init__(self) -> None:
        self.seen: list[datetime | None] = []
        self._changed = asyncio.Condition()

    async def add(self, instant: datetime | None) -> None:
        async with self._changed:
            self.seen.append(instant)
            self._changed.notify_all()

    async def has(self, number: int) -> list[datetime | None]:
        async with asyncio.timeout(PATIENCE_SECONDS), self._changed:
            await self._changed.wait_for(lambda: len(self.seen) >= number)
        return self.seen


def shop(url: Any, **schedule: Any) -> tuple[Gantline, Any, Ticks]:
    jobs, ticks = Gantline(url), Ticks()

    @jobs.job("tick")
    async def tick(payload: str | None, ctx: Context) -> None:
        await ticks.add(ctx.job.scheduled_at)

    if schedule:
        tick.every(**schedule)
    return jobs, tick, ticks


async def eventually(ask: Callable[[], Awaitable[Any]], answer: object) -> None:
    """Ask until the answer comes, which nothing tells of."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await ask() != answer:  # noqa: ASYNC110  # there is no signal
            await asyncio.sleep(0.01)


async def test_what_code_declares_is_fired_by_its_workers(url: str) -> None:
    jobs, _, ticks = shop(url, interval=SECOND, payload="hello", name="ticking")
    async with jobs, jobs.running(QUICK):
        seen = await ticks.has(2)
        stored = await jobs.schedules.get("default", "ticking")
    assert seen[0] is not None
    assert seen[1] is not None
    assert seen[1] - seen[0] >= SECOND
    assert seen[0].microsecond == 0
    assert stored.record.origin == "code"
    assert stored.record.fires


async def test_of_several_workers_one_fires(url: str) -> None:
    jobs, _, ticks = shop(url, interval=SECOND)
    async with jobs, jobs.running(QUICK), jobs.running(QUICK), jobs.running(QUICK):
        await ticks.has(2)
    assert len(ticks.seen) == len(set(ticks.seen))


async def test_a_schedule_that_is_made_meanwhile_is_fired_when_it_is_due(url: str) -> None:
    """Though the workers had nothing to look for, and would look again in 15 seconds only."""
    jobs, _, ticks = shop(url)
    async with jobs, jobs.running(QUICK):
        await asyncio.sleep(0.1)
        schedule = Schedule(name="new", recurrence=Every(1), job_type="tick")
        await jobs.schedules.create(schedule, origin="api")
        async with asyncio.timeout(5):
            await ticks.has(1)


async def test_a_type_that_is_switched_off_is_not_submitted_and_the_history_says_why(
    url: str,
) -> None:
    jobs, _, _ = shop(url, interval=SECOND)
    async with jobs:
        await jobs.switches.disable_type("tick")
        async with jobs.running(QUICK):

            async def last_reason() -> str:
                page = await jobs.schedules.page("default", after="", limit=1)
                fires = page[0].record.fires if page else ()
                return fires[0].reason if fires else ""

            await eventually(last_reason, "The job type 'tick' is switched off.")
            page = await jobs.store.find(JobFilter(tenant_id=None), limit=10)
            assert not page.items


async def test_a_store_that_is_away_is_looked_at_again(url: str) -> None:
    jobs, _, ticks = shop(url, interval=SECOND)
    is_away = False
    real = jobs.store

    async def failing(verb: str, call: Call) -> Any:
        if is_away and verb in ("ping", "insert"):
            raise ConnectionError("away")
        return await call()

    jobs.move_to(intercepted(real, failing))
    async with jobs, jobs.running(QUICK):
        await ticks.has(1)
        is_away = True
        await asyncio.sleep(1.5)
        is_away = False
        count = len(ticks.seen)
        await ticks.has(count + 1)
    assert len(ticks.seen) == len(set(ticks.seen))


async def test_code_that_has_dropped_a_schedule_removes_it_when_its_last_worker_goes(
    url: str,
) -> None:
    old, _, _ = shop(url, interval=timedelta(hours=1), name="dropped")
    shared = old.store if url == "memory://" else url  # which lives in one process
    new, _, _ = shop(shared, interval=timedelta(hours=1), name="kept")

    async def names() -> list[str]:
        page = await new.schedules.page("default", after="", limit=10)
        return [one.record.schedule.name for one in page]

    async with old, new:
        async with old.running(QUICK), new.running(QUICK):
            await eventually(names, ["dropped", "kept"])
        async with new.running(QUICK):
            await eventually(names, ["kept"])


async def test_lateness_is_measured(url: str) -> None:
    jobs, _, ticks = shop(url, interval=SECOND)
    figures = jobs.watching.figures
    async with jobs, jobs.running(QUICK):
        await ticks.has(2)
    late = figures.by_type["tick"].lateness
    assert sum(late.counts) >= 2
    assert 0 <= late.seconds / sum(late.counts) < 1


# -- declaring ----------------------------------------------------------------------------------


def test_a_schedule_is_put_on_a_job_by_a_decorator_or_a_call() -> None:
    jobs, group = Gantline("memory://", defaults=JobDefaults(tenant="acme")), JobGroup(queue="g")

    @jobs.cron("0 6 * * *", timezone="Europe/Berlin", payload="a", name="one")
    @jobs.every(timedelta(minutes=5), payload="b", name="two", overlap="skip")
    @jobs.job("report", subject=lambda kind: f"about {kind}")
    async def report(kind: str) -> None: ...

    @group.every(timedelta(hours=1), tenant="other")
    @group.job("sweep", priority=3)
    async def sweep() -> None: ...

    report.cron("@daily", payload="c", name="three")
    jobs.include(group)
    declared = {one.name: one for one in jobs.declared_schedules}
    assert set(declared) == {"one", "two", "three", "sweep"}
    assert declared["one"].recurrence == Cron("0 6 * * *", "Europe/Berlin")
    assert declared["one"].tenant_id == "acme"
    assert (declared["two"].subject_id, bytes(declared["two"].payload)) == ("about b", b'"b"')
    swept = declared["sweep"]
    assert (swept.tenant_id, swept.queue, swept.priority) == ("other", "g", 3)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"expression": "0 0 30 2 *", "payload": 1}, "cannot be read"),
        ({"expression": "* " * 1000, "payload": 1}, "the limit is 256"),
        ({"expression": "* * * * *", "timezone": "Nowhere", "payload": 1}, "no time zone"),
        ({"expression": "* * * * *", "payload": "text"}, "Expected `int`"),
        ({"expression": "* * * * *"}, "Expected `int`"),
        ({"expression": "* * * * *", "payload": 1, "name": "a b"}, "name of a schedule"),
        ({"expression": "* * * * *", "payload": 1, "priority": 7}, "#/priority"),
        ({"expression": "* * * * *", "payload": 1, "jitter": -SECOND}, "jitter is -1 s"),
        ({"expression": "* * * * *", "payload": 1, "catch_up_limit": 0}, "#/catchUpLimit"),
        ({"expression": "* * * * *", "payload": 1, "queue": ""}, "#/queue"),
        ({"expression": "* * * * *", "payload": 1, "name": ".."}, "name of a schedule"),
        (
            {"expression": "* * * * *", "payload": 1, "misfire": "catchup"},
            "misfire is 'catchup'.*'catch_up'",
        ),
        (
            {"expression": "* * * * *", "payload": 1, "overlap": "never"},
            "overlap is 'never'.*'skip'",
        ),
        (
            {"expression": "* * * * *", "payload": 1, "jitter": "20 s"},
            "jitter is '20 s'.*timedelta",
        ),
        ({"expression": "* * * * *", "payload": 1, "start": "soon"}, "start is 'soon'.*datetime"),
        ({"expression": "* * * * *", "payload": 1, "jiter": SECOND}, "no option 'jiter'.*'jitter'"),
        ({"expression": 5, "payload": 1}, "expression is 5.*text"),
        ({"expression": "* * * * *", "timezone": None, "payload": 1}, "timezone is None.*text"),
        (
            {"expression": "* * * * *", "payload": 1, "start": datetime(2026, 1, 1)},  # noqa: DTZ001
            "#/start",
        ),
        (
            {
                "expression": "* * * * *",
                "payload": 1,
                "start": datetime(2026, 1, 2, tzinfo=UTC),
                "end": datetime(2026, 1, 1, tzinfo=UTC),
            },
            "#/end",
        ),
    ],
)
def test_what_is_wrong_is_refused_at_its_declaration(options: dict[str, Any], why: str) -> None:
    jobs = Gantline("memory://")

    @jobs.job("count")
    async def count(number: int) -> None: ...

    with pytest.raises(InvalidInput, match=why):
        count.cron(**options)
    assert not jobs.declared_schedules


@pytest.mark.parametrize(
    ("interval", "anchor", "why"),
    [
        ("5 s", EPOCH, "interval is '5 s'.*timedelta"),
        (timedelta(0), EPOCH, "not possible"),
        (SECOND, date(2026, 1, 1), "anchor is .*datetime"),
        (SECOND, datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))), "UTC cannot hold"),
    ],
)
def test_what_is_no_interval_is_refused_at_its_declaration(
    interval: Any, anchor: Any, why: str
) -> None:
    jobs = Gantline("memory://")

    @jobs.job("count")
    async def count() -> None: ...

    with pytest.raises(InvalidInput, match=why):
        count.every(interval, anchor=anchor)


def test_two_schedules_of_one_name_are_refused() -> None:
    jobs = Gantline("memory://")

    @jobs.every(SECOND, name="same")
    @jobs.job("one")
    async def one() -> None: ...

    with pytest.raises(InvalidInput, match="two schedules named"):
        one.every(SECOND, name="same")

    @jobs.every(SECOND, name="same")
    @jobs.job("other")
    async def other() -> None: ...

    with pytest.raises(InvalidInput, match="Two schedules are named"):
        _ = jobs.declared_schedules


def test_a_payload_that_the_application_refuses_is_refused_in_a_schedule_too() -> None:
    jobs = Gantline(
        "memory://", defaults=JobDefaults(payload_check=lambda job_type, data: "it is personal")
    )

    @jobs.every(SECOND, payload="somebody")
    @jobs.job("greet")
    async def greet(name: str) -> None: ...

    with pytest.raises(InvalidInput, match="was refused: it is personal"):
        _ = jobs.declared_schedules


def test_a_decorator_below_the_job_says_where_it_belongs() -> None:
    jobs = Gantline("memory://")

    async def plain() -> None: ...

    with pytest.raises(InvalidInput, match=r"above @jobs\.job"):
        jobs.cron("* * * * *")(plain)  # type: ignore[type-var]  # on purpose


async def test_an_end_in_the_past_does_not_keep_a_worker_from_starting() -> None:
    jobs, tick, _ = shop("memory://")
    tick.every(SECOND, end=datetime(2020, 1, 1, tzinfo=UTC))
    async with jobs, jobs.running(QUICK):

        async def next_runs() -> list[datetime | None]:
            page = await jobs.schedules.page("default", after="", limit=2)
            return [one.record.next_run for one in page]

        await eventually(next_runs, [None])

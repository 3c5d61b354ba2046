"""A sound store is judged clean, whatever happens to the calls: nothing is reported by mistake."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gantline import Backoff, Context, Gantline, Permanent, Retry, Snooze, WorkerSettings
from gantline.contract.clock import SystemClock
from gantline.contract.errors import GantlineError, StoreUnavailable
from gantline.contract.query import JobFilter
from gantline.contract.status import Event, JobStatus
from gantline.contract.store import JobStore
from gantline.flow.limit import Limit
from gantline.manager.sessions import live_sessions
from gantline.proof.call import Call as RecordedCall
from gantline.proof.checker import check
from gantline.proof.history import MemoryHistory, recorded
from gantline.proof.rest import Rest, read_rest
from gantline.stores.memory import MemoryStore
from gantline.stores.sqlite import SqliteStore
from gantline.stores.sqlite.location import Location
from gantline.testing.conformance import Rule, StoreHarness, all_rules
from gantline.testing.faults import AnswerLost, Call, intercepted
from tests.harness import MemoryHarness, SqliteHarness

YEARS = timedelta(days=10_000)
SOON = timedelta(milliseconds=20)
# It poisons a job whose attempts are not exhausted, by hand.
MADE_UP = "states.a_verb_works_in_its_statuses_only[poison, Running]"


class RecordedHarness:
    """Records all that a rule of the suite does to a store, and what it leaves."""

    def __init__(self, harness: StoreHarness) -> None:
        self._harness = harness
        self._store: JobStore | None = None
        self._handles = 0
        self.clock = harness.clock
        self.history = MemoryHistory()
        self.rest: Rest | None = None

    async def open(self, **options: Any) -> JobStore:
        self._store = await self._harness.open(**options)
        self._handles += 1
        return recorded(self._store, self.history, process=f"handle-{self._handles}")

    async def close(self) -> None:
        assert self._store is not None
        self.rest = await read_rest(self._store)
        await self._harness.close()


async def judged(rule: Rule, harness: StoreHarness) -> list[str]:
    """What the checker says of a rule of the suite."""
    watched = RecordedHarness(harness)
    await rule.check(watched)
    assert watched.rest is not None
    report = check(watched.history.calls, rest=watched.rest, within=YEARS)
    return [f"{rule}: {violation}" for violation in report.violations]


async def test_the_conformance_suite_on_the_memory_store_is_judged_clean() -> None:
    rules = [rule for rule in all_rules() if str(rule) != MADE_UP]
    found = [one for rule in rules for one in await judged(rule, MemoryHarness())]
    assert found == []


@pytest.mark.wide
@pytest.mark.parametrize("topic", ["answers", "races", "crashes", "events", "keys"])
async def test_the_conformance_suite_on_sqlite_is_judged_clean(topic: str) -> None:
    rules = [rule for rule in all_rules() if rule.topic == topic]
    found = [one for rule in rules for one in await judged(rule, SqliteHarness())]
    assert found == []


# -- real workers -------------------------------------------------------------------------------


class Line:
    """The way from one process to the store: it loses calls before and after their effect."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.is_bad = False

    async def around(self, verb: str, call: Call) -> Any:
        kind = self._chance.random() if self.is_bad else 1.0
        await asyncio.sleep(0)
        if kind < 0.1:
            raise StoreUnavailable("lost on the way there")
        answer = await call()
        await asyncio.sleep(0)
        if kind < 0.2:
            raise AnswerLost("lost on the way back")
        return answer


def declared(store: JobStore) -> Gantline:
    jobs = Gantline(store)
    waits = Backoff(attempts=3, cap_seconds=0.02)

    limits = [Limit(running=3), Limit(running=7, per="type"), Limit(rate="500/s", burst=20)]

    @jobs.job(
        "work",
        retry=waits,
        events=("submitted", "started"),
        group=lambda kind: f"group-{kind % 3}",
        limits=limits if store.capabilities.limits else None,
    )
    async def work(kind: int, context: Context) -> None:
        match kind % 8:
            case 0:
                raise Permanent("NO", "no")
            case 1 if context.attempt < 2:
                raise Retry("later")
            case 2 if context.job.priority != 0 and context.attempt < 3:
                raise RuntimeError("again")
            case 3 if random.random() < 0.5:
                raise Snooze(SOON)
            case 4:
                raise RuntimeError("always")
            case 5:
                await context.progress(50, "half")
            case _:
                pass

    return jobs


@asynccontextmanager
async def memory_stores(folder: Path, count: int) -> AsyncIterator[list[JobStore]]:
    store = MemoryStore(clock=SystemClock())
    yield [store] * count


@asynccontextmanager
async def sqlite_stores(folder: Path, count: int) -> AsyncIterator[list[JobStore]]:
    location = Location(folder / "jobs.db", sync="normal")
    yield [SqliteStore(location, clock=SystemClock()) for _ in range(count)]


@pytest.mark.parametrize("stores", [memory_stores, sqlite_stores])
@pytest.mark.parametrize("seed", [1, 2])
async def test_workers_that_lose_calls_and_answers_are_judged_clean(
    tmp_path: Path, seed: int, stores: Callable[..., Any]
) -> None:
    history = MemoryHistory()
    lines = [Line(seed + index) for index in range(3)]
    settings = WorkerSettings(
        lease=timedelta(seconds=1), poll=SOON, maintain_every=2 * SOON, drain=timedelta(seconds=5)
    )
    async with stores(tmp_path, 3) as raw, asyncio.timeout(60), AsyncExitStack() as stack:
        apps = [
            declared(recorded(intercepted(one, line.around), history, process=f"process-{index}"))
            for index, (one, line) in enumerate(zip(raw, lines, strict=True))
        ]
        for app in apps:
            await stack.enter_async_context(app)
        for app in apps[:2]:
            await stack.enter_async_context(app.running(settings))
        await started(raw[2], workers=2)
        for line in lines:
            line.is_bad = True
        while not has_lost_enough(history.calls):
            await submit_and_meddle(apps[2], seed)
        for line in lines:
            line.is_bad = False
        await drained(raw[2])
        await redrive_all(apps[2])
        await drained(raw[2])
        rest = await read_rest(raw[2])
    report = check(history.calls, rest=rest)
    assert report.violations == (), str(report)
    # It did show what can go wrong: else its silence would prove nothing.
    events = {row.event for log in rest.logs.values() for row in log}
    assert events >= {Event.COMPLETED, Event.FAILED, Event.RETRIED, Event.SNOOZED, Event.REDRIVEN}


async def submit_and_meddle(jobs: Gantline, seed: int) -> None:
    """Submit, cancel and redrive, though many of these calls fail."""
    chance = random.Random(seed)
    work = jobs.job_types[0]
    handles = []
    for number in range(300):
        key = f"key-{number // 3}" if number % 3 else None
        try:
            handles.append(
                await work.submit(number, idempotency_key=key, priority=chance.randrange(4))
            )
            if handles and number % 4 == 0:
                job_id = chance.choice(handles).job_id
                await jobs.manager.cancel([job_id], tenant_id=None, actor="op")
            if handles and number % 5 == 0:
                job_id = chance.choice(handles).job_id
                await jobs.manager.redrive([job_id], tenant_id=None, actor="op")
        except GantlineError:
            continue


async def redrive_all(jobs: Gantline) -> None:
    failed = JobFilter(tenant_id=None, statuses=frozenset({JobStatus.FAILED}))
    found = await jobs.store.find(failed, limit=100)
    ids = [job.job.job_id for job in found.items]
    await jobs.manager.redrive(ids, tenant_id=None, actor="op")


async def started(store: JobStore, *, workers: int) -> None:
    """A worker whose start fails has ended."""
    while len(await live_sessions(store)) < workers:  # noqa: ASYNC110  # in the workers
        await asyncio.sleep(0.01)


async def drained(store: JobStore) -> None:
    while any(  # noqa: ASYNC110  # in the workers
        lane.queued or lane.running for lane in await store.counts(tenant_id=None)
    ):
        await asyncio.sleep(0.02)


def has_lost_enough(calls: list[RecordedCall]) -> bool:
    lost = Counter(call.verb for call in calls if call.error)
    return lost.total() > 50 and {"insert", "claim", "apply"} <= lost.keys()

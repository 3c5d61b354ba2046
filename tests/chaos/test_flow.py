"""Limits and gates hold at every moment, whatever happens to workers and servers.

Handlers keep journals, an observer reads the store and its tables all the while, and at the end the
log of the store is held against both. What a handler does after its lease was over is counted
apart: nobody can stop it, but what it says of its run is refused.
"""

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Final, TypeVar
from uuid import UUID

import pytest

from gantline import JobStatus
from gantline.contract.clock import SystemClock
from gantline.contract.errors import StoreUnavailable
from gantline.contract.query import Cursor, JobFilter
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.status import Event
from gantline.proof.history import recorded_in
from gantline.stores import store_from_url
from gantline.testing.liveness import watching
from tests.chaos.flow_app import BURST, MOST, RATE, Call, call, jobs, mail
from tests.chaos.flow_fleet import LEASE_SECONDS, SEED, Fleet, Plan
from tests.chaos.flow_journals import (
    back_after,
    crowds,
    handler_spans,
    leased_spans,
    most_over,
    read_journals,
    read_runs,
    zombies,
)
from tests.chaos.flow_observer import Observer, observed
from tests.chaos.flow_tables import PostgresTables, RedisTables, SqliteTables, Tables
from tests.chaos.test_chaos import SECONDS_VARIABLE
from tests.judging import history_in, judge
from tests.proof import say

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(3600)]

R = TypeVar("R")

KEYS: Final = [f"key-{number:04}" for number in range(1000)]
# Half of the jobs are of these, so that some keys always have more than may run.
HOT: Final = KEYS[:20]
# All workers may be killed or frozen at once, and those who crashed twice start in small groups.
WITHIN: Final = timedelta(seconds=3 * LEASE_SECONDS + 15)
_AT_ONCE: Final = 20
_APART_SECONDS: Final = 0.2
_MOST_WAITING: Final = 600
_DRAIN_SECONDS: Final = 240.0
_AGAIN_SECONDS: Final = 0.2
# Two looks of an idle worker, and what a busy machine adds.
_SETTLE_SECONDS: Final = 15.0

PLANS: Final = [
    pytest.param(Plan(seconds=13, apart=2), id="short", marks=pytest.mark.wide),
    pytest.param(
        Plan(seconds=float(os.environ.get(SECONDS_VARIABLE, "600")), apart=3),
        id="long",
        marks=pytest.mark.chaos,
    ),
]


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tables]:
    """A durable store of its own, which may be killed."""
    match request.param:
        case "sqlite":
            made: Tables = SqliteTables(tmp_path)
        case "postgres":
            made = PostgresTables()
        case _:
            made = RedisTables(KEYS)
    yield made
    made.stop()


@asynccontextmanager
async def fleet_on(tables: Tables, folder: Path) -> AsyncIterator[Fleet]:
    """All calls of all processes are recorded, and judged at the end."""
    store = store_from_url(tables.url, clock=SystemClock())
    jobs.move_to(recorded_in(history_in(folder), store))
    async with jobs:
        if not (store.capabilities.limits and store.capabilities.turns):
            pytest.skip("this store has no limits")
        fleet = Fleet(tables, folder)
        async with fleet.running():
            yield fleet
        await judge(store, folder)


@pytest.mark.parametrize("plan", PLANS)
async def test_no_key_ever_has_more_runs_than_its_limit(
    tables: Tables, tmp_path: Path, plan: Plan
) -> None:
    async with fleet_on(tables, tmp_path) as fleet:
        observer = Observer(
            jobs.store, tables, job_type=call.name, most=MOST, within=WITHIN.total_seconds()
        )
        async with (
            watching(jobs.store, within=WITHIN, backlog=True) as oracle,
            observed(observer),
        ):
            submitting = asyncio.create_task(_submit_calls(random.Random(SEED)))
            await fleet.suffer(plan)
            submitting.cancel()
            await asyncio.wait({submitting})
            await _drained(_DRAIN_SECONDS)
            await _nothing_is_left(tables)
            await _places_are_free(fleet)
        found = await _every_job()
        await _journals_and_log_agree(fleet, found)
        say(f"{dict(fleet.done)}, seen {dict(observer.looks)}, most {dict(observer.most_seen)}")
        observer.check()
        oracle.check()
    _ended_once(found)


@pytest.mark.parametrize("plan", PLANS)
async def test_no_window_has_more_starts_than_its_gate_lets_through(
    tables: Tables, tmp_path: Path, plan: Plan
) -> None:
    async with fleet_on(tables, tmp_path) as fleet:
        async with watching(jobs.store, within=WITHIN, backlog=True) as oracle:
            submitting = asyncio.create_task(_submit_mail())
            await fleet.suffer(plan)
            submitting.cancel()
            await asyncio.wait({submitting})
            await _drained(_DRAIN_SECONDS)
        found = await _every_job()
        ends = await read_runs(jobs.store, found)
        starts = [row.started_at.timestamp() for row in ends.values() if row.started_at]
        took = max(starts) - min(starts)
        over = most_over(starts, per_second=RATE, burst=BURST)
        say(
            f"{dict(fleet.done)}: {len(starts)} starts of {len(found)} jobs in {took:.1f} s, "
            f"{len(starts) / took / RATE:.2f} of the rate; the worst window is {over:.2f} over"
        )
        assert sum(job.fence for job in found) == len(starts)
        # Instants are stored in whole microseconds.
        assert over < 0.01
        oracle.check()
    _ended_once(found)


# -- work -----------------------------------------------------------------------------------------


async def _submit_calls(chance: random.Random) -> None:
    """Half of them of a few keys; some take longer than a lease."""
    while True:
        calls = [
            Call(
                chance.choice(HOT if chance.random() < 0.5 else KEYS),
                LEASE_SECONDS + 1 if chance.random() < 0.1 else chance.uniform(0.02, 0.4),
            )
            for _ in range(_AT_ONCE)
        ]
        await _while_away(lambda calls=calls: call.submit_many(calls))  # type: ignore[misc]  # the calls of this round
        await _enough(_MOST_WAITING)
        await asyncio.sleep(_APART_SECONDS)


async def _submit_mail() -> None:
    """Somewhat more than may start, so that the gate is what is waited for."""
    for first in count(step=_AT_ONCE):
        numbers = list(range(first, first + 3 * _AT_ONCE))
        await _while_away(lambda numbers=numbers: mail.submit_many(numbers))  # type: ignore[misc]  # likewise
        await _enough(5 * RATE)
        await asyncio.sleep(_APART_SECONDS)


async def _while_away(do: Callable[[], Awaitable[R]]) -> R:
    """Do it again while the server is away. A submit may then have been stored before, too."""
    while True:
        with suppress(StoreUnavailable):
            return await do()
        await asyncio.sleep(_AGAIN_SECONDS)


async def _enough(most: int) -> None:
    while await _open_jobs() > most:  # noqa: ASYNC110  # in other processes
        await asyncio.sleep(_AGAIN_SECONDS)


async def _open_jobs() -> int:
    lanes = await _while_away(lambda: jobs.store.counts(tenant_id=None))
    return sum(lane.queued + lane.running for lane in lanes)


async def _drained(seconds: float) -> None:
    """Counts may be as old as the store says."""
    async with asyncio.timeout(seconds):
        while True:
            await _enough(0)
            await asyncio.sleep(jobs.store.capabilities.count_staleness.total_seconds())
            if await _open_jobs() == 0:
                return


async def _ended(job_ids: Sequence[UUID]) -> None:
    async with asyncio.timeout(_DRAIN_SECONDS):
        while not all(  # noqa: ASYNC110  # in other processes
            job is not None and job.status.is_terminal
            for job in await jobs.store.get(job_ids, tenant_id=None)
        ):
            await asyncio.sleep(_AGAIN_SECONDS)


# -- what must hold -------------------------------------------------------------------------------


async def _every_job() -> list[JobSnapshot]:
    found: list[JobSnapshot] = []
    after: Cursor | None = None
    while True:
        page = await jobs.store.find(JobFilter(tenant_id=None), limit=500, after=after)
        found += page.items
        if (after := page.next) is None:
            return found


def _ended_once(found: list[JobSnapshot]) -> None:
    assert Counter(job.status for job in found) == {JobStatus.COMPLETED: len(found)}


async def _nothing_is_left(tables: Tables) -> None:
    """No permit, lease or turn. Turns go when workers look, so it may take a moment."""
    left = {}
    give_up_at = time.monotonic() + _SETTLE_SECONDS
    while time.monotonic() < give_up_at:
        left = {kind: count for kind, count in tables.left().items() if count}
        page = await jobs.store.groups("default", call.name, tenant_id=None, limit=100)
        if page.items:
            left["groups"] = len(page.items)
        if not left:
            return
        await asyncio.sleep(_AGAIN_SECONDS)
    raise AssertionError(f"all has ended, and there are still {left}")


async def _places_are_free(fleet: Fleet) -> None:
    """Of some keys as many as may run do so at once, with the first of them still at work."""
    keys = [*HOT[:5], *KEYS[-5:]]
    seconds = 2.0
    handles = await call.submit_many([Call(key, seconds) for key in keys for _ in range(MOST)])
    mine = [handle.job_id for handle in handles]
    await _ended(mine)
    began: dict[str, list[float]] = {key: [] for key in keys}
    for one in read_journals(fleet.journals):
        if one.run[0] in mine:
            began[one.key].append(one.began)
    late = {key: times for key, times in began.items() if max(times) - min(times) > seconds / 2}
    assert not late, f"a place was not free: {late}"


async def _journals_and_log_agree(fleet: Fleet, found: list[JobSnapshot]) -> None:
    noted = read_journals(fleet.journals)
    ends = await read_runs(jobs.store, found)
    late = zombies(noted, ends)
    over = list(crowds(leased_spans(noted, ends), MOST))
    beside_zombies = list(crowds(handler_spans(noted, ends), MOST))
    completed: dict[UUID, list[int]] = {job.job.job_id: [] for job in found}
    for (job_id, fence), row in ends.items():
        if row.event is Event.COMPLETED:
            completed[job_id].append(fence)
    accepted = [one for one in late if one.run[1] in completed[one.run[0]]]
    back = back_after(noted, ends, fleet.killed) or [0.0]
    say(
        f"{len(found)} jobs, {len(noted)} runs; {len(late)} zombies came to their end after others "
        f"had their run, beside them {len(beside_zombies)} starts were too many; {len(back)} "
        f"places of killed workers were back after {back[len(back) // 2]:.1f} s (median), at most "
        f"{back[-1]:.1f} s, with a lease of {LEASE_SECONDS:g} s"
    )
    assert not over, over[:5]
    assert all(len(fences) == 1 for fences in completed.values())
    assert not accepted, accepted[:5]

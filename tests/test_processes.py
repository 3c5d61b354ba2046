"""Ten processes on one SQLite file, killed at random: nothing is lost and nothing is done twice."""

import asyncio
import random
import sqlite3
from collections import Counter
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from gantline.contract.clock import SystemClock
from gantline.contract.outcome import Success
from gantline.contract.results import Applied
from gantline.contract.status import JobStatus
from gantline.contract.store import JobStore
from gantline.manager.manager import Ending, JobManager
from gantline.manager.reaper import Reaper
from gantline.stores.memory import MemoryStore
from gantline.stores.sqlite import SqliteStore
from gantline.stores.sqlite.location import Location
from gantline.testing.clock import FakeClock
from gantline.testing.factories import lane_requests, make_new, register_sessions
from tests.fleet import Fleet

JOBS = 10_000
PROCESSES = 10
KILLS = 30


async def submit_all(store: JobStore) -> list[UUID]:
    jobs = [make_new(number, max_attempts=1) for number in range(JOBS)]
    for start in range(0, JOBS, 500):
        batch = jobs[start : start + 500]
        assert await store.insert(batch) == [Applied(1)] * len(batch)
    return [new.job.job_id for new in jobs]


@pytest.mark.wide
@pytest.mark.timeout(300)
@pytest.mark.xdist_group("processes")
async def test_ten_killed_processes_lose_nothing_and_do_nothing_twice(tmp_path: Path) -> None:
    path = tmp_path / "gantline.db"
    store = SqliteStore(Location(path), clock=SystemClock())
    await store.open()
    ids = await submit_all(store)

    fleet = Fleet(f"sqlite:///{path}?busy_seconds=30", tmp_path)
    await fleet.run(processes=PROCESSES, kills=KILLS)

    assert fleet.killed >= KILLS // 2, "the work was over before enough processes were killed"
    jobs = await store.get(ids, tenant_id=None)
    assert all(job and job.status.is_terminal for job in jobs)
    statuses = Counter(job.status for job in jobs if job)
    assert set(statuses) <= {JobStatus.COMPLETED, JobStatus.POISONED}
    assert statuses[JobStatus.COMPLETED] > JOBS * 0.95
    (counts,) = await store.counts(tenant_id=None)
    assert (counts.completed, counts.poisoned) == (
        statuses[JobStatus.COMPLETED],
        statuses[JobStatus.POISONED],
    )
    await store.close()
    _check_log(path, fleet.accepted(), statuses)


def _check_log(path: Path, accepted: list[str], statuses: Counter[JobStatus]) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        rows = connection.execute(
            "SELECT hex(change_id), job_id, fence, event FROM gantline_log"
        ).fetchall()
        in_hand = connection.execute(
            "SELECT (SELECT count(*) FROM gantline_ready), (SELECT count(*) FROM gantline_lease)"
        ).fetchone()
    assert in_hand == (0, 0)
    assert len({(job_id, fence) for _, job_id, fence, _ in rows}) == len(rows)
    completed = Counter(job_id for _, job_id, _, event in rows if event == "completed")
    assert set(completed.values()) == {1}
    assert len(completed) == statuses[JobStatus.COMPLETED]
    # What a process was told was accepted is in the log, under that run's token, and told once.
    assert len(set(accepted)) == len(accepted)
    told = {token.upper() for token in accepted}
    assert told <= {token for token, _, _, event in rows if event == "completed"}


async def test_abandoned_sessions_in_memory_lose_nothing_and_do_nothing_twice() -> None:
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    manager = JobManager(store)
    ids = await submit_all(store)
    dice = random.Random(7)
    accepted: Counter[UUID] = Counter()

    async def session(name: str) -> None:
        await register_sessions(store, name)
        requests = [*lane_requests(limit=10), *lane_requests(limit=10, suspects=(10,))]
        while runs := await manager.claim(name, uuid4(), requests, lease=timedelta(seconds=2)):
            if dice.random() < 0.1:
                return  # abandoned with what it holds
            await asyncio.sleep(0)
            settled = await manager.settle([Ending(run, Success()) for run in runs])
            accepted.update(one.transition.job_id for one in settled if one.accepted)

    sessions = 0
    while any(lane.queued or lane.running for lane in await store.counts(tenant_id=None)):
        await asyncio.gather(*(session(f"session-{sessions + n}") for n in range(10)))
        sessions += 10
        clock.advance(2)
        await Reaper(store).run_once()
        clock.advance(5)
    jobs = await store.get(ids, tenant_id=None)
    statuses = Counter(job.status for job in jobs if job)
    assert set(statuses) <= {JobStatus.COMPLETED, JobStatus.POISONED}
    assert sum(statuses.values()) == JOBS
    assert set(accepted.values()) == {1}
    assert len(accepted) == statuses[JobStatus.COMPLETED]

"""Whose fault a crash is: found by halves, and never an innocent job's."""

import random
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from gantline.contract.outcome import Success
from gantline.contract.query import LaneRequest
from gantline.contract.records import RecordWrite
from gantline.contract.snapshot import JobSnapshot, Run
from gantline.contract.status import Event, JobStatus, Reason
from gantline.manager.manager import Ending, JobManager
from gantline.manager.reaper import CRASH_BUDGETS, Reaper, crash_budgets, declare_crash_budgets
from gantline.stores.memory import MemoryStore
from gantline.testing.clock import FakeClock
from gantline.testing.factories import make_new, register_sessions
from gantline.worker.suspects import group_sizes, runs_alone

LEASE = timedelta(seconds=30)


class Place:
    """A store, and workers that crash."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(clock=self.clock)
        self.manager = JobManager(self.store)
        self.reaper = Reaper(self.store, lease=LEASE, jitter=lambda: 0.0)

    async def submit(self, jobs: int) -> list[UUID]:
        new = [make_new(number) for number in range(jobs)]
        await self.store.insert(new)
        return [one.job.job_id for one in new]

    async def claim(
        self, session: str, limit: int = 1000, suspects: tuple[int, ...] = ()
    ) -> list[Run]:
        asked = [LaneRequest("default", ("test",), limit, suspects=suspects)]
        await register_sessions(self.store, session)
        return await self.store.claim(session, uuid4(), asked, lease=LEASE)

    async def crash(self, *sessions: str) -> None:
        """They end, and it is known."""
        for session in sessions:
            await self.store.expire_session(session)
        await self.reaper.run_once(sessions)
        self.clock.advance(timedelta(seconds=10))

    async def jobs(self, ids: Sequence[UUID]) -> list[JobSnapshot]:
        return [job for job in await self.store.get(ids, tenant_id=None) if job is not None]


async def test_who_was_alone_pays_for_the_crash() -> None:
    place = Place()
    ids = await place.submit(1)
    for crash in (1, 2, 3):
        await place.claim(f"worker {crash}", suspects=(1,) if crash == 3 else ())
        await place.crash(f"worker {crash}")
    (job,) = await place.jobs(ids)
    history = await place.store.history(ids[0], tenant_id=None)
    assert (job.status, job.attempt, job.crashes) == (JobStatus.POISONED, 0, 3)
    assert [row.reason for row in history] == [
        *(Reason.CRASHED_ALONE, Reason.CRASHED_ALONE, Reason.LEASE_EXPIRED)
    ]


async def test_a_crash_in_company_poisons_nobody_however_often() -> None:
    place = Place()
    ids = await place.submit(2)
    for crash in range(20):
        await place.claim(f"worker {crash}")
        await place.claim(f"worker {crash}", suspects=(2,))
        await place.crash(f"worker {crash}")
    jobs = await place.jobs(ids)
    assert {(job.status, job.crashes) for job in jobs} == {(JobStatus.QUEUED, 20)}


async def test_a_run_whose_neighbour_still_has_its_lease_was_not_alone() -> None:
    """It was claimed later, so its lease runs out later; the worker is dead all the same."""
    place = Place()
    first, _ = await place.submit(2)
    await place.claim("worker", limit=1)
    place.clock.advance(timedelta(seconds=3))
    await place.claim("worker", limit=1)
    place.clock.advance(LEASE - timedelta(seconds=2))
    assert (await place.reaper.run_once()).requeued == 1
    (row,) = await place.store.history(first, tenant_id=None)
    assert row.reason == Reason.LEASE_EXPIRED


async def test_a_run_whose_neighbour_was_taken_away_a_round_before_was_not_alone() -> None:
    place = Place()
    _, second = await place.submit(2)
    await place.claim("worker", limit=1)
    place.clock.advance(timedelta(seconds=3))
    await place.claim("worker", limit=1)
    place.clock.advance(LEASE - timedelta(seconds=2))
    assert (await place.reaper.run_once()).requeued == 1
    place.clock.advance(timedelta(seconds=3))
    assert (await place.reaper.run_once()).requeued == 1
    (row,) = await place.store.history(second, tenant_id=None)
    assert row.reason == Reason.LEASE_EXPIRED


async def test_workers_that_end_together_make_nobody_guilty() -> None:
    place = Place()
    ids = await place.submit(2)
    for crash in range(3):
        sessions = [f"{worker} {crash}" for worker in ("first", "second")]
        for session in sessions:
            await place.claim(session, limit=1)
        await place.crash(*sessions)
    jobs = await place.jobs(ids)
    assert {(job.status, job.crashes) for job in jobs} == {(JobStatus.QUEUED, 0)}


async def test_a_worker_whose_renewals_are_overdue_has_ended_together_with_the_other() -> None:
    place = Place()
    ids = await place.submit(2)
    await place.claim("first", limit=1)
    place.clock.advance(timedelta(seconds=4))
    await place.claim("second", limit=1)
    place.clock.advance(LEASE - timedelta(seconds=3))
    assert (await place.reaper.run_once()).requeued == 1
    place.clock.advance(timedelta(seconds=3))
    assert (await place.reaper.run_once()).requeued == 1
    assert {job.crashes for job in await place.jobs(ids)} == {0}


async def test_a_worker_that_is_started_after_another_ended_is_not_beside_it() -> None:
    """A worker that is started again and again, and crashes at once each time."""
    place = Place()
    ids = await place.submit(1)
    for crash in range(2):
        await place.claim(f"worker {crash}")
        await place.store.expire_session(f"worker {crash}")
        await place.reaper.run_once()
        place.clock.advance(timedelta(seconds=1))
    (job,) = await place.jobs(ids)
    assert job.crashes == 2


async def test_what_always_ends_all_workers_together_becomes_suspect_in_the_end() -> None:
    """For instance by the memory that they share. It must not go on for ever."""
    place = Place()
    ids = await place.submit(2)
    for crash in range(10):
        sessions = [f"{worker} {crash}" for worker in ("first", "second")]
        for session in sessions:
            if not await place.claim(session, limit=1):
                await place.claim(session, limit=1, suspects=(1,))
        await place.crash(*sessions)
    assert {job.crashes > 2 for job in await place.jobs(ids)} == {True}


async def test_the_budget_of_a_type_is_read_from_the_store() -> None:
    place = Place()
    await declare_crash_budgets(place.store, {"test": 1, "other": 3})
    assert await crash_budgets(place.store) == {"test": 1}
    (job_id,) = await place.submit(1)
    await place.claim("worker")
    await place.crash("worker")
    (job,) = await place.jobs([job_id])
    assert job.status is JobStatus.POISONED
    await declare_crash_budgets(place.store, {"test": 3})
    assert await crash_budgets(place.store) == {"test": 3}
    await place.store.write_records([RecordWrite(CRASH_BUDGETS, "test", None)])
    assert await crash_budgets(place.store) == {}


@pytest.mark.parametrize("slots", [1, 2, 10, 200])
@pytest.mark.parametrize("seed", range(3))
async def test_one_killer_among_many_is_found_by_halves(slots: int, seed: int) -> None:
    """Workers that run what they claim, and crash whenever the killer is in it."""
    place, chance = Place(), random.Random(seed)  # not a secret
    ids = await place.submit(3 * slots + 20)
    killer = chance.choice(ids)
    crashes = 0
    for number in range(1000):
        session = f"worker {number}"
        runs = await place.claim(session, limit=slots, suspects=group_sizes(slots))
        if not (runs and runs_alone(runs[0].crashes, slots)):
            runs += await place.claim(session, limit=slots - len(runs))
        if not runs:
            break
        if any(run.job.job_id == killer for run in runs):
            crashes += 1
            await place.crash(session)
        else:
            await place.manager.settle([Ending(run, Success()) for run in runs])
            place.clock.advance(timedelta(seconds=10))
    jobs = {job.job.job_id: job for job in await place.jobs(ids)}
    assert jobs.pop(killer).status is JobStatus.POISONED
    assert {(job.status, job.attempt) for job in jobs.values()} == {(JobStatus.COMPLETED, 1)}
    assert crashes <= slots.bit_length() + 4
    rows = [await place.store.history(job_id, tenant_id=None) for job_id in ids]
    assert all(row.event is not Event.RELEASED for some in rows for row in some)

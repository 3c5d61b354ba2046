"""Upkeep by a worker: old jobs are pruned beside the rounds of maintenance, while it leads."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from uuid import uuid4

import pytest

from gantline import JobStatus, StorageSettings
from gantline.contract.query import Pruned, PruneRule
from gantline.contract.records import RecordWrite
from gantline.contract.results import Leadership
from gantline.manager.maintenance import ROLE
from gantline.manager.manager import JobManager
from gantline.manager.observer import Observer
from gantline.manager.reaper import CRASH_BUDGETS
from gantline.manager.switches import Switches
from gantline.stores.memory import MemoryStore
from gantline.testing.clock import FakeClock
from gantline.testing.factories import lane_requests, make_new, register_sessions
from gantline.worker.upkeep import maintain_for_ever
from tests.ear import PATIENCE_SECONDS

DAY = timedelta(days=1)
LEASE = timedelta(milliseconds=40)  # the rounds of an idle leader come four times as often


class NeverPruned(MemoryStore):
    """A store that is never done with removing old jobs."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        super().__init__(clock=self.clock)
        self.begun, self.ended = asyncio.Event(), asyncio.Event()
        self.rounds = asyncio.Semaphore(0)

    async def prune(
        self, rules: Sequence[PruneRule], *, limit: int, keep_events_after: int | None = None
    ) -> Pruned:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()
        return Pruned()

    async def lead(self, role: str, owner: str, *, lease: timedelta) -> Leadership | None:
        self.rounds.release()
        return await super().lead(role, owner, lease=lease)


@asynccontextmanager
async def upkept(store: NeverPruned) -> AsyncIterator[asyncio.Event]:
    """Keep a store up; the event is set when runs of dead workers were ended."""
    ended = asyncio.Event()
    task = asyncio.create_task(
        maintain_for_ever(
            store,
            Switches(store),
            "me",
            every=LEASE,
            lease=LEASE,
            observer=Observer(),
            chores=(),
            runs_ended=ended.set,
            storage=StorageSettings(),
        )
    )
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield ended
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize(
    "status", [JobStatus.QUEUED, JobStatus.POISONED, JobStatus.CANCELLED], ids=str
)
async def test_lapsed_leases_do_not_wait_for_the_pruner(status: JobStatus) -> None:
    """Whatever becomes of the job: its run made room for another of a full group."""
    store = NeverPruned()
    new = make_new()
    await store.insert([new])
    await register_sessions(store, "dead")
    await store.claim("dead", uuid4(), lane_requests(), lease=LEASE)
    if status is JobStatus.CANCELLED:
        await JobManager(store).cancel([new.job.job_id], tenant_id=None, actor="op")
    if status is JobStatus.POISONED:
        write = RecordWrite(CRASH_BUDGETS, new.job.job_type, b"1")
        await store.write_records([write])
    async with upkept(store) as ended:
        await store.begun.wait()
        store.clock.advance(DAY)
        await ended.wait()
        assert not store.ended.is_set()
    (job,) = await store.get([new.job.job_id], tenant_id=None)
    assert job is not None
    assert job.status is status


async def test_who_does_not_lead_does_not_prune() -> None:
    store = NeverPruned()
    await MemoryStore.lead(store, ROLE, "another", lease=LEASE / 2)
    async with upkept(store):
        for _ in range(3):
            await store.rounds.acquire()
        assert not store.begun.is_set()


async def test_who_leads_no_longer_stops_pruning() -> None:
    store = NeverPruned()
    async with upkept(store):
        await store.begun.wait()
        store.clock.advance(DAY)
        await MemoryStore.lead(store, ROLE, "another", lease=LEASE / 2)
        await store.ended.wait()


async def test_who_stops_stops_pruning() -> None:
    store = NeverPruned()
    async with upkept(store):
        await store.begun.wait()
    await store.ended.wait()

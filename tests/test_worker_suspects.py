"""Suspects and stops: no run is counted as a crash that none was, whenever the worker is asked."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from windlass import Windlass, WorkerSettings
from windlass.contract.results import Renewal
from windlass.contract.snapshot import SUSPECT_AFTER_CRASHES, JobSnapshot, RunRef
from windlass.contract.status import JobStatus
from windlass.contract.store import JobStore
from windlass.manager.reaper import Reaper
from windlass.stores.memory import MemoryStore
from windlass.testing.clock import FakeClock
from windlass.testing.factories import wanting
from windlass.testing.faults import Call, intercepted
from windlass.worker.worker import Worker

_LEASE = timedelta(seconds=1)
_LONG_ENOUGH = timedelta(minutes=5)


class Gate:
    """Holds every call of one verb, before it is made or before its answer is given."""

    def __init__(self, verb: str, *, after: bool = False) -> None:
        self._verb = verb
        self._after = after
        self.is_shut = True
        self.reached = asyncio.Event()
        self.may_go_on = asyncio.Event()

    async def around(self, verb: str, call: Call) -> Any:
        if verb != self._verb or not self.is_shut:
            return await call()
        if self._after:
            answer = await call()
            self.reached.set()
            await self.may_go_on.wait()
            return answer
        self.reached.set()
        await self.may_go_on.wait()
        return await call()


class Renewing(MemoryStore):
    """Tells which runs have been renewed."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self._loop = asyncio.get_running_loop()
        self.renewed: dict[UUID, asyncio.Event] = {}

    async def renew(self, session: str, runs: Sequence[RunRef], *, lease: timedelta) -> Renewal:
        for run in runs:
            if run.job_id in self.renewed:
                self._loop.call_soon_threadsafe(self.renewed[run.job_id].set)
        return await super().renew(session, runs, lease=lease)


class Place:
    """An application in memory whose handlers wait for the test."""

    def __init__(self, store: JobStore, clock: FakeClock) -> None:
        self.clock = clock
        self.store = store
        self.app = Windlass(store, clock=clock)
        self.may_end = asyncio.Event()
        self.started: list[str] = []
        self.has_started = asyncio.Event()

        @self.app.job("test")
        async def handle(name: str) -> None:
            self.started.append(name)
            self.has_started.set()
            await self.may_end.wait()

        self.handle = handle

    async def suspect(self, *names: str) -> list[UUID]:
        """Jobs that workers have crashed with, as often as makes them suspect."""
        ids = [(await self.handle.submit(name)).job_id for name in names]
        for _ in range(SUSPECT_AFTER_CRASHES):
            await self.store.claim("crashed", uuid4(), wanting("test"), lease=_LEASE)
            self.clock.advance(_LONG_ENOUGH)
            await Reaper(self.store).run_once()
            self.clock.advance(_LONG_ENOUGH)
        return ids

    async def found(self, ids: list[UUID]) -> list[JobSnapshot]:
        return [job for job in await self.store.get(ids, tenant_id=None) if job]

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[Worker]:
        settings = WorkerSettings(
            queues={"default": 10}, lease=_LEASE, drain=timedelta(0), maintain_every=None
        )
        async with self.app, self.app.working(settings) as worker:
            running = asyncio.create_task(worker.run())
            async with asyncio.timeout(30):
                try:
                    yield worker
                finally:
                    worker.stop()
                    await running


async def test_a_suspect_starts_only_when_those_beside_it_have_been_given_back() -> None:
    """It may kill the worker at once: whoever is still in its hands would crash with it."""
    gate = Gate("apply")
    clock = FakeClock()
    place = Place(intercepted(MemoryStore(clock=clock), gate.around), clock)
    gate.is_shut = False
    await place.suspect("first", "second")
    gate.is_shut = True
    async with place.worker():
        await gate.reached.wait()
        assert place.started == []
        gate.may_go_on.set()
        await place.has_started.wait()
        assert len(place.started) == 1
        place.may_end.set()


async def test_the_lease_of_a_suspect_is_kept_while_it_waits_for_its_turn() -> None:
    clock = FakeClock()
    store = Renewing(clock)
    place = Place(store, clock)
    (suspect,) = await place.suspect("suspect")
    store.renewed[suspect] = asyncio.Event()
    await place.handle.submit("plain")
    async with place.worker():
        await place.has_started.wait()
        await store.renewed[suspect].wait()
        assert place.started == ["plain"]
        place.may_end.set()


async def test_a_suspect_that_waits_for_its_turn_is_given_back_at_a_stop() -> None:
    clock = FakeClock()
    place = Place(MemoryStore(clock=clock), clock)
    ids = await place.suspect("suspect")
    await place.handle.submit("plain")
    async with place.worker():
        await place.has_started.wait()
    (job,) = await place.found(ids)
    assert (job.status, job.crashes) == (JobStatus.QUEUED, SUSPECT_AFTER_CRASHES)
    assert place.started == ["plain"]


async def test_what_is_being_claimed_at_a_stop_is_given_back() -> None:
    gate = Gate("claim", after=True)
    clock = FakeClock()
    place = Place(intercepted(MemoryStore(clock=clock), gate.around), clock)
    ids = [(await place.handle.submit("job")).job_id]
    async with place.worker() as worker:
        await gate.reached.wait()
        worker.stop()
        gate.may_go_on.set()
    (job,) = await place.found(ids)
    assert (job.status, job.crashes, job.attempt) == (JobStatus.QUEUED, 0, 0)
    assert place.started == []


async def test_a_run_that_is_stopped_before_its_first_turn_goes_back_at_once() -> None:
    jobs = Windlass(MemoryStore(clock=FakeClock()))
    begun, stop_now = list[int](), list[Callable[[], None]]()

    @jobs.job("two")
    async def two(number: int) -> None:
        begun.append(number)
        stop_now[0]()  # the other was claimed together with this one, and has had no turn
        await asyncio.Event().wait()

    async with jobs:
        handles = await two.submit_many([1, 2])
        async with asyncio.timeout(10), jobs.working() as worker:
            stop_now.append(worker.stop_now)
            await worker.run()
        stood = [await handle.status() for handle in handles]
    assert begun == [1]
    assert {(job.status, job.attempt) for job in stood} == {(JobStatus.QUEUED, 0)}

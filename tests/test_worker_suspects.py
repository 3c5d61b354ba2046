"""Suspects and stops: no run is counted as a crash that none was, whenever the worker is asked."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from gantline import Gantline, WorkerSettings
from gantline.contract.query import LaneRequest
from gantline.contract.results import Renewal
from gantline.contract.snapshot import SUSPECT_AFTER_CRASHES, JobSnapshot, LogEntry, RunRef
from gantline.contract.status import Event, JobStatus
from gantline.contract.store import JobStore
from gantline.manager.reaper import Reaper
from gantline.stores.memory import MemoryStore
from gantline.testing.clock import FakeClock
from gantline.testing.factories import register_sessions
from gantline.testing.faults import Call, intercepted
from gantline.worker.suspects import Suspects
from gantline.worker.worker import Worker
from tests.manager.test_decide import make_run

_LEASE = timedelta(seconds=1)
_LONG_ENOUGH = timedelta(minutes=5)
_BACKOFF = timedelta(seconds=3)
_ALONE = 5
"""Ten slots halved four times are none."""


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

    def __init__(self, store: JobStore, clock: FakeClock, claims: "Gate | None" = None) -> None:
        self.clock = clock
        self.inner = store
        self.store = store if claims is None else intercepted(store, claims.around)
        self.app = Gantline(self.store)
        self.app.move_to(self.store, clock=clock)
        self.may_end = asyncio.Event()
        self.started: list[str] = []
        self.has_started = asyncio.Event()

        @self.app.job("test")
        async def handle(name: str) -> None:
            self.started.append(name)
            self.has_started.set()
            await self.may_end.wait()

        self.handle = handle

    async def suspect(
        self, *names: str, crashes: int = SUSPECT_AFTER_CRASHES, is_due: bool = True
    ) -> list[UUID]:
        """Jobs that were in so many crashes, always beside another."""
        ids = [(await self.handle.submit(name)).job_id for name in names]
        other = (await self.handle.submit("other")).job_id
        await register_sessions(self.inner, "crashed")
        for _ in range(crashes):
            self.clock.advance(_BACKOFF)
            for suspects in ((), (10,)):
                asked = [LaneRequest("default", ("test",), 10, suspects=suspects)]
                await self.inner.claim("crashed", uuid4(), asked, lease=_LEASE)
            await self.inner.expire_session("crashed")
            await Reaper(self.inner).run_once(["crashed"])
        await self.app.manager.cancel([other], tenant_id=None, actor="test")
        if is_due:
            self.clock.advance(_BACKOFF)
        return ids

    async def suspect_beside_another(self, worker: Worker, claims: "Gate") -> list[UUID]:
        """A suspect that is to run alone, claimed while another job runs."""
        claims.is_shut = False
        claims.may_go_on.set()
        await self.handle.submit("plain")
        await self.has_started.wait()
        claims.may_go_on.clear()
        claims.is_shut = True
        worker._claimer.wake_for_suspects()
        await claims.reached.wait()
        ids = await self.suspect("suspect", crashes=_ALONE)
        claims.may_go_on.set()
        while not worker._claimer.is_held_back:  # noqa: ASYNC110  # in the worker
            await asyncio.sleep(0)
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


async def test_suspects_run_in_groups_of_half_the_slots_beside_ordinary_jobs() -> None:
    clock = FakeClock()
    place = Place(MemoryStore(clock=clock), clock)
    await place.suspect(*(f"suspect {number}" for number in range(7)))
    for number in range(5):
        await place.handle.submit(f"plain {number}")
    async with place.worker() as worker:
        while len(place.started) < 10:
            place.has_started.clear()
            await place.has_started.wait()
        kinds = Counter(name.split()[0] for name in place.started)
        assert kinds == {"suspect": 5, "plain": 5}
        assert worker.trouble() is None
        place.may_end.set()
        while len(place.started) < 12:
            place.has_started.clear()
            await place.has_started.wait()
    assert len(set(place.started)) == 12
    assert not await released(place.store)


async def test_of_those_in_two_crashes_another_group_begins_though_the_last_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gantline.worker.suspects.GROUP_SECONDS", 0.0)
    monkeypatch.setattr("gantline.worker.claimer._SUSPECTS_SECONDS", 0.01)
    clock = FakeClock()
    place = Place(MemoryStore(clock=clock), clock)
    await place.suspect(*(f"suspect {number}" for number in range(7)))
    async with place.worker():
        while len(place.started) < 7:
            place.has_started.clear()
            await place.has_started.wait()
        assert not place.may_end.is_set()
        place.may_end.set()


_ALL = (50, 25, 12, 6, 3, 1, 1, 1)


@pytest.mark.parametrize(
    ("crashes", "seconds", "expected"),
    [
        ((2,), 1.0, ()),
        ((2,), 11.0, _ALL),
        ((3,), 1.0, ()),
        ((3,), 11.0, (24, 24, 11, 5, 2, 0, 0, 0)),
        ((2, 4), 11.0, (10, 10, 10, 4, 1, 0, 0, 0)),
        ((2,) * 12 + (4,), 1e6, ()),
        ((9,), 1e6, ()),
        ((20,), 1e6, ()),
    ],
)
def test_which_group_may_begin_beside_the_last(
    monkeypatch: pytest.MonkeyPatch,
    crashes: tuple[int, ...],
    seconds: float,
    expected: tuple[int, ...],
) -> None:
    suspects, now = Suspects(100), 100.0
    monkeypatch.setattr("gantline.worker.suspects.monotonic", lambda: now)
    assert suspects.next_group == _ALL
    runs = [make_run(crashes=number, token=uuid4()) for number in crashes]
    suspects.add([make_run(), *runs])
    now += seconds
    assert suspects.next_group == expected
    suspects.remove([run.ref for run in runs])
    assert suspects.next_group == _ALL


async def test_suspects_do_not_wait_for_one_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gantline.worker.suspects.GROUP_SECONDS", 0.0)
    monkeypatch.setattr("gantline.worker.claimer._SUSPECTS_SECONDS", 0.01)
    clock = FakeClock()
    place = Place(MemoryStore(clock=clock), clock)
    await place.suspect("hangs", crashes=3)
    async with place.worker():
        while len(place.started) < 1:
            await place.has_started.wait()
        place.has_started.clear()
        await place.suspect("bystander")
        await place.has_started.wait()
        assert place.started == ["hangs", "bystander"]
        place.may_end.set()


@pytest.mark.parametrize("names", [("limited",), ("limited", "older name", "oldest name")])
async def test_suspects_of_a_limited_type_run_in_every_queue_and_by_every_name(
    names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gantline.worker.claimer._SUSPECTS_SECONDS", 0.01)
    clock = FakeClock()
    app = Gantline(store := MemoryStore(clock=clock))
    queues = ("a", "b", "c")

    @app.job("limited", concurrency=1, aliases=names[1:])
    async def limited(value: int) -> None: ...

    async with app:
        prepared = [limited.prepare(1, queue=queue) for queue in queues for _ in names]
        jobs = [
            msgspec.structs.replace(new, job=msgspec.structs.replace(new.job, job_type=name))
            for new, name in zip(prepared, names * len(queues), strict=True)
        ]
        await store.insert(jobs)
        await register_sessions(store, "crashed")
        for _ in range(SUSPECT_AFTER_CRASHES):
            asked = [LaneRequest(queue, names, 10) for queue in queues]
            assert len(await store.claim("crashed", uuid4(), asked, lease=_LEASE)) == len(jobs)
            await store.expire_session("crashed")
            await Reaper(store).run_once(["crashed"])
            clock.advance(_BACKOFF)
        settings = WorkerSettings(queues=dict.fromkeys(queues, 5), maintain_every=None)
        async with app.running(settings), asyncio.timeout(20):
            for new in jobs:
                await limited.handle(new.job.job_id).wait()


async def test_a_worker_whose_suspects_hold_up_others_is_unready_and_says_why() -> None:
    clock = FakeClock()
    place = Place(MemoryStore(clock=clock), clock)
    await place.suspect("first", "second", crashes=3)
    async with place.worker() as worker:
        while len(place.started) < 2:
            place.has_started.clear()
            await place.has_started.wait()
        assert worker.trouble() is None
        held_up = "others of them may wait"
        assert held_up in (worker.trouble(timedelta(0)) or "")
        place.may_end.set()
        while held_up in (worker.trouble(timedelta(0)) or ""):  # noqa: ASYNC110  # in the worker
            await asyncio.sleep(0)


async def test_suspects_get_a_slot_while_other_jobs_would_take_every_one() -> None:
    clock = FakeClock()
    place = Place(MemoryStore(clock=clock), clock)
    runs = 0

    @place.app.job("endless")
    async def endless() -> None:
        nonlocal runs
        runs += 1
        await asyncio.sleep(0.001)
        await endless.submit(None)

    ids = await place.suspect("suspect", is_due=False)
    place.may_end.set()
    for _ in range(40):
        await endless.submit(None)
    async with place.worker():
        while runs < 40:  # noqa: ASYNC110  # in the worker
            await asyncio.sleep(0.01)
        clock.advance(_BACKOFF)
        await place.has_started.wait()
        assert place.started == ["suspect"]
    assert (await place.found(ids))[0].crashes == SUSPECT_AFTER_CRASHES


async def test_who_was_in_many_crashes_runs_alone() -> None:
    clock = FakeClock()
    place = Place(MemoryStore(clock=clock), clock)
    await place.suspect("first", "second", crashes=_ALONE)
    await place.handle.submit("plain")
    async with place.worker() as worker:
        await place.has_started.wait()
        assert len(place.started) == 1
        assert worker.slots == {"default": (10, 9)}, "and no more is claimed than runs"
        place.may_end.set()
        while len(place.started) < 3:
            place.has_started.clear()
            await place.has_started.wait()
    assert not await released(place.store)


async def test_a_worker_in_which_a_suspect_runs_alone_is_unready_and_says_why() -> None:
    clock = FakeClock()
    place = Place(MemoryStore(clock=clock), clock)
    await place.suspect("suspect", crashes=_ALONE)
    async with place.worker() as worker:
        await place.has_started.wait()
        assert worker.trouble(timedelta(0)) == "A job that may have crashed workers runs alone."
        place.may_end.set()


async def test_the_lease_of_a_suspect_is_kept_while_it_waits_for_the_others() -> None:
    clock, claims = FakeClock(), Gate("claim")
    store = Renewing(clock)
    place = Place(store, clock, claims)
    async with place.worker() as worker:
        (suspect,) = await place.suspect_beside_another(worker, claims)
        store.renewed[suspect] = asyncio.Event()
        await store.renewed[suspect].wait()
        assert place.started == ["plain"]
        place.has_started.clear()
        place.may_end.set()
        await place.has_started.wait()
        assert place.started == ["plain", "suspect"]


async def test_a_suspect_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it runs beside the others, and nobody is blamed for a crash."""
    monkeypatch.setattr("gantline.worker.runs._ALONE_AFTER_SECONDS", 0.05)
    clock, claims = FakeClock(), Gate("claim")
    place = Place(MemoryStore(clock=clock), clock, claims)
    async with place.worker() as worker:
        await place.suspect_beside_another(worker, claims)
        place.has_started.clear()
        await place.has_started.wait()
        assert place.started == ["plain", "suspect"]
        place.may_end.set()


async def test_a_suspect_that_waits_for_the_others_is_given_back_at_a_stop() -> None:
    clock, claims = FakeClock(), Gate("claim")
    place = Place(MemoryStore(clock=clock), clock, claims)
    async with place.worker() as worker:
        ids = await place.suspect_beside_another(worker, claims)
    (job,) = await place.found(ids)
    assert (job.status, job.crashes, job.attempt) == (JobStatus.QUEUED, _ALONE, 0)
    assert place.started == ["plain"]


async def released(store: JobStore) -> list[LogEntry]:
    """The rows of runs that were claimed and given back."""
    found = await store.events(after=0, limit=1000)
    return [event.entry for event in found if event.entry.event is Event.RELEASED]


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


async def test_what_a_stop_gives_back_is_not_brought_again_by_a_claim_under_way() -> None:
    clock, claims = FakeClock(), Gate("claim")
    claims.is_shut = False
    place = Place(MemoryStore(clock=clock), clock, claims)
    async with place.worker() as worker:
        await place.handle.submit("job")
        await place.has_started.wait()
        claims.is_shut = True
        worker._claimer.wake()
        await claims.reached.wait()
        worker.stop()
        asyncio.get_running_loop().call_later(0.05, claims.may_go_on.set)
    assert len(await released(place.store)) == 1


async def test_a_run_that_is_stopped_before_its_first_turn_goes_back_at_once() -> None:
    jobs = Gantline(MemoryStore(clock=FakeClock()))
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

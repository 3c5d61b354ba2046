"""JobsTest: try an application's jobs without a worker process, on a clock that the test moves.

async with JobsTest(jobs) as kit:
    await place_order(...)                                  # code that submits
    order = (await kit.submitted(ship)).one()
    assert order.payload == Order("o-1")
    assert (await kit.drain()).completed == 1               # run what is due, call consumers
    (shipped,) = await kit.emitted("ORDER_SHIPPED")         # what handlers have emitted
    kit.clock.advance(timedelta(hours=1))                   # retries, delays, leases
    await kit.fire()                                        # what schedules have made due
    await kit.run_for(timedelta(days=1))                    # as with a worker that lives
"""

import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from uuid import uuid4

import msgspec

from gantline.app.gantline import Gantline
from gantline.app.job_type import JobType
from gantline.contract.job_event import DomainEvent, emitted_with
from gantline.contract.query import Cursor, JobFilter, LaneRequest
from gantline.contract.snapshot import JobSnapshot, Run
from gantline.contract.status import Event, JobStatus
from gantline.contract.store import JobStore
from gantline.manager.manager import Ending
from gantline.manager.reaper import Reaper
from gantline.stores.sqlite import SqliteStore
from gantline.stores.sqlite.location import Location
from gantline.testing.clock import FakeClock
from gantline.testing.factories import register_sessions
from gantline.testing.faults import Call, Crash, intercepted
from gantline.testing.listening import Listening
from gantline.testing.schedules import DueSchedules
from gantline.worker.context import StoreRunPort
from gantline.worker.deadlines import Deadlines
from gantline.worker.executor import Executor
from gantline.worker.processes import ProcessPool
from gantline.worker.threads import HandlerThreads

_SESSION: Final = "jobs-test"
_LEASE: Final = timedelta(seconds=60)
_PAGE: Final = 200


class SubmittedJob(msgspec.Struct, frozen=True):
    """A job that was submitted: its payload, as its type has it, and the job as it stands."""

    payload: Any
    """Several arguments are its attributes."""
    status: JobSnapshot


class SubmittedJobs:
    """The jobs of one type, in the order in which they were submitted."""

    def __init__(self, job_type: str, jobs: Sequence[SubmittedJob]) -> None:
        self._job_type = job_type
        self.all = tuple(jobs)

    def __len__(self) -> int:
        return len(self.all)

    @property
    def payloads(self) -> list[Any]:
        return [job.payload for job in self.all]

    def one(self) -> SubmittedJob:
        """The only one; an AssertionError says what was there instead."""
        if len(self.all) != 1:
            raise AssertionError(
                f"{len(self.all)} jobs of type {self._job_type!r} were submitted: {self.payloads}"
            )
        return self.all[0]


class Drained(msgspec.Struct):
    """How the runs of one drain ended."""

    completed: int = 0
    failed: int = 0
    retried: int = 0
    poisoned: int = 0
    snoozed: int = 0
    cancelled: int = 0

    @property
    def runs(self) -> int:
        return sum(getattr(self, name) for name in self.__struct_fields__)

    def count(self, event: Event) -> None:
        if event.value in self.__struct_fields__:
            setattr(self, event.value, getattr(self, event.value) + 1)


class JobsTest:
    """Gives an application a store of its own for a test, and plays its worker.

    The store is a SQLite file in a temporary folder, so that `connection=` works in earnest: what
    the test's transaction rolls back was never submitted. `path` is where to connect. The schedules
    of the code are in it, counted from `now`, where the clock begins.
    """

    most_runs: int = 10_000
    """How many jobs may be run in one go; more are a test that does not end."""

    def __init__(self, app: Gantline, *, inline: bool = False, now: datetime | None = None) -> None:
        self._app = app
        self._inline = inline
        self._folder = tempfile.TemporaryDirectory(prefix="gantline-jobs-test-")
        self.path = Path(self._folder.name) / "gantline.db"
        self.clock = FakeClock() if now is None else FakeClock(now)
        self._schedules = DueSchedules(app)
        self._before = (app.store_source, app.clock, app.trigger)
        self._around: Callable[[str, Call], Any] | None = None
        self._listening = Listening(app, _SESSION)

    async def __aenter__(self) -> "JobsTest":
        location = Location(self.path, sync="normal")
        store: JobStore = SqliteStore(location, clock=self.clock)
        wrapped = intercepted(store, self._pass_through)
        self._app.move_to(wrapped, clock=self.clock, trigger="")
        self._app.after_submit = self._drain_if_inline
        await self._app.__aenter__()
        await register_sessions(wrapped, _SESSION)
        await self._schedules.store_declared()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._app.close()
        self._app.after_submit = None
        source, clock, trigger = self._before
        self._app.move_to(source, clock=clock, trigger=trigger)
        self._folder.cleanup()

    # -- looking ----------------------------------------------------------------------------------

    async def submitted(self, job_type: JobType[..., Any]) -> SubmittedJobs:
        """What was submitted of a type, committed and not rolled back."""
        job_filter = JobFilter(tenant_id=None, job_types=frozenset({job_type.name}))
        found = reversed(await self._found(job_filter))
        codec = job_type.handler.codec
        jobs = [SubmittedJob(codec.decode(bytes(job.job.payload)), job) for job in found]
        return SubmittedJobs(job_type.name, jobs)

    async def emitted(self, *event_types: str) -> list[DomainEvent]:
        """What runs have emitted (`ctx.emit`), of these types or of all, in order."""
        return await self._emitted(event_types, is_audit=False)

    async def audited(self, *actions: str) -> list[DomainEvent]:
        """Likewise what they want audited (`ctx.audit`)."""
        return await self._emitted(actions, is_audit=True)

    async def _emitted(self, types: Sequence[str], *, is_audit: bool) -> list[DomainEvent]:
        found: list[DomainEvent] = []
        position, store = 0, self._app.store
        while page := await store.events(after=position, limit=_PAGE):
            jobs = await store.get([row.entry.job_id for row in page], tenant_id=None)
            for row, job in zip(page, jobs, strict=True):
                if job is not None:
                    found += emitted_with(row.sequence, job.job, row.entry)
            position = page[-1].sequence
        return [
            event
            for event in found
            if event.emitted.is_audit is is_audit and (not types or event.type in types)
        ]

    async def _found(self, job_filter: JobFilter) -> list[JobSnapshot]:
        """All of them, the newest first."""
        found: list[JobSnapshot] = []
        after: Cursor | None = None
        while True:
            page = await self._app.store.find(job_filter, limit=_PAGE, after=after)
            found += page.items
            if page.next is None:
                return found
            after = page.next

    # -- running ----------------------------------------------------------------------------------

    async def drain(self) -> Drained:
        """Run what is due, one job after the other, call consumers (`@jobs.on`) with its events,
        and run what follows from that, until nothing is due and all events are delivered.

        What a consumer raises is raised here; the next drain gives it the same event again.
        """
        drained = Drained()
        async with self._executor() as executor:
            await self._drain_into(drained, executor)
        return drained

    async def fire(self) -> int:
        """Submit what is due by schedules, as after a downtime where much is; count the jobs."""
        fired = await self._schedules.fire()
        if fired:
            await self._drain_if_inline()
        return fired

    async def run_for(self, span: timedelta) -> Drained:
        """Let time pass with a worker that lives: schedules fire and jobs run when they are due."""
        drained, end = Drained(), self.clock.now() + span
        async with self._executor() as executor:
            while True:
                await self._schedules.fire()
                await self._drain_into(drained, executor)
                now = self.clock.now()
                following = [at for at in await self._next_due() if now < at <= end]
                self.clock.advance(min(following, default=end) - now)
                if not following:
                    return drained

    async def _next_due(self) -> list[datetime]:
        """When the next of the schedules is due, and the jobs that wait."""
        waiting = JobFilter(tenant_id=None, statuses=frozenset({JobStatus.QUEUED}))
        of_jobs = [job.run_at for job in await self._found(waiting) if job.run_at is not None]
        of_schedules = await self._schedules.next_due(self.clock.now())
        return of_jobs if of_schedules is None else [*of_jobs, of_schedules]

    async def _drain_into(self, drained: Drained, executor: Executor) -> None:
        for _ in range(self.most_runs - drained.runs):
            while not (runs := await self._claim_one()):
                if not await self._listening.deliver():
                    return
            drained.count(await self._run(executor, runs[0]))
        raise AssertionError(f"after {self.most_runs} runs there are still jobs due")

    async def _claim_one(self) -> list[Run]:
        types, logged = self._app.registry.job_types, self._app.registry.logging(Event.STARTED)
        for queue in await self._queues():
            for suspects in ((), (1,)):
                requests = [LaneRequest(queue, types, 1, logged, suspects=suspects)]
                if runs := await self._app.store.claim(_SESSION, uuid4(), requests, lease=_LEASE):
                    return runs
        return []

    async def _queues(self) -> list[str]:
        return sorted({lane.queue for lane in await self._app.store.counts(tenant_id=None)})

    async def _run(self, executor: Executor, run: Run) -> Event:
        active = executor.resolve(run, self.clock.now())
        if active is None:
            raise AssertionError(f"nothing handles {run.job.job_type!r}")
        outcome = await executor.run(active)
        if active.context.is_settled:
            return Event.COMPLETED
        if outcome is None:
            raise AssertionError(f"the run of {run.job.job_id} was lost")
        (settled,) = await self._app.manager.settle([Ending(active.run_as_known, outcome)])
        return settled.transition.event

    @asynccontextmanager
    async def _executor(self) -> AsyncIterator[Executor]:
        processes, deadlines, threads = ProcessPool(), Deadlines(), HandlerThreads()
        async with self._app.opened_lifespan() as state:
            yield Executor(
                self._app.registry,
                StoreRunPort(
                    self._app.store,
                    self._app.manager,
                    self._app.find_type,
                    audits=any(one.of_audit for one in self._app.consumers),
                ),
                threads=threads,
                processes=processes,
                deadlines=deadlines,
                hooks=self._app.hooks,
                state=state,
            )
        deadlines.close()
        threads.close()
        await processes.close()

    async def _drain_if_inline(self) -> None:
        if self._inline:
            await self.drain()

    # -- breaking ---------------------------------------------------------------------------------

    def crash_after(self, verb: str) -> None:
        """Let the process "die" right after the next such store call: Crash is raised."""
        self._around = _crashing(verb, self._stop_crashing)

    def _stop_crashing(self) -> None:
        self._around = None

    async def _pass_through(self, verb: str, call: Call) -> Any:
        if self._around is None:
            return await call()
        return await self._around(verb, call)

    async def expire_leases(self) -> None:
        """Let time pass until crashed runs are taken over, backoff included."""
        self.clock.advance(_LEASE + timedelta(seconds=1))
        await Reaper(self._app.store).run_once()
        self.clock.advance(timedelta(minutes=1))


def _crashing(verb: str, done: Callable[[], None]) -> Callable[[str, Call], Any]:
    async def around(name: str, call: Call) -> Any:
        answer = await call()
        if name == verb:
            done()
            raise Crash(f"after {verb}")
        return answer

    return around

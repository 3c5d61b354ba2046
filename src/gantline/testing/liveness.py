"""The liveness oracle: watches a store and its workers from outside, and lists what broke a rule.

    async with watching(store, readiness=[of_port(8081)], within=timedelta(seconds=5)) as oracle:
        ...  # submit jobs, kill workers
    oracle.check()

Liveness: a due job starts within the given time, or every worker is unready and says why. Jobs
count whose queue and type a registered worker serves, and that are neither paused nor disabled. The
time includes what a job waits for a free slot. With `backlog`, where more is due than can run, a
job may wait as long as others of its queue and type end within the time.

Economy: without a fault, each run that was started ended by what its handler did. A run that
crashed, was given back or was taken over did work for nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Final

import msgspec

from gantline.contract.errors import StoreUnavailable
from gantline.contract.job import Job
from gantline.contract.query import Cursor, JobFilter, LaneCounts
from gantline.contract.snapshot import JobSnapshot, LogEntry
from gantline.contract.status import Event, Reason
from gantline.contract.store import JobStore
from gantline.manager.sessions import live_sessions
from gantline.manager.switches import Switches
from gantline.telemetry.health import Check
from gantline.testing.readiness import Readiness

Pause = Callable[[float], Awaitable[object]]

_JOBS_PER_PAGE: Final = 500
_ENDS: Final = frozenset(
    {Event.COMPLETED, Event.FAILED, Event.RETRIED}
    | {Event.SNOOZED, Event.POISONED, Event.CANCELLED}
)


class WaitedTooLong(msgspec.Struct, frozen=True, kw_only=True):
    """A lane had a due job that did not start, although a worker was ready or gave no reason."""

    queue: str
    job_type: str
    due_at: datetime
    seconds: float
    readiness: tuple[Check, ...]

    def __str__(self) -> str:
        said = "; ".join(_said(check) for check in self.readiness) or "no worker was asked"
        lane = f"{self.job_type} in queue {self.queue}"
        return f"{lane}: due since {self.due_at}, not started for {self.seconds:.1f} s ({said})"


class RanForNothing(msgspec.Struct, frozen=True, kw_only=True):
    """A job had more runs than its handler ended."""

    job: Job
    runs: int
    events: tuple[Event, ...]

    def __str__(self) -> str:
        log = ", ".join(self.events) or "nothing"
        return f"{self.job.job_type} {self.job.job_id}: {self.runs} runs, and its history has {log}"


Violation = WaitedTooLong | RanForNothing


class LivenessOracle:
    """Collects violations, one sample at a time. Time is the store's."""

    def __init__(
        self,
        store: JobStore,
        *,
        readiness: Sequence[Readiness],
        within: timedelta,
        backlog: bool = False,
        lanes: Collection[tuple[str, str]] | None = None,
    ) -> None:
        """`lanes` are the queues and types to watch where no worker registers itself."""
        self._store = store
        self._readiness = readiness
        # Counts may show a job as waiting that has just started.
        self._within = within + store.capabilities.count_staleness
        self._backlog = backlog
        self._lanes = lanes
        self._moved: dict[tuple[str, str], tuple[int, datetime]] = {}
        self._switches = Switches(store)
        self._excused_until: datetime | None = None
        self._was_away = True
        self._late: dict[tuple[str, str, datetime], WaitedTooLong] = {}
        self._wasted: list[RanForNothing] = []
        self.samples = 0

    @property
    def violations(self) -> list[Violation]:
        return [*self._late.values(), *self._wasted]

    def check(self) -> None:
        """Raise AssertionError with every violation."""
        assert self.samples, "the store was never read, so nothing is proven"
        assert not self.violations, "\n".join(map(str, self.violations))

    async def sample(self) -> None:
        """Look once. While the store does not answer, no job is expected to start."""
        checks = tuple(await asyncio.gather(*(ask() for ask in self._readiness)))
        try:
            now = await self._store.ping()
            lanes = await self._watched_lanes()
        except StoreUnavailable:
            self._was_away = True
            return
        self.samples += 1
        if self._was_away or (checks and all(not one.ok and one.message for one in checks)):
            self._excused_until, self._was_away = now, False
        for lane in lanes:
            self._judge(lane, now, checks)

    async def check_economy(self) -> None:
        """Read the history of every job, then `check`. Only for a time without faults."""
        after: Cursor | None = None
        while True:
            every_job = JobFilter(tenant_id=None)
            page = await self._store.find(every_job, limit=_JOBS_PER_PAGE, after=after)
            for job in page.items:
                if job.run is not None or not job.fence:  # it runs still, or was never started
                    continue
                log = await self._store.history(job.job.job_id, tenant_id=None)
                if _runs_for_nothing(job, log):
                    events = tuple(row.event for row in log)
                    self._wasted.append(RanForNothing(job=job.job, runs=job.fence, events=events))
            if (after := page.next) is None:
                break
        self.check()

    async def _watched_lanes(self) -> list[LaneCounts]:
        await self._switches.refresh(max_age_seconds=0)
        if self._switches.closed is not None:
            return []
        stopped = self._switches.paused_types | self._switches.disabled_types
        served = set(self._lanes or ())
        if self._lanes is None:
            for session in await live_sessions(self._store):
                served |= {(queue, kind) for queue in session.queues for kind in session.job_types}
        return [
            lane
            for lane in await self._store.counts(tenant_id=None)
            if (lane.queue, lane.job_type) in served
            and lane.queue not in self._switches.paused_queues
            and lane.job_type not in stopped
        ]

    def _judge(self, lane: LaneCounts, now: datetime, checks: tuple[Check, ...]) -> None:
        moved_at = self._moved_at(lane, now)
        if lane.oldest_due_at is None:
            return
        since = max(lane.oldest_due_at, self._excused_until or lane.oldest_due_at)
        if self._backlog:
            since = max(since, moved_at)
        if now - since > self._within:
            key = (lane.queue, lane.job_type, lane.oldest_due_at)
            self._late[key] = WaitedTooLong(
                queue=lane.queue,
                job_type=lane.job_type,
                due_at=lane.oldest_due_at,
                seconds=(now - since).total_seconds(),
                readiness=checks,
            )

    def _moved_at(self, lane: LaneCounts, now: datetime) -> datetime:
        """When a job of the lane was last seen to have ended."""
        ended = lane.completed + lane.failed + lane.poisoned + lane.cancelled
        before, moved_at = self._moved.get((lane.queue, lane.job_type), (ended, now))
        if ended != before:
            moved_at = now
        self._moved[lane.queue, lane.job_type] = ended, moved_at
        return moved_at


@asynccontextmanager
async def watching(
    store: JobStore,
    *,
    readiness: Sequence[Readiness] = (),
    within: timedelta,
    backlog: bool = False,
    lanes: Collection[tuple[str, str]] | None = None,
    every: timedelta = timedelta(seconds=0.5),
    pause: Pause = asyncio.sleep,
) -> AsyncIterator[LivenessOracle]:
    """Sample as long as the block lasts, and once at its end; `check` is left to the caller.

    An error that ends the block is given the violations so far as notes.
    """
    oracle = LivenessOracle(store, readiness=readiness, within=within, backlog=backlog, lanes=lanes)

    async def sample_for_ever() -> None:
        while True:
            await oracle.sample()
            await pause(every.total_seconds())

    sampling = asyncio.create_task(sample_for_ever())
    try:
        yield oracle
    except BaseException as error:
        # Often a timeout, because something stood still: say what.
        for violation in oracle.violations:
            error.add_note(str(violation))
        raise
    finally:
        sampling.cancel()
        await asyncio.wait({sampling})
    if not sampling.cancelled():
        sampling.result()
    await oracle.sample()


def _said(check: Check) -> str:
    return check.message or ("ready" if check.ok else "not ready, without a reason")


def _runs_for_nothing(job: JobSnapshot, log: Sequence[LogEntry]) -> int:
    """How many runs ended by anything but their handler."""
    ended = {row.fence for row in log if row.event in _ENDS and row.reason != Reason.LEASE_EXPIRED}
    return job.fence - len(ended - {0})

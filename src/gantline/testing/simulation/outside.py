"""What is seen from outside of all processes, and is in no history: lives, leases, the clock."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

import msgspec

from gantline.contract.results import Applied, InsertResult, Renewal
from gantline.contract.snapshot import Run, RunRef
from gantline.contract.store import JobStore
from gantline.contract.submission import NewJob
from gantline.schedules.schedule import ScheduleRecord
from gantline.testing.simulation.script import Trouble
from gantline.testing.simulation.world import Process, World, wall_clock_at

_LONGEST_LOOK_SECONDS: Final = 30.0
"""So old may be what a process knows of the clock."""


class Life(msgspec.Struct):
    """A process, from its start to its end."""

    began: float
    asked_to_stop: float | None = None
    ended: float | None = None
    in_order: bool = False
    """It was asked to stop, and its main task came to its end."""


class Lease(NamedTuple):
    """One time that the store gave or renewed a lease, by the virtual time."""

    at: float
    until: float


class Outside:
    """Watches a run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.lives: dict[str, Life] = {}
        """By the label of the process."""
        self.leases: dict[UUID, list[Lease]] = defaultdict(list)
        """By the token of the run, in their order."""
        self.instants: dict[tuple[str, datetime], set[UUID]] = defaultdict(set)
        """By schedule and instant, the jobs that were stored for it."""
        self.fires: list[UUID] = []
        """Jobs that schedules say they have submitted."""
        self.schedules: list[tuple[ScheduleRecord, datetime]] = []
        """Schedules, and when they were looked at."""
        self._stood_still: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self._away: list[list[float]] = []
        """When the store was closed, or refused calls other than those that end runs."""
        self._clock: list[tuple[float, timedelta]] = [(0.0, timedelta(0))]
        """Since when the clock was how far off."""

    # -- while it runs ----------------------------------------------------------------------------

    def watched(self, store: JobStore) -> JobStore:
        """The store, with its leases seen when it gives them: what a caller cannot know."""
        return cast("JobStore", _Watched(store, self))

    def note_start(self, process: Process) -> None:
        self.lives[process.label] = Life(self._world.now)

    def note_stop(self, process: Process) -> None:
        life = self.lives[process.label]
        if life.asked_to_stop is None:
            life.asked_to_stop = self._world.now

    def note_end(self, process: Process, *, in_order: bool = False) -> None:
        life = self.lives.get(process.label)
        if life is not None and life.ended is None:
            life.ended, life.in_order = self._world.now, in_order

    def note_lease(self, token: UUID, lease: timedelta) -> None:
        now = self._world.now
        self.leases[token].append(Lease(now, now + lease.total_seconds()))

    def note_claimed(self, run: Run) -> None:
        """A claim that is repeated does not renew what it gives."""
        self.note_lease(run.token, run.lease_until - self._world.wall_clock())

    def note_trouble(self, trouble: Trouble, process: Process | None) -> None:
        now = self._world.now
        if trouble.what in ("jump", "reboot"):
            self._clock.append((now, self._world.jumped_by))
        elif trouble.what == "refuse" and trouble.verb != "apply":
            self._away.append([now, now + trouble.seconds])
        elif trouble.what in ("freeze", "block") and process is not None:
            self._stood_still[process.label].append((now, now + trouble.seconds))

    @contextmanager
    def closed(self) -> Iterator[None]:
        """The store is closed in this block; where the block fails, nobody knows for how long."""
        span = [self._world.now, float("inf")]
        self._away.append(span)
        yield
        span[1] = self._world.now

    def note_schedule(self, record: ScheduleRecord) -> None:
        self.fires += [fire.job_id for fire in record.fires if fire.job_id is not None]
        self.schedules.append((record, self._world.wall_clock()))

    # -- afterwards -------------------------------------------------------------------------------

    def stood_still(self, label: str, first: float, last: float) -> bool:
        return any(began < last and first < ended for began, ended in self._stood_still[label])

    def was_closed(self, first: float, last: float) -> bool:
        """Whether the store was closed, or refused calls, by the virtual time."""
        return any(began < last and first < ended for began, ended in self._away)

    def was_away(self, first: datetime, last: datetime) -> bool:
        """Whether the store did not take everything in this time; where the clock was never set."""
        return any(
            wall_clock_at(began) < last and (ended == float("inf") or first < wall_clock_at(ended))
            for began, ended in self._away
        )

    def has_jumped(self, first: float, last: float) -> bool:
        return any(first <= at <= last for at, _ in self._clock)

    def latest_clock(self, at: float) -> datetime:
        """The latest that a process may have seen on the clock shortly before."""
        known = [off for since, off in self._clock if since <= at]
        before = sum(since < at - _LONGEST_LOOK_SECONDS for since, _ in self._clock)
        return wall_clock_at(at) + max(known[max(0, before - 1) :])


class _Watched:
    """Stands for a store. Asks nothing, changes nothing."""

    def __init__(self, store: JobStore, outside: Outside) -> None:
        self._store = store
        self._outside = outside

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def insert(self, jobs: Sequence[NewJob]) -> list[InsertResult]:
        results = await self._store.insert(jobs)
        for new, result in zip(jobs, results, strict=True):
            job = new.job
            name, at = job.correlation_id, job.scheduled_at
            if at and name.startswith("schedule:") and isinstance(result, Applied):
                self._outside.instants[name, at].add(job.job_id)
        return results

    async def claim(self, *args: Any, lease: timedelta) -> list[Run]:
        runs = await self._store.claim(*args, lease=lease)
        for run in runs:
            self._outside.note_claimed(run)
        return runs

    async def renew(self, session: str, runs: Sequence[RunRef], *, lease: timedelta) -> Renewal:
        renewal = await self._store.renew(session, runs, lease=lease)
        for token in {run.token for run in runs} - {*renewal.lost}:
            self._outside.note_lease(token, lease)
        return renewal

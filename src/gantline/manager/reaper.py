"""The reaper: takes runs whose lease has run out away from workers that are taken to be dead.

A worker that dies takes all its runs along, and only one of them may be why. So a crash is the
job's own fault only where its run was the only one; otherwise it makes the job more suspect, and
suspects run in ever smaller groups until one runs alone. See `docs/concepts/crashes.md`.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from gantline.contract.outcome import LeaseLost
from gantline.contract.policy import DEFAULT_POLICY, Policy
from gantline.contract.query import Cursor, JobFilter
from gantline.contract.records import RecordWrite
from gantline.contract.snapshot import CurrentRun, LogEntry, Run
from gantline.contract.status import Event, JobStatus, Reason
from gantline.contract.store import JobStore
from gantline.manager.manager import Ending, JobManager, Settled
from gantline.manager.observer import Observer
from gantline.manager.records import all_records
from gantline.runtime import monotonic, random

_log = logging.getLogger("gantline.manager")

CRASH_BUDGETS: Final = "crash-budgets"
"""`max_crashes` by type, where it is not the default: the reaper knows no code."""

_PAGE: Final = 200
_RUNNING: Final = JobFilter(tenant_id=None, statuses=frozenset({JobStatus.RUNNING}))
# Sessions that end within this time of each other have ended together.
_TOGETHER_SECONDS: Final = 5.0
# A job that was in more crashes than this is suspect even if workers always end together: it may
# be what ends them, for instance by the memory limit that they share.
_MOST_FORGIVEN: Final = 5
_REMEMBERED: Final = 1000


class Reaped(msgspec.Struct, frozen=True):
    """What one sweep did; `skipped` runs were renewed or ended by their worker just in time."""

    requeued: int = 0
    poisoned: int = 0
    cancelled: int = 0
    skipped: int = 0

    @property
    def ended(self) -> int:
        """How many runs were taken away, whatever became of their jobs."""
        return self.requeued + self.poisoned + self.cancelled


class _Ended(NamedTuple):
    """A session that has ended, and from when to when it held the runs it was found with."""

    seen_at: float
    first: datetime
    last: datetime


class Reaper:
    """Sweep expired leases. Needs only what is stored, never a handler."""

    def __init__(
        self,
        store: JobStore,
        *,
        lease: timedelta = timedelta(0),
        jitter: Callable[[], float] = random,
        observer: Observer | None = None,
    ) -> None:
        """`lease`: that of the workers; what has less than a third of it left is overdue."""
        self._store = store
        self._lease = lease
        self._budgets: Mapping[str, int] = {}
        self._manager = JobManager(
            store, policy_for=self._policy_for, jitter=jitter, observer=observer
        )
        self._ended: dict[str, _Ended] = {}
        self._taken: deque[Run] = deque(maxlen=_REMEMBERED)
        """The last runs that were taken away."""

    async def run_once(self, sessions: Collection[str] | None = None) -> Reaped:
        """Take away all expired runs; where sessions are named, only theirs."""
        runs = [run for run in await self._expired() if sessions is None or run.session in sessions]
        if not runs:
            return Reaped()
        self._budgets = await crash_budgets(self._store)
        lost = await self._judge(runs)
        settled: list[Settled] = []
        for first in range(0, len(runs), _PAGE):
            page = runs[first : first + _PAGE]
            settled += await self._manager.settle([Ending(run, lost[run.token]) for run in page])
        _report(runs, settled)
        ended = [answer.transition.to for answer in settled if answer.accepted]
        return Reaped(
            requeued=ended.count(JobStatus.QUEUED),
            poisoned=ended.count(JobStatus.POISONED),
            cancelled=ended.count(JobStatus.CANCELLED),
            skipped=len(settled) - len(ended),
        )

    async def _expired(self) -> list[Run]:
        """Page by page until nothing is left, so that no page can hide what comes after it."""
        found: list[Run] = []
        after: UUID | None = None
        while runs := await self._store.expired(limit=_PAGE, after=after):
            after = runs[-1].job.job_id
            found += runs
        return found

    # -- whose fault it is ------------------------------------------------------------------------

    async def _judge(self, runs: list[Run]) -> dict[UUID, LeaseLost]:
        leases = await self._leases()
        together = self._ended_together(runs, leases)
        held = Counter(lease.session for lease in leases) | Counter(run.session for run in runs)
        held += Counter(one.session for one in self._taken)  # its leases do not end all at once
        self._taken += runs
        return {
            run.token: await self._verdict(run, run.session in together, held[run.session] == 1)
            for run in runs
        }

    async def _leases(self) -> list[CurrentRun]:
        """All that is running, also what still has its lease."""
        found: list[CurrentRun] = []
        after: Cursor | None = None
        while True:
            page = await self._store.find(_RUNNING, limit=_PAGE, after=after)
            found += [job.run for job in page.items if job.run is not None]
            after = page.next
            if after is None:
                return found

    def _ended_together(self, runs: list[Run], leases: list[CurrentRun]) -> set[str]:
        """Sessions that ended beside others: the store, the host or the network failed, not a job.

        One that was started after another had ended is not beside it.
        """
        now = monotonic()
        self._ended = {
            name: one for name, one in self._ended.items() if now - one.seen_at < _TOGETHER_SECONDS
        }
        for run in runs:
            known = self._ended.get(run.session, _Ended(now, run.started_at, run.lease_until))
            self._ended[run.session] = _Ended(
                now, min(known.first, run.started_at), max(known.last, run.lease_until)
            )
        for lease in self._overdue(runs, leases):
            self._ended.setdefault(lease.session, _Ended(now, lease.started_at, lease.lease_until))
        return {run.session for run in runs if self._has_company(run.session)}

    def _overdue(self, runs: list[Run], leases: list[CurrentRun]) -> list[CurrentRun]:
        """Runs that should have been renewed long ago: their workers have ended too, it seems."""
        latest: dict[str, CurrentRun] = {}
        for lease in leases:
            known = latest.get(lease.session)
            if known is None or known.lease_until < lease.lease_until:
                latest[lease.session] = lease
        soon = max(run.lease_until for run in runs) + self._lease / 3
        return [lease for lease in latest.values() if lease.lease_until < soon]

    def _has_company(self, session: str) -> bool:
        mine = self._ended[session]
        return any(
            other != session and one.first <= mine.last and mine.first <= one.last
            for other, one in self._ended.items()
        )

    async def _verdict(self, run: Run, together: bool, alone: bool) -> LeaseLost:
        if not (together or alone):
            return LeaseLost()
        crashes = _since_redriven(await self._store.history(run.job.job_id, tenant_id=None))
        if together:
            return LeaseLost(counts=len(crashes) >= _MOST_FORGIVEN)
        before = sum(row.reason == Reason.CRASHED_ALONE for row in crashes)
        return LeaseLost(times_alone=before + 1)

    def _policy_for(self, job_type: str) -> Policy:
        """The defaults, but for the budget: other strategies are code, which is not here."""
        budget = self._budgets.get(job_type)
        if budget is None:
            return DEFAULT_POLICY
        return msgspec.structs.replace(DEFAULT_POLICY, max_crashes=budget)


def _report(runs: list[Run], settled: list[Settled]) -> None:
    """One line for each worker that has ended, and one for each job that is given up."""
    taken = [run for run, answer in zip(runs, settled, strict=True) if answer.accepted]
    for session, count in Counter(run.session for run in taken).items():
        first = next(run for run in taken if run.session == session)
        more = f" and {count - 1} more" if count > 1 else ""
        _log.warning(
            "worker %s has ended or does not answer; taken from it: job %s%s",
            *(session, first.job.job_id, more),
        )
    for run, answer in zip(runs, settled, strict=True):
        if answer.accepted and answer.transition.to is JobStatus.POISONED:
            _log.warning(
                "job %s is poisoned: its worker crashed too often while it ran alone",
                run.job.job_id,
            )


def _since_redriven(history: list[LogEntry]) -> list[LogEntry]:
    """The crashes that count: a redrive makes all budgets fresh."""
    crashes: list[LogEntry] = []
    for row in history:
        if row.event is Event.REDRIVEN:
            crashes.clear()
        elif row.event is Event.CRASHED:
            crashes.append(row)
    return crashes


async def crash_budgets(store: JobStore) -> Mapping[str, int]:
    records = await all_records(store, CRASH_BUDGETS)
    return {record.key: msgspec.json.decode(record.value, type=int) for record in records}


async def declare_crash_budgets(store: JobStore, budgets: Mapping[str, int]) -> None:
    """Have the reaper know the budgets of these types; what has the default needs no record."""
    known = await crash_budgets(store)
    changed = {
        job_type: budget
        for job_type, budget in budgets.items()
        if known.get(job_type, DEFAULT_POLICY.max_crashes) != budget
    }
    if changed:
        await store.write_records(
            [
                RecordWrite(CRASH_BUDGETS, job_type, msgspec.json.encode(budget))
                for job_type, budget in changed.items()
            ]
        )

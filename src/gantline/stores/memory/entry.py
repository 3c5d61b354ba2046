"""One job in memory: its state, and how others see it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from gantline.contract.flow import GroupState
from gantline.contract.job import Job
from gantline.contract.query import JobFilter
from gantline.contract.snapshot import CurrentRun, JobSnapshot, LogEntry, Run, rank
from gantline.contract.status import ON_REQUEST, Event, JobStatus, Reason
from gantline.contract.stored import StoredEntry, StoredJob
from gantline.contract.submission import DedupeKey, NewJob
from gantline.contract.transition import Transition
from gantline.stores.filters import matches

Lane = tuple[str, str]
Group = tuple[str, str]
"""Tenant and group."""


@dataclass(slots=True)
class Lease:
    """Everything of the current run."""

    token: UUID
    claim_id: UUID
    session: str
    started_at: datetime
    until: datetime
    length: timedelta
    percent: float = 0.0
    phase: str = ""
    cancel_requested: bool = False
    waited_seconds: float | None = None


@dataclass(slots=True)
class Entry:
    """One job: Queued has `run_at`, Running has `lease`, an ended one has neither."""

    job: Job
    fingerprint: bytes
    status: JobStatus
    attempt: int
    priority: int
    run_at: datetime | None
    version: int = 1
    crashes: int = 0
    snoozes: int = 0
    fence: int = 0
    lease: Lease | None = None
    log: list[StoredEntry] = field(default_factory=list)
    last: LogEntry | None = None

    @property
    def lane(self) -> Lane:
        return (self.job.queue, self.job.job_type)

    @property
    def group(self) -> Group:
        return (self.job.tenant_id, self.job.group)

    @property
    def rank(self) -> int:
        return rank(self.priority, self.crashes)

    @property
    def position(self) -> tuple[datetime, UUID]:
        """Its position in lists."""
        return (self.job.created_at, self.job.job_id)

    @property
    def key(self) -> DedupeKey | None:
        return NewJob(self.job, self.fingerprint).job_key

    @property
    def external_key(self) -> DedupeKey | None:
        return NewJob(self.job, self.fingerprint).external_key

    @property
    def ended_at(self) -> datetime:
        """Only of a job that has ended."""
        return self.log[-1].entry.at

    def has_applied(self, transition: Transition) -> bool:
        """Whether this change is in the log."""
        made = (transition.change_id, transition.event)
        return any((row.change_id, row.entry.event) == made for row in self.log)

    @property
    def last_reason(self) -> str:
        return self.last.reason if self.last else ""

    def run(self, lease: Lease) -> Run:
        return Run(
            job=self.job,
            token=lease.token,
            fence=self.fence,
            session=lease.session,
            version=self.version,
            attempt=self.attempt,
            crashes=self.crashes,
            snoozes=self.snoozes,
            priority=self.priority,
            started_at=lease.started_at,
            lease_until=lease.until,
            cancel_requested=lease.cancel_requested,
            waited_seconds=lease.waited_seconds,
        )

    def snapshot(self) -> JobSnapshot:
        return JobSnapshot(
            job=self.job,
            status=self.status,
            version=self.version,
            attempt=self.attempt,
            crashes=self.crashes,
            snoozes=self.snoozes,
            fence=self.fence,
            priority=self.priority,
            run_at=self.run_at,
            run=_current_run(self.lease) if self.lease else None,
            last=self.last,
        )

    def log_entry(self, transition: Transition, now: datetime) -> LogEntry:
        lease = self.lease
        return LogEntry(
            job_id=self.job.job_id,
            version=self.version,
            event=transition.event,
            status=transition.to,
            reason=transition.reason,
            at=now,
            attempt=self.attempt,
            fence=self.fence,
            session=lease.session if lease else "",
            started_at=lease.started_at if lease else None,
            error=transition.error,
            result=transition.result,
            result_omitted=transition.result_omitted,
            actor=transition.actor,
            emitted=transition.emitted,
        )

    def event_entry(self, event: Event, reason: Reason, now: datetime) -> LogEntry:
        """Make a row of the log with the current state of the job."""
        lease = self.lease
        is_progress = lease is not None and event is Event.PROGRESSED
        return LogEntry(
            job_id=self.job.job_id,
            version=self.version,
            event=event,
            status=self.status,
            reason=reason,
            at=now,
            attempt=self.attempt,
            fence=self.fence,
            session=lease.session if lease else "",
            started_at=lease.started_at if lease else None,
            percent=lease.percent if lease and is_progress else None,
            phase=lease.phase if lease and is_progress else "",
        )

    def stored(self) -> StoredJob:
        """As it is moved to another store."""
        return StoredJob(
            job=self.job,
            fingerprint=self.fingerprint,
            status=self.status,
            version=self.version,
            attempt=self.attempt,
            crashes=self.crashes,
            snoozes=self.snoozes,
            fence=self.fence,
            priority=self.priority,
            run_at=self.run_at,
            log=tuple(self.log),
        )

    @classmethod
    def from_stored(cls, stored: StoredJob) -> "Entry":
        """As it comes from another store."""
        outcomes = [row.entry for row in stored.log if row.entry.event not in ON_REQUEST]
        return cls(
            job=stored.job,
            fingerprint=stored.fingerprint,
            status=stored.status,
            attempt=stored.attempt,
            priority=stored.priority,
            run_at=stored.run_at,
            version=stored.version,
            crashes=stored.crashes,
            snoozes=stored.snoozes,
            fence=stored.fence,
            log=list(stored.log),
            last=outcomes[-1] if outcomes else None,
        )

    def matches(self, filter: JobFilter, now: datetime) -> bool:
        return matches(filter, self.snapshot(), now)


def _current_run(lease: Lease) -> CurrentRun:
    return CurrentRun(
        session=lease.session,
        started_at=lease.started_at,
        lease_until=lease.until,
        percent=lease.percent,
        phase=lease.phase,
        cancel_requested=lease.cancel_requested,
    )


def group_state(entries: Sequence[Entry], now: datetime) -> GroupState:
    """What is shown of a group, by its Queued and Running jobs."""
    tenant_id, group = entries[0].group
    due = [entry.run_at for entry in entries if entry.run_at and entry.run_at <= now]
    waiting = sum(entry.status is JobStatus.QUEUED for entry in entries)
    return GroupState(
        tenant_id=tenant_id,
        group=group,
        waiting=waiting,
        running=len(entries) - waiting,
        oldest_due_at=min(due, default=None),
    )

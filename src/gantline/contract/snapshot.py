"""What a store returns about jobs: a run that was claimed, a job as it stands, its log."""

from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec

from gantline.contract.job import Job
from gantline.contract.outcome import ErrorInfo
from gantline.contract.status import DerivedState, Event, JobStatus

SUSPECT_AFTER_CRASHES: Final = 2
MOST_CRASHES_COUNTED: Final = 9
"""Suspects that were in so many crashes or more are claimed alike."""

NEW_VERSION: Final = 1
"""The version of a job that waits as it was submitted; every change of it makes a higher one."""


def rank(priority: int, crashes: int) -> int:
    """Where a Queued job stands in its lane: suspects apart from all others, by their crashes.

    From 0 to 3 it is the priority; the priority of a suspect is `rank % 4`.
    """
    suspicion = min(crashes, MOST_CRASHES_COUNTED) - SUSPECT_AFTER_CRASHES + 1
    return priority + 4 * max(0, suspicion)


class RunRef(msgspec.Struct, frozen=True, cache_hash=True):
    """Which run is meant. The token is what proves it."""

    job_id: UUID
    token: UUID


class _Ref:
    """Made once, since looking up an equal one hashes and compares UUIDs: 1.5 µs a job.

    A `cached_property`, but for the lock that it has in Python 3.11: 0.4 µs a job.
    """

    def __get__(self, run: "Run", owner: "type[Run]") -> RunRef:
        ref = run.__dict__["ref"] = RunRef(run.job.job_id, run.token)
        return ref


class Run(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One claimed run of a job, with all that `decide` needs to end it."""

    job: Job
    token: UUID
    fence: int
    session: str
    version: int
    attempt: int
    crashes: int
    snoozes: int
    priority: int
    started_at: datetime
    lease_until: datetime
    cancel_requested: bool = False
    waited_seconds: float | None = None
    """How long the job had been due when it was claimed, by the store's clock; None: not known."""

    ref = _Ref()

    @property
    def is_suspect(self) -> bool:
        """It may be the job that crashes workers, so nothing should run beside it."""
        return self.crashes >= SUSPECT_AFTER_CRASHES

    @property
    def has_expired(self) -> bool:
        """Whether it was claimed too late, so that its handler must not be called.

        Only where the claim was the first change of the job: what has begun once, or was redriven,
        does not expire any more.
        """
        expires_at = self.job.expires_at
        if expires_at is None:
            return False
        return self.version == NEW_VERSION + 1 and expires_at <= self.started_at


class Progress(msgspec.Struct, frozen=True):
    """How far a run is: 0 to 100, and the name of its phase."""

    run: RunRef
    percent: float
    phase: str = ""
    logged: bool = False
    """Whether this is an event."""


class CurrentRun(msgspec.Struct, frozen=True, kw_only=True):
    """The run that a Running job is in. Its token is not part of what is shown."""

    session: str
    started_at: datetime
    lease_until: datetime
    percent: float = 0.0
    phase: str = ""
    cancel_requested: bool = False


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the log: a run that ended, something an operator did, or one of ON_REQUEST."""

    job_id: UUID
    version: int
    event: Event
    status: JobStatus
    reason: str
    at: datetime
    attempt: int
    fence: int
    session: str = ""
    started_at: datetime | None = None
    error: ErrorInfo | None = None
    result: bytes | None = None
    result_omitted: str | None = None
    actor: str = ""
    percent: float | None = None
    """How far the run was; where it progressed."""
    phase: str = ""
    emitted: bytes | None = None
    """What the run emitted, as `encode_emitted` has it; of one that completed."""


class LoggedEvent(msgspec.Struct, frozen=True):
    """A log row with its position in the one order in which all consumers read."""

    sequence: int
    tenant_id: str
    job_type: str
    entry: LogEntry

    def is_of(self, job: "JobSnapshot") -> bool:
        """Whether a job is the one that this is of: another job may have its id by now."""
        return (
            job.job.tenant_id == self.tenant_id
            and job.job.job_type == self.job_type
            and job.version >= self.entry.version
        )


class JobSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it stands."""

    job: Job
    """What was submitted."""
    status: JobStatus
    version: int
    """Grows with every change that a client could see."""
    attempt: int
    """How many attempts have begun."""
    crashes: int
    """In how many crashes of a worker it was."""
    snoozes: int
    """How often its handler asked to be run later."""
    fence: int
    """How many runs have begun, attempts or not."""
    priority: int
    """0 to 3, the most urgent first."""
    run_at: datetime | None = None
    """While it is Queued: the instant from which it is due."""
    run: CurrentRun | None = None
    """The run that a Running job is in."""
    last: LogEntry | None = None
    """The newest row of the log that is not one of ON_REQUEST."""

    def derived(self, now: datetime) -> DerivedState | None:
        """Say what the status means right now."""
        if self.run and self.run.cancel_requested:
            return DerivedState.CANCELLING
        if self.status is not JobStatus.QUEUED or self.run_at is None:
            return None
        if self.last and self.last.event in (Event.RETRIED, Event.CRASHED):
            return DerivedState.RETRYING
        return DerivedState.SCHEDULED if self.run_at > now else None

    @property
    def is_new(self) -> bool:
        """Whether it waits as it was submitted: nothing has happened to it yet."""
        return self.status is JobStatus.QUEUED and self.version == NEW_VERSION

    @property
    def started_at(self) -> datetime | None:
        """When the current run started, else the last one."""
        if self.run:
            return self.run.started_at
        return self.last.started_at if self.last else None

    @property
    def completed_at(self) -> datetime | None:
        """When it ended, however."""
        return self.last.at if self.last and self.status.is_terminal else None

    @property
    def shown_attempt(self) -> int:
        """The attempt as status documents show it: 1 while the job was never claimed."""
        return max(1, self.attempt)

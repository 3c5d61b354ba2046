"""One call of a verb as it is recorded: what was asked and answered, reduced to what is judged.

Never a payload, a result or an error's text. Of a key only a digest is kept.
"""

import hashlib
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec

from gantline.contract.query import LaneRequest, PruneRule
from gantline.contract.snapshot import JobSnapshot, LogEntry, Run
from gantline.contract.status import Event, JobStatus
from gantline.contract.submission import DedupeKey, KeyKind, NewJob
from gantline.contract.transition import RunGuard, Transition

NEVER: Final = 2**62
"""The position of an end that was not seen."""
ROLLED_BACK: Final = "RolledBack"
"""The error of a change whose transaction was not committed: it has no effect, for certain."""


def digest_of(emitted: bytes | None) -> str:
    """What a run emitted, so that it can be compared, but not read; empty where it is nothing."""
    return "" if emitted is None else hashlib.blake2b(emitted, digest_size=12).hexdigest()


class Key(msgspec.Struct, frozen=True, gc=False):
    """A dedupe key that can be compared, but not read."""

    kind: KeyKind
    digest: str
    """Of tenant, scope and key."""
    fingerprint: str

    @classmethod
    def of(cls, key: DedupeKey) -> "Key":
        name = "\0".join(key.identity).encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(name, digest_size=12).hexdigest()
        return cls(key.kind, digest, key.fingerprint.hex())


class Submitted(msgspec.Struct, frozen=True, kw_only=True, tag="job", omit_defaults=True, gc=False):
    """A job that was to be stored, by an insert or as a follow-up."""

    job_id: UUID
    tenant_id: str
    job_type: str
    queue: str
    priority: int
    max_attempts: int
    attempts_used: int = 0
    delay: float = 0.0
    logged: bool = False
    keys: tuple[Key, ...] = ()
    external_id: UUID | None = None
    group: str = ""

    @classmethod
    def of(cls, new: NewJob) -> "Submitted":
        job = new.job
        return cls(
            job_id=job.job_id,
            tenant_id=job.tenant_id,
            job_type=job.job_type,
            queue=job.queue,
            priority=job.priority,
            max_attempts=job.max_attempts,
            attempts_used=job.attempts_used,
            delay=new.delay.total_seconds(),
            logged=new.logged,
            keys=tuple(map(Key.of, new.keys)),
            external_id=job.external_id,
            group=job.group,
        )

    @property
    def job_key(self) -> Key | None:
        return next((key for key in self.keys if key.kind is KeyKind.JOB), None)


class Change(msgspec.Struct, frozen=True, kw_only=True, tag="change", omit_defaults=True, gc=False):
    """A transition that was to be applied: under a run's token, else under the state named."""

    job_id: UUID
    change_id: UUID
    """The token, or the id of the guard."""
    event: Event
    to: JobStatus
    reason: str
    attempt: int
    crashes: int
    snoozes: int
    priority: int
    by_run: bool = False
    status: JobStatus = JobStatus.RUNNING
    """From which it was to lead."""
    tenant_id: str = ""
    version: int | None = None
    unless_cancelled: bool = False
    only_expired: bool = False
    delay: float = 0.0
    follow_ups: tuple[Submitted, ...] = ()
    once: tuple[Key, ...] = ()
    emitted: str = ""
    closes: str = ""

    @classmethod
    def of(cls, transition: Transition) -> "Change":
        guard = transition.guard
        by_run = isinstance(guard, RunGuard)
        return cls(
            job_id=transition.job_id,
            change_id=transition.change_id,
            event=transition.event,
            to=transition.to,
            reason=transition.reason,
            attempt=transition.attempt,
            crashes=transition.crashes,
            snoozes=transition.snoozes,
            priority=transition.priority,
            by_run=by_run,
            status=transition.from_status,
            tenant_id="" if isinstance(guard, RunGuard) else guard.tenant_id,
            version=None if isinstance(guard, RunGuard) else guard.version,
            unless_cancelled=isinstance(guard, RunGuard) and guard.unless_cancelled,
            only_expired=isinstance(guard, RunGuard) and guard.only_expired,
            delay=transition.delay.total_seconds(),
            follow_ups=tuple(map(Submitted.of, transition.follow_ups)),
            once=tuple(map(Key.of, transition.once)),
            emitted=digest_of(transition.emitted),
            closes=transition.closes,
        )


class Claim(msgspec.Struct, frozen=True, tag="claim", gc=False):
    claim_id: UUID
    requests: tuple[LaneRequest, ...]


class NamedRun(msgspec.Struct, frozen=True, tag="run", omit_defaults=True, gc=False):
    """A run that was to be renewed or to progress."""

    job_id: UUID
    token: UUID
    logged: bool = False


class NamedJob(msgspec.Struct, frozen=True, tag="named", omit_defaults=True, gc=False):
    """A job that was to be read or removed."""

    job_id: UUID
    tenant_id: str | None = None
    status: JobStatus | None = None
    version: int | None = None


class Prune(msgspec.Struct, frozen=True, tag="prune", gc=False):
    rules: tuple[PruneRule, ...]
    limit: int
    keep_events_after: int | None


class PageAfter(msgspec.Struct, frozen=True, tag="page", gc=False):
    """Where a page of events was to begin."""

    after: int
    limit: int


class Named(msgspec.Struct, frozen=True, tag="name", gc=False):
    """A key, a record, a role or a session, by its name."""

    name: str


Asked = Submitted | Change | Claim | NamedRun | NamedJob | Prune | PageAfter | Named


class Answer(msgspec.Struct, frozen=True, tag="answer", omit_defaults=True, gc=False):
    """One of the results in `contract/results.py`, by its name."""

    name: str
    version: int = 0
    existing: UUID | None = None
    by: str = ""

    @property
    def is_applied(self) -> bool:
        return self.name == "Applied"

    @classmethod
    def of(cls, result: object) -> "Answer":
        return cls(
            type(result).__name__,
            getattr(result, "version", 0),
            getattr(result, "existing", None),
            getattr(result, "by", None) or "",
        )


class StartedRun(msgspec.Struct, frozen=True, kw_only=True, tag="started", gc=False):
    """A run that a claim gave, or whose lease has run out."""

    job_id: UUID
    tenant_id: str
    job_type: str
    queue: str
    token: UUID
    session: str
    fence: int
    version: int
    attempt: int
    max_attempts: int
    crashes: int
    snoozes: int
    priority: int
    due_at: float | None = None
    """By the store's clock, in seconds since 1970."""
    waited_seconds: float | None = None
    has_expired: bool = False
    """Claimed too late: it is to be ended unstarted."""
    group: str = ""

    @classmethod
    def of(cls, run: Run) -> "StartedRun":
        job, waited = run.job, run.waited_seconds
        return cls(
            job_id=job.job_id,
            tenant_id=job.tenant_id,
            job_type=job.job_type,
            queue=job.queue,
            token=run.token,
            session=run.session,
            fence=run.fence,
            version=run.version,
            attempt=run.attempt,
            max_attempts=job.max_attempts,
            crashes=run.crashes,
            snoozes=run.snoozes,
            priority=run.priority,
            due_at=None if waited is None else run.started_at.timestamp() - waited,
            waited_seconds=waited,
            has_expired=run.has_expired,
            group=job.group,
        )


class SeenJob(msgspec.Struct, frozen=True, kw_only=True, tag="seen", gc=False):
    """A job as it was read."""

    job_id: UUID
    status: JobStatus
    version: int
    fence: int

    @classmethod
    def of(cls, job: JobSnapshot) -> "SeenJob":
        return cls(job_id=job.job.job_id, status=job.status, version=job.version, fence=job.fence)


class SeenRow(msgspec.Struct, frozen=True, kw_only=True, tag="row", omit_defaults=True, gc=False):
    """A row of a log as it was read; with its number where events were read."""

    job_id: UUID
    version: int
    event: Event
    status: JobStatus
    reason: str
    attempt: int
    fence: int
    at: datetime
    sequence: int = 0
    emitted: str = ""

    @classmethod
    def of(cls, row: LogEntry, sequence: int = 0) -> "SeenRow":
        return cls(
            job_id=row.job_id,
            version=row.version,
            event=row.event,
            status=row.status,
            reason=row.reason,
            attempt=row.attempt,
            fence=row.fence,
            at=row.at,
            sequence=sequence,
            emitted=digest_of(row.emitted),
        )


class NamedToken(msgspec.Struct, frozen=True, tag="token", gc=False):
    """Of a renewal: a run that is lost, or else that should stop."""

    token: UUID
    lost: bool


Answered = Answer | StartedRun | SeenJob | SeenRow | NamedToken | int | None


class Call(msgspec.Struct, kw_only=True, tag="call", omit_defaults=True, gc=False):
    """A call, as it began; and, if its answer came, as it ended.

    `answers` are item by item where `asked` are: for claim, find, events and the like they are
    what was found.
    """

    number: int
    """Counted for each process."""
    verb: str
    began: float
    """By the monotonic clock of its host."""
    asked: tuple[Asked, ...] = ()
    session: str = ""
    lease_seconds: float = 0.0
    process: str = ""
    ended: float | None = None
    answers: tuple[Answered, ...] = ()
    error: str = ""
    """The name of what was raised instead of an answer."""
    first: int = 0
    """The position of its beginning among the beginnings and ends of all calls."""
    last: int = NEVER

    def __str__(self) -> str:
        return f"{self.verb} {self.process}#{self.number}"

    @property
    def is_answered(self) -> bool:
        return self.ended is not None and not self.error

    @property
    def is_certain(self) -> bool:
        """Whether its answers say what its effect was. A caller's own commit is not seen."""
        return self.is_answered and self.verb != "insert_in"

    @property
    def may_have_effect(self) -> bool:
        return self.error != ROLLED_BACK


class End(msgspec.Struct, kw_only=True, tag="end", omit_defaults=True, gc=False):
    """The end of a call, as it is written after its beginning."""

    number: int
    ended: float
    answers: tuple[Answered, ...] = ()
    error: str = ""


class Process(msgspec.Struct, kw_only=True, tag="process"):
    """Who wrote a file, and what its clocks said then."""

    process: str
    host: str
    monotonic: float
    now: datetime

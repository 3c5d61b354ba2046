"""What a store holds, as it is moved to another one: jobs whole, keys, records, terms and marks."""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec

from gantline.contract.errors import InvalidInput
from gantline.contract.job import Job
from gantline.contract.records import Record
from gantline.contract.snapshot import NEW_VERSION, JobSnapshot, LogEntry
from gantline.contract.status import JobStatus
from gantline.contract.submission import KeyKind


class Part(StrEnum):
    """The parts in which a store is read out."""

    JOBS = "jobs"
    KEYS = "keys"
    RECORDS = "records"
    TERMS = "terms"
    MARKS = "marks"


class StoredEntry(msgspec.Struct, frozen=True):
    """A row of a job's log with its number, and the change by which a repeat is recognised."""

    sequence: int
    change_id: UUID | None
    """None for those of ON_REQUEST: nobody repeats them by it."""
    entry: LogEntry


class StoredJob(msgspec.Struct, frozen=True, kw_only=True):
    """The whole of a job but for the keys it holds, which may outlive it.

    A Running one belongs to a worker: it can be read out, but not taken in.
    """

    job: Job
    fingerprint: bytes
    status: JobStatus
    version: int
    attempt: int
    crashes: int
    snoozes: int
    fence: int
    priority: int
    run_at: datetime | None = None
    log: tuple[StoredEntry, ...] = ()
    """Oldest first."""

    @classmethod
    def of(cls, found: JobSnapshot, fingerprint: bytes, log: Iterable[StoredEntry]) -> "StoredJob":
        same = set(cls.__struct_fields__) & set(JobSnapshot.__struct_fields__)
        as_found = {name: getattr(found, name) for name in same}
        return cls(**as_found, fingerprint=fingerprint, log=tuple(log))

    @property
    def name(self) -> str:
        return f"job {self.job.job_id}"

    @property
    def is_new(self) -> bool:
        """As that of a `JobSnapshot`."""
        return self.status is JobStatus.QUEUED and self.version == NEW_VERSION

    @property
    def end(self) -> StoredEntry | None:
        """The row that ended the job; None for one that has not ended."""
        return self.log[-1] if self.status.is_terminal else None


class StoredKey(msgspec.Struct, frozen=True, kw_only=True):
    """A dedupe key: which job holds it, and until when; None: as long as that job says."""

    kind: KeyKind
    tenant_id: str
    scope: str
    key: str
    job_id: UUID
    fingerprint: bytes
    until: datetime | None = None

    @property
    def name(self) -> str:
        return f"{self.kind} key {self.key!r} of {self.scope!r}, tenant {self.tenant_id!r}"


class StoredRecord(msgspec.Struct, frozen=True):
    """A record, whether it has expired or not."""

    record: Record

    @property
    def name(self) -> str:
        return f"record {self.record.namespace}/{self.record.key}"


class StoredTerm(msgspec.Struct, frozen=True):
    """How often a role has had a new leader. Who leads now is of no use elsewhere."""

    role: str
    term: int

    @property
    def name(self) -> str:
        return f"role {self.role!r}"


class Marks(msgspec.Struct, frozen=True):
    """The numbers that were handed out last; they never go back."""

    last_event: int
    last_record: int

    @property
    def name(self) -> str:
        return "numbers handed out last"


Stored = StoredJob | StoredKey | StoredRecord | StoredTerm | Marks


class Dumped(msgspec.Struct, frozen=True):
    """A page of what a store holds; `next` says where to go on, empty at the end."""

    items: tuple[Stored, ...]
    next: str = ""


def refuse_running(items: Iterable[Stored]) -> None:
    """Raise InvalidInput where one of these jobs is Running."""
    for item in items:
        if isinstance(item, StoredJob) and item.status is JobStatus.RUNNING:
            raise InvalidInput(
                f"Job {item.job.job_id} is Running, so it cannot be moved.",
                next_step="Wait until its run is over.",
            )

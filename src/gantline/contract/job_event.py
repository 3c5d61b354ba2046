"""An event as consumers read it: what happened, to which job, and how it is reported to others.

A report is made of what never changes, the envelope and the log row, so that a repeated one is the
same, byte for byte.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

import msgspec

from gantline.contract.domain_event import Emitted, read_emitted
from gantline.contract.job import Job
from gantline.contract.snapshot import LogEntry
from gantline.contract.status import JobStatus


class OutcomeDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The JobOutcome, as webhooks, brokers and other systems receive it. Never a payload."""

    job_id: UUID
    job_type: str
    tenant_id: str
    subject_id: str
    correlation_id: str
    status: JobStatus
    reason: str
    version: int
    """Grows with every change of the job: a receiver of events out of order takes the highest."""
    attempt: int
    max_attempts: int
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    error_code: str | None
    error_message: str | None
    retryable: bool | None
    """Whether it will be tried again; null where nothing failed."""
    result: Any
    result_omitted: str | None
    progress: float | msgspec.UnsetType = msgspec.UNSET
    """How far the run was, 0 to 100; only where it progressed."""
    phase: str | msgspec.UnsetType = msgspec.UNSET
    external_id: UUID | msgspec.UnsetType = msgspec.UNSET
    """The id that the job was submitted with; only where it came with one."""


class DomainDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A domain event, as webhooks, brokers, streams and other systems receive it."""

    event_id: str
    """The same however often it is reported."""
    event_type: str
    aggregate_type: str
    aggregate_id: str
    occurred_at: datetime
    """When its job was completed."""
    payload: Any
    job_id: UUID
    """The job that emitted it."""
    job_type: str
    tenant_id: str
    correlation_id: str
    external_id: UUID | msgspec.UnsetType = msgspec.UNSET


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """CloudEvents 1.0 in structured mode; extension names are lower-case by its rules."""

    id: str
    source: str
    specversion: str = msgspec.field(default_factory=lambda: "1.0")
    type: str
    subject: str | None = None
    time: datetime
    datacontenttype: str = msgspec.field(default_factory=lambda: "application/json")
    tenantid: str
    correlationid: str | None = None
    sequence: str | None = None
    """Orders all events of an installation; tenants do not get it."""
    data: Any
    """An OutcomeDocument, or the DomainDocument of a domain event."""


class JobEvent(msgspec.Struct, frozen=True):
    """One numbered log row, with the job that it is of."""

    sequence: int
    job: Job
    entry: LogEntry

    @property
    def event_id(self) -> str:
        """The same however often it is reported."""
        return f"{self.entry.job_id}.{self.entry.version}"

    @property
    def type(self) -> str:
        """`job.completed`, `job.failed`, …: what `@app.on` and webhooks subscribe to."""
        return f"job.{self.entry.event}"

    def document(self) -> OutcomeDocument:
        """How the job stood after it."""
        job, entry = self.job, self.entry
        return OutcomeDocument(
            job_id=job.job_id,
            job_type=job.job_type,
            tenant_id=job.tenant_id,
            subject_id=job.subject_id,
            correlation_id=job.correlation_id,
            status=entry.status,
            reason=entry.reason,
            version=entry.version,
            attempt=max(1, entry.attempt),
            max_attempts=job.max_attempts,
            created_at=job.created_at,
            started_at=entry.started_at,
            completed_at=entry.at if entry.status.is_terminal else None,
            error_code=entry.error.code if entry.error else None,
            error_message=entry.error.message if entry.error else None,
            retryable=entry.status is JobStatus.QUEUED if entry.error else None,
            result=msgspec.Raw(entry.result) if entry.result is not None else None,
            result_omitted=entry.result_omitted,
            progress=msgspec.UNSET if entry.percent is None else entry.percent,
            phase=msgspec.UNSET if entry.percent is None else entry.phase,
            external_id=job.external_id or msgspec.UNSET,
        )

    def data(self) -> OutcomeDocument | DomainDocument:
        """What other systems get of it."""
        return self.document()

    def cloud_event(self, source: str) -> CloudEvent:
        """`source` is a URI reference that names the installation, `/gantline` for example."""
        return CloudEvent(
            id=self.event_id,
            source=source,
            type=f"gantline.{self.type}",
            subject=self.job.subject_id or None,
            time=self.entry.at,
            tenantid=self.job.tenant_id,
            correlationid=self.job.correlation_id or None,
            sequence=f"{self.sequence:020d}",
            data=self.data(),
        )


class DomainEvent(JobEvent, frozen=True):
    """What a handler emitted, an event of your own: it happened with the end of its job."""

    emitted: Emitted
    number: int
    """Counts from 1 what one run emitted, audit entries included."""

    @property
    def event_id(self) -> str:
        return f"{self.entry.job_id}.{self.entry.version}.{self.number}"

    @property
    def type(self) -> str:
        return self.emitted.type

    @property
    def aggregate(self) -> str:
        """What kind of thing it is about."""
        return self.emitted.aggregate

    @property
    def aggregate_id(self) -> str:
        return self.emitted.aggregate_id

    @property
    def payload(self) -> Any:
        """As plain data."""
        return msgspec.json.decode(self.emitted.payload)

    def data(self) -> DomainDocument:
        job, emitted = self.job, self.emitted
        return DomainDocument(
            event_id=self.event_id,
            event_type=emitted.type,
            aggregate_type=emitted.aggregate,
            aggregate_id=emitted.aggregate_id,
            occurred_at=self.entry.at,
            payload=emitted.payload,
            job_id=job.job_id,
            job_type=job.job_type,
            tenant_id=job.tenant_id,
            correlation_id=job.correlation_id,
            external_id=job.external_id or msgspec.UNSET,
        )

    def cloud_event(self, source: str) -> CloudEvent:
        """Its type is the domain event's own, its subject the id of the aggregate."""
        usual = super().cloud_event(source)
        return msgspec.structs.replace(usual, type=self.type, subject=self.aggregate_id)


def emitted_with(sequence: int, job: Job, entry: LogEntry) -> list[DomainEvent]:
    """What was emitted with a row of the log, audit entries included, in order."""
    emitted = read_emitted(entry.emitted)
    return [DomainEvent(sequence, job, entry, one, n) for n, one in enumerate(emitted, start=1)]


class EventConsumer(Protocol):
    """Reads every event in order, at least once; one reader at a time in the whole fleet."""

    @property
    def name(self) -> str:
        """Names its cursor: another name is another consumer, which begins anew."""
        ...

    async def consume(self, events: Sequence[JobEvent]) -> None:
        """Take a page of events. When it returns, the cursor moves past them; when it raises,
        the same events come again, later, with the same ids."""
        ...

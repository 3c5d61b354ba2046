"""Who keeps the jobs: the one port behind which commands find a store, or a server before one.

It speaks in the documents of the API, so that a command prints the same whoever answers it. What
only the holder of the store knows (traces, workers) stands beside them, and is None from a server.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from gantline.api.documents import (
    HistoryEntry,
    JobDocument,
    JobTypeState,
    LaneDocument,
    ListedJob,
    QueueDocument,
    QueueState,
    StatusDocument,
)
from gantline.audit.chain import EVERYTHING, AuditEvent, AuditFilter, UnreadableEntry
from gantline.cli.names import Kind, Known
from gantline.cli.schedule_keeper import ScheduleKeeper
from gantline.cli.webhook_keeper import WebhookKeeper
from gantline.contract.errors import GantlineError
from gantline.contract.query import JobFilter
from gantline.contract.status import JobStatus


class NewJob(NamedTuple):
    """A job as the command line says it; the payload is JSON text."""

    job_type: str
    payload: bytes
    delay: timedelta
    queue: str | None = None
    priority: int | None = None
    idempotency_key: str | None = None
    subject_id: str | None = None
    max_attempts: int | None = None


class Submitted(NamedTuple):
    job_id: UUID
    duplicate: bool


class Happened(NamedTuple):
    """Something that happened to a job."""

    entry: HistoryEntry
    error_detail: str | None = None


class Whole(NamedTuple):
    """All of a job."""

    job: JobDocument
    history: Sequence[Happened]


class Found(NamedTuple):
    jobs: Sequence[ListedJob]
    has_more: bool


class Acted(NamedTuple):
    """Where an action left a job; `changed` is False when it was there already."""

    job_id: UUID
    status: JobStatus
    changed: bool


class TypeSeen(NamedTuple):
    job_type: str
    queued: int
    running: int
    paused: bool
    disabled: bool
    workers: int | None = None


class Keeper(Protocol):
    """Whoever keeps the jobs. Each method raises GantlineError; those with many ids answer each."""

    @property
    def whose(self) -> str:
        """Whose jobs are meant, for people to read."""
        ...

    @property
    def look_again_seconds(self) -> float:
        """How often to look at a job that is watched."""
        ...

    @property
    def schedules(self) -> ScheduleKeeper: ...

    async def submit(self, new: NewJob) -> Submitted: ...

    async def job(self, job_id: UUID) -> Whole: ...

    async def status(self, job_id: UUID) -> StatusDocument: ...

    async def find(self, wanted: JobFilter, limit: int) -> Found:
        """The newest jobs that match. Whose they are is the keeper's, not the filter's."""
        ...

    async def cancel(self, job_ids: Sequence[UUID]) -> list[Acted | GantlineError]: ...

    async def redrive(self, job_ids: Sequence[UUID]) -> list[Acted | GantlineError]: ...

    async def redrive_dead(self, job_ids: Sequence[UUID], chosen_by: Mapping[str, Any]) -> int:
        """Queue dead letters again; return how many could be. `chosen_by` is for the audit."""
        ...

    async def delete(self, job_ids: Sequence[UUID]) -> int:
        """Remove jobs that have ended; return how many could be."""
        ...

    async def queues(self) -> list[QueueDocument]: ...

    async def pause_queue(self, queue: str, *, paused: bool) -> QueueState: ...

    async def types(self) -> list[TypeSeen]: ...

    async def pause_type(self, job_type: str, *, paused: bool) -> JobTypeState: ...

    async def disable_type(self, job_type: str, *, disabled: bool) -> JobTypeState: ...

    async def waiting(self, job_type: str) -> int:
        """How many jobs of a type would fail if it were disabled, as far as can be seen."""
        ...

    async def known(self, kind: Kind) -> Known: ...

    async def audited_tenants(self, *, everywhere: bool) -> list[str]:
        """Whose audit chains can be read: that of the tenant, or all that there are."""
        ...

    def audit_events(
        self, tenant_id: str, wanted: AuditFilter = EVERYTHING
    ) -> AsyncIterator[AuditEvent | UnreadableEntry]:
        """The audit chain of a tenant, newest first; it may hold more than is wanted."""
        ...

    async def lanes(self) -> list[LaneDocument]: ...

    @property
    def webhooks(self) -> WebhookKeeper: ...

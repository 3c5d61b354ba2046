"""The documents of the API: what is sent and what is answered. Here names become camelCase."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from gantline.audit.chain import AuditEvent
from gantline.contract.status import Event, JobStatus
from gantline.contract.webhook import ListedDelivery, WebhookEndpoint

Instant = Annotated[datetime, msgspec.Meta(tz=True)]


class Document(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the API says. Every key is always there; null means that there is nothing to say."""


# -- errors -------------------------------------------------------------------------------------


class ErrorDetail(Document, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that is wrong: where in the body, or with which parameter, and what."""

    pointer: str | None = None
    parameter: str | None = None
    detail: str


class ProblemDocument(Document, frozen=True, kw_only=True):
    """An error, as RFC 9457 has it."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    error_code: str
    correlation_id: str
    retryable: bool
    errors: list[ErrorDetail] = msgspec.field(default_factory=list)


# -- submitting ---------------------------------------------------------------------------------


class AcceptedDocument(Document, frozen=True, kw_only=True):
    """A job that is durably stored, and where to ask about it."""

    job_id: UUID
    subject_id: str
    status_url: str
    status: JobStatus | None
    """Null when the job was there before and has been purged, or is somebody else's."""
    duplicate: bool
    """Whether it had been submitted before."""
    warnings: list[ErrorDetail] | UnsetType = UNSET
    """What was ignored of what was sent; only there if something was."""


class BatchItem(Document, frozen=True, kw_only=True):
    """The answer to one job of a batch: `job` or `problem`."""

    job: AcceptedDocument | None = None
    problem: ProblemDocument | None = None


class BatchDocument(Document, frozen=True, kw_only=True):
    """The answers to a batch, in the order in which it was sent."""

    accepted: int
    rejected: int
    items: list[BatchItem]


# -- reading ------------------------------------------------------------------------------------


class StatusDocument(Document, frozen=True, kw_only=True):
    """Where a job stands."""

    job_id: UUID
    job_type: str
    subject_id: str
    correlation_id: str
    status: JobStatus
    state: str
    """The status, or what it means right now: Scheduled, Retrying, Cancelling."""
    attempt: int
    max_attempts: int
    created_at: Instant
    scheduled_at: Instant | None
    expires_at: Instant | None
    """If it had not started by then, it was Cancelled, `Expired`."""
    started_at: Instant | None
    completed_at: Instant | None
    updated_at: Instant
    progress: float | None
    phase: str | None
    reason: str | None
    error_code: str | None
    error_message: str | None
    result: Any
    """JSON data: on the server still as it is stored, in a client decoded."""
    result_omitted: str | None
    version: int
    external_id: UUID | None
    """The id that it was submitted with, by which its tenant finds it too."""
    warnings: list[ErrorDetail] | UnsetType = UNSET
    """In the answer to a submit that waited: as there."""


class ListedJob(StatusDocument, frozen=True, kw_only=True):
    """A job in a list: where it stands, and where it waits."""

    tenant_id: str
    queue: str
    priority: int
    group: str = ""
    """Whose turn it takes within its tenant; empty where the tenant is the group."""
    error_type: str | None
    """The class of the exception, where there was one; for those who may see it."""


class JobDocument(ListedJob, frozen=True, kw_only=True):
    """All of a job. The payload and the key made of it are there for those who may read it."""

    idempotency_key: str | None
    payload_version: int
    payload: Any
    """As with `result`."""
    payload_omitted: str | None
    created_by: str
    parent_job_id: UUID | None
    trace_context: dict[str, str] | None


class JobPage(Document, frozen=True, kw_only=True):
    """Jobs, newest first; `nextCursor` leads on, null is the end."""

    items: list[ListedJob]
    next_cursor: str | None


class HistoryEntry(Document, frozen=True, kw_only=True):
    """Something that happened to a job: a run ended, somebody acted, or what its type asks for."""

    version: int
    event: Event
    status: JobStatus
    reason: str
    at: Instant
    attempt: int
    started_at: Instant | None
    error_code: str | None
    error_message: str | None
    error_type: str | None
    """As with a job."""
    actor: str
    session: str | None
    """Which worker it was; for those who may see the installation's statistics."""
    progress: float | None
    """How far the run was, where it progressed."""
    phase: str | None
    emitted: list[str]
    """The types of the domain events that the run emitted, in order."""


class HistoryDocument(Document, frozen=True, kw_only=True):
    """What happened to a job, oldest first."""

    items: list[HistoryEntry]


class AttemptDocument(Document, frozen=True, kw_only=True):
    """One run of a job; the last may still be going on."""

    attempt: int
    outcome: Event | None
    """Null while it runs."""
    reason: str | None
    started_at: Instant
    ended_at: Instant | None
    error_code: str | None
    error_message: str | None
    error_type: str | None
    """As with a job."""
    progress: float | None
    phase: str | None
    session: str | None


class WhyReason(Document, frozen=True, kw_only=True):
    """One reason for which a job waits, or does not."""

    code: str
    """Such as QUEUE_PAUSED; there may be new ones."""
    detail: str
    """For people; with the facts in it."""
    next_steps: list[str]
    """What an operator may do, or where to look."""
    facts: dict[str, Any]
    """For programs. What the caller may not see is null."""


class WhyDocument(Document, frozen=True, kw_only=True):
    """Why a job waits. The first reason is the one that matters most; there is always one.

    What depends on other tenants' jobs - free slots, jobs ahead - and the names of workers are for
    callers with `workers:read`; who has `stats:read` sees the jobs of the tenant that are ahead.
    """

    job_id: UUID
    job_type: str
    queue: str
    status: JobStatus
    state: str
    at: Instant
    """The time of the store at which this held."""
    reasons: list[WhyReason]


class AttemptsDocument(Document, frozen=True, kw_only=True):
    """The runs of a job, oldest first."""

    items: list[AttemptDocument]


# -- dead letters ---------------------------------------------------------------------------------


class DeadCountDocument(Document, frozen=True, kw_only=True):
    """How many dead letters of a type there are for one reason."""

    status: JobStatus
    reason: str
    job_type: str
    jobs: int
    newest_at: Instant


class DeadSummary(Document, frozen=True, kw_only=True):
    """The dead letters of a tenant in numbers."""

    total: int
    failed: int
    poisoned: int
    reasons: list[DeadCountDocument]


class RedrivenItem(Document, frozen=True, kw_only=True):
    """Whether one dead letter was redriven, or why not."""

    job_id: UUID
    redriven: bool
    error_code: str | None = None


class RedriveReport(Document, frozen=True, kw_only=True):
    """What a redrive by filter did, or would do."""

    dry_run: bool
    matching: int
    redriven: int
    failed: int
    more: bool
    """Whether there are dead letters beyond the limit that match too."""
    items: list[RedrivenItem]


# -- operating ----------------------------------------------------------------------------------


class JobCounts(Document, frozen=True, kw_only=True):
    """How many jobs are where. `scheduled` are those of `queued` that are not yet due."""

    queued: int
    scheduled: int
    running: int
    completed: int
    failed: int
    poisoned: int
    cancelled: int
    oldest_age_seconds: float | None
    """How long the longest-waiting due job has waited."""


class QueueDocument(JobCounts, frozen=True, kw_only=True):
    """A queue with the tenant's jobs in it. Paused and capped it is for all tenants."""

    queue: str
    paused: bool
    max_depth: int | None
    max_depth_per_tenant: int | None


class QueuesDocument(Document, frozen=True, kw_only=True):
    """Queues by name; where there are too many, the fullest."""

    items: list[QueueDocument]
    omitted: int
    """How many more there are."""


class WorkerDocument(Document, frozen=True, kw_only=True):
    """A worker process, as it last registered itself."""

    session_id: str
    host: str
    pid: int
    version: str
    started_at: Instant
    last_seen_at: Instant
    """It registers every 20 seconds; it is gone from the list when it has not for 60."""
    queues: dict[str, int]
    """The queues that it serves, with how many jobs of each it runs at once."""
    job_types: list[str]
    consumers: list[str] = []
    draining: bool = False
    """It claims nothing more, and ends when its runs have."""
    key_id: str = ""
    """Of its key, where the installation requires one."""


class WorkersPage(Document, frozen=True, kw_only=True):
    """A page of the workers that live, by the id of their session."""

    items: list[WorkerDocument]
    next_cursor: str | None


class QueueState(Document, frozen=True, kw_only=True):
    """How a queue is switched."""

    queue: str
    paused: bool
    max_depth: int | None
    max_depth_per_tenant: int | None


class JobTypeDocument(Document, frozen=True, kw_only=True):
    """A type of job: what its payload must be, and how it is switched."""

    job_type: str
    aliases: list[str]
    queue: str
    queues: list[str]
    """Further ones that a submit may name."""
    priority: int
    max_attempts: int
    timeout_seconds: float
    max_depth: int | None
    max_depth_per_tenant: int | None
    payload_version: int
    payload_schema: dict[str, Any]
    result_schema: dict[str, Any]
    disabled: bool
    paused: bool


class JobTypesDocument(Document, frozen=True, kw_only=True):
    items: list[JobTypeDocument]


class JobTypeState(Document, frozen=True, kw_only=True):
    """How a type of job is switched."""

    job_type: str
    disabled: bool
    paused: bool


class LaneDocument(JobCounts, frozen=True, kw_only=True):
    """The jobs of one queue and type."""

    queue: str
    job_type: str


class StatisticsDocument(JobCounts, frozen=True, kw_only=True):
    """The jobs of a tenant in numbers: all of them, and by queue and type.

    Where there are too many lanes, the fullest are shown.
    """

    lanes: list[LaneDocument]
    lanes_omitted: int
    """How many more there are."""


class ScaleDocument(Document, frozen=True, kw_only=True):
    """What an autoscaler needs. `demand` is what waits and what runs."""

    backlog: int
    running: int
    demand: int
    oldest_age_seconds: float


# -- webhooks -------------------------------------------------------------------------------------


class WebhooksDocument(Document, frozen=True, kw_only=True):
    """The webhooks of a tenant, oldest first."""

    items: list[WebhookEndpoint]


class DeliveryPage(Document, frozen=True, kw_only=True):
    """Deliveries of a webhook, newest first; `nextCursor` leads on, null is the end."""

    items: list[ListedDelivery]
    next_cursor: str | None


# -- audit --------------------------------------------------------------------------------------


class AuditPage(Document, frozen=True, kw_only=True):
    """Events of a tenant's audit chain, newest first."""

    items: list[AuditEvent]
    next_cursor: str | None


# -- following ----------------------------------------------------------------------------------


class StreamTokenDocument(Document, frozen=True, kw_only=True):
    """A token that opens one event stream for a short time, only to read."""

    token: str
    url: str
    """Where the stream is, with the token; for an EventSource."""
    expires_at: Instant


class ResetDocument(Document, frozen=True, kw_only=True):
    """The data of `event: reset`: events were missed that are not known any more."""

    detail: str

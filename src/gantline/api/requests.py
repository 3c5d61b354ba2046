"""What clients send: bodies and query parameters, with their bounds. Unknown names are refused.

Not those of a job to be submitted: other systems put members of their own into their envelopes.
"""

from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gantline.api.documents import Document, Instant
from gantline.api.envelopes import Attempts, Delay, Envelope, IdempotencyKey, Name, Subject
from gantline.auth.stream_tokens import LONGEST
from gantline.contract.bounds import Priority
from gantline.contract.webhook import DeliveryStatus, ReplayRequest, WebhookSpec

Reason = Annotated[str, Meta(min_length=1, max_length=64)]
ErrorCode = Annotated[str, Meta(min_length=1, max_length=128)]
Depth = Annotated[int, Meta(ge=0, le=10**9)]
Limit = Annotated[int, Meta(ge=1, le=200)]
CursorText = Annotated[str, Meta(max_length=128)]
StreamTokenText = Annotated[str, Meta(max_length=LONGEST, pattern="^[A-Za-z0-9_-]*$")]
EventId = Annotated[str, Meta(max_length=128)]


class Sent(Document, frozen=True, forbid_unknown_fields=True):
    """What a client sends. A key that is not known is refused, not ignored."""


class JobToSubmit(Envelope, frozen=True, kw_only=True):
    """A job to be submitted: the Job Contract, of which only `jobType` is needed.

    A key that is not known is ignored, and named in the `warnings` of the answer. `jobId` becomes
    the external id. `createdBy`, if it is not the caller, needs the right `jobs:submit-for`.
    `group` needs the right `jobs:route` where the type has limits, or groups of its own.
    `parentJobId` is ignored, with a warning, unless it is a job that the caller may read.
    """


class JobEdited(Sent, frozen=True, kw_only=True):
    """What is different in the new job that an edited redrive makes; the rest is the old job's."""

    payload: msgspec.Raw | UnsetType = UNSET
    subject_id: Subject | None = None
    idempotency_key: IdempotencyKey | None = None
    max_attempts: Attempts | None = None
    queue: Name | None = None
    priority: Priority | None = None
    delay_seconds: Delay | None = None


class JobsToSubmit(Sent, frozen=True, kw_only=True):
    """Many jobs at once; each is accepted or refused on its own."""

    jobs: Annotated[list[JobToSubmit], Meta(min_length=1, max_length=1000)]


class RedriveByFilter(Sent, frozen=True, kw_only=True):
    """Which dead letters to queue again: those named, those that match every field, or all."""

    job_ids: Annotated[list[UUID], Meta(max_length=1000)] = msgspec.field(default_factory=list)
    job_types: Annotated[list[Name], Meta(max_length=100)] = msgspec.field(default_factory=list)
    reasons: Annotated[list[Reason], Meta(max_length=100)] = msgspec.field(default_factory=list)
    subject_id: Subject | None = None
    created_from: Instant | None = None
    created_before: Instant | None = None
    tenant_id: Name | None = None
    all: bool = False
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    dry_run: bool = False


class DepthCap(Sent, frozen=True, kw_only=True):
    """How many jobs may wait in a queue, of all tenants together and of each; null for no limit.

    What is not sent of each tenant stays as it is.
    """

    max_depth: Depth | None
    max_depth_per_tenant: Depth | UnsetType | None = UNSET


class WebhookToKeep(WebhookSpec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which events to send, where to and how; only `url` is needed."""


class WebhookToCreate(WebhookToKeep, frozen=True, kw_only=True):
    """The same, with the secret that its receiver has from another system; made where there is
    none."""

    secret: Annotated[str, Meta(max_length=256)] | None = None
    """`whsec_…`, or a plain text. It is never shown again."""

    @property
    def spec(self) -> WebhookToKeep:
        """All but the secret, which is kept apart."""
        return WebhookToKeep(
            **{name: getattr(self, name) for name in WebhookToKeep.__struct_fields__}
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.spec}, secret hidden)"


class DeliveriesToReplay(ReplayRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which deliveries of a webhook to make once more: the newest that match."""


# -- queries ------------------------------------------------------------------------------------


class Search(Sent, frozen=True, kw_only=True):
    """What can be asked of any list of jobs: every given field must match."""

    job_type: Annotated[list[Name], Meta(max_length=100)] = msgspec.field(default_factory=list)
    queue: Annotated[list[Name], Meta(max_length=100)] = msgspec.field(default_factory=list)
    error_code: Annotated[list[ErrorCode], Meta(max_length=100)] = msgspec.field(
        default_factory=list
    )
    """Of the last error of a job that has not completed."""
    subject_id: Subject | None = None
    created_by: Annotated[str, Meta(max_length=256)] | None = None
    correlation_id: Annotated[str, Meta(max_length=256)] | None = None
    parent_job_id: UUID | None = None
    created_from: Instant | None = None
    created_before: Instant | None = None
    min_attempts: Annotated[int, Meta(ge=0, le=1000)] = 0
    """Jobs of which so many attempts have begun."""
    internal: bool = False
    """Gantline's own jobs, deliveries of webhooks, too. They are also found by their type."""
    tenant_id: Name | None = None
    all_tenants: bool = False
    """Of every tenant that the caller may see; only an operator of the installation sees others."""
    limit: Limit = 50
    cursor: CursorText | None = None


class JobQuery(Search, frozen=True, kw_only=True):
    """Which jobs to list."""

    status: Annotated[list[str], Meta(max_length=20)] = msgspec.field(default_factory=list)
    """Queued, Running, Completed, Failed, Poisoned or Cancelled, or what is shown as `state`:
    Scheduled, Retrying, Cancelling."""
    due_before: Instant | None = None
    """Queued jobs that are due before this instant."""


class DeadQuery(Search, frozen=True, kw_only=True):
    """Which dead letters to list."""

    reason: Annotated[list[Reason], Meta(max_length=100)] = msgspec.field(default_factory=list)


class AuditQuery(Sent, frozen=True, kw_only=True):
    """Which audit events to list: every given field must match."""

    aggregate: Subject | None = None
    actor: Annotated[str, Meta(max_length=256)] | None = None
    action: Name | None = None
    since: Instant | None = None
    tenant_id: Name | None = None
    limit: Limit = 50
    cursor: CursorText | None = None


class TenantQuery(Sent, frozen=True, kw_only=True):
    """Whose; only an operator of the installation may name another tenant than their own."""

    tenant_id: Name | None = None


class RotateQuery(TenantQuery, frozen=True, kw_only=True):
    """For how long the old secret signs as well."""

    overlap_seconds: Annotated[int, Meta(ge=0, le=30 * 86_400)] = 86_400


class DeliveryQuery(TenantQuery, frozen=True, kw_only=True):
    """Which deliveries to list."""

    status: DeliveryStatus | None = None
    limit: Limit = 50
    cursor: CursorText | None = None


class ScaleQuery(Sent, frozen=True, kw_only=True):
    """For which workers to count: those that serve these queues and types; all if none is named."""

    queue: Annotated[list[Name], Meta(max_length=100)] = msgspec.field(default_factory=list)
    job_type: Annotated[list[Name], Meta(max_length=100)] = msgspec.field(default_factory=list)
    tenant_id: Name | None = None


class StatisticsQuery(ScaleQuery, frozen=True, kw_only=True):
    """Which lanes to count, and how many of them to show one by one: the fullest."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 200


class QueuesQuery(TenantQuery, frozen=True, kw_only=True):
    """Which queues to show, and how many of them: the fullest."""

    queue: Annotated[list[Name], Meta(max_length=100)] = msgspec.field(default_factory=list)
    limit: Annotated[int, Meta(ge=1, le=1000)] = 200


class WorkersQuery(Sent, frozen=True, kw_only=True):
    """Which workers to list."""

    limit: Limit = 50
    cursor: CursorText | None = None


class JobEventsQuery(Sent, frozen=True, kw_only=True):
    """How to follow a job, for clients that can send no headers."""

    token: StreamTokenText | None = None
    last_event_id: EventId | None = None


class EventsQuery(Sent, frozen=True, kw_only=True):
    """Which jobs to follow: every given field must match."""

    job_id: Annotated[list[UUID], Meta(max_length=100)] = msgspec.field(default_factory=list)
    job_type: Annotated[list[Name], Meta(max_length=100)] = msgspec.field(default_factory=list)
    subject_id: Subject | None = None
    tenant_id: Name | None = None
    token: StreamTokenText | None = None
    last_event_id: EventId | None = None


class NoQuery(Sent, frozen=True, kw_only=True):
    """No parameters."""

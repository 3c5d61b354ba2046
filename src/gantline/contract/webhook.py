"""Webhooks as everybody sees them: an endpoint, a delivery, and what may be said of them.

Shared by `webhooks` and `api`. Nothing here holds a secret but `IssuedWebhook`.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final
from urllib.parse import urlsplit
from uuid import UUID

import msgspec
from msgspec import Meta

from gantline.contract.job import RESERVED_NAMES
from gantline.contract.status import Event

RESERVED_TYPES: Final = RESERVED_NAMES
"""What the types of Gantline's own jobs begin with; no consumer gets their events."""
DELIVERY_TYPE: Final = "gantline.webhook-delivery"
TEST_EVENT: Final = "webhook.test"
EVENT_TYPES: Final = tuple(
    f"job.{event}"
    for event in (
        Event.COMPLETED,
        Event.FAILED,
        Event.POISONED,
        Event.CANCELLED,
        Event.RETRIED,
        Event.REDRIVEN,
        Event.SUBMITTED,
        Event.STARTED,
        Event.PROGRESSED,
    )
)
"""What endpoints can subscribe to, beside domain events; `job.*` is all of it. The last three
happen only to jobs whose type asks for them."""
OUTCOMES: Final = EVENT_TYPES[:4]
"""How a job can end: what an endpoint gets where nothing else is asked for."""


class BodyFormat(StrEnum):
    """What the body of a delivery looks like."""

    STANDARD = "standard"
    """`{type, timestamp, data}`, as Standard Webhooks has it."""
    CLOUDEVENTS = "cloudevents"
    """CloudEvents 1.0 in structured mode."""
    BPC = "bpc"
    """`{event_id, event_type, aggregate_type, aggregate_id, occurred_at, payload}`."""


class WebhookSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What an endpoint subscribes to, and how it is delivered."""

    url: Annotated[str, Meta(min_length=1, max_length=2048)]
    description: Annotated[str, Meta(max_length=512)] = ""
    event_types: Annotated[tuple[str, ...], Meta(min_length=1, max_length=20)] = msgspec.field(
        default_factory=lambda: OUTCOMES
    )
    """How jobs end, where nothing else is asked for. `domain.*` is all domain events."""
    job_types: Annotated[tuple[str, ...], Meta(max_length=100)] = msgspec.field(
        default_factory=lambda: ()
    )
    """Of which types of jobs; of all where none is named."""
    format: BodyFormat = BodyFormat.STANDARD
    header_prefix: Annotated[str, Meta(max_length=40)] = "X-Gantline"
    """What the headers `-Signature`, `-Event-Type` and `-Delivery-Id` begin with."""
    timeout_seconds: Annotated[float, Meta(ge=1, le=60)] = 30.0
    concurrency: Annotated[int, Meta(ge=1, le=100)] = 4
    """How many deliveries a worker process has under way to it at once."""
    retry_seconds: (
        Annotated[tuple[Annotated[float, Meta(ge=0, le=604_800)], ...], Meta(max_length=50)] | None
    ) = None
    """The waits after failed attempts, one by one; null is the usual schedule of three days."""


def host_of(url: str) -> str:
    """Where a URL leads, for the audit; the rest of it may be a secret."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


class StandardEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a delivery in the standard format."""

    type: str
    timestamp: datetime
    data: Any
    """An OutcomeDocument, or the DomainDocument of a domain event."""


class WebhookStatus(StrEnum):
    ENABLED = "enabled"
    DISABLED = "disabled"


class WebhookEndpoint(WebhookSpec, frozen=True, kw_only=True):
    """An endpoint, as it is shown: everything but its secrets, which nobody can read again."""

    webhook_id: UUID
    tenant_id: str
    status: WebhookStatus
    status_reason: str
    status_since: datetime
    failing_since: datetime | None
    """Since when nothing was delivered, though it was tried."""
    created_at: datetime
    created_by: str
    updated_at: datetime
    updated_by: str
    """Who made it what it is, its URL or its secret; who created it, where nobody has since."""
    old_secret_until: datetime | None
    """While a secret is rotated: how long deliveries are signed by the old one as well."""


class IssuedWebhook(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An endpoint with its secret, which is shown this once."""

    secret: str
    """Empty where whoever created the endpoint gave it one."""
    webhook: WebhookEndpoint

    def __repr__(self) -> str:
        return f"IssuedWebhook({self.webhook.webhook_id}, secret hidden)"


class DeliveryStatus(StrEnum):
    PENDING = "PENDING"
    """It is still to be tried, or to be tried again."""
    DELIVERED = "DELIVERED"
    FAILED = "FAILED"


class DeliveryAttempt(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One try: what the receiver answered, or why it did not."""

    attempt: int
    started_at: datetime | None
    ended_at: datetime
    http_status: int | None
    latency_seconds: float | None
    """Until the status came, or until it was given up."""
    error_code: str | None
    error_message: str | None
    response_headers: dict[str, str]
    response_body: str


class ListedDelivery(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A delivery in a list."""

    delivery_id: UUID
    """Of the job that delivers."""
    webhook_id: UUID
    message_id: str
    """The receiver sees it as `webhook-id`; it stays the same when the delivery is replayed."""
    event_id: str
    event_type: str
    job_id: UUID | None
    """The job that the event is of."""
    status: DeliveryStatus
    attempts: int
    max_attempts: int
    http_status: int | None
    error_code: str | None
    error_message: str | None
    created_at: datetime
    next_attempt_at: datetime | None
    ended_at: datetime | None


class WebhookDelivery(ListedDelivery, frozen=True, kw_only=True):
    """All of a delivery: its body, and the result of each attempt, oldest first."""

    body: str
    tries: list[DeliveryAttempt]


class ReplayRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which deliveries of an endpoint to make once more: the newest that match."""

    status: DeliveryStatus = DeliveryStatus.FAILED
    created_from: Annotated[datetime, Meta(tz=True)] | None = None
    created_before: Annotated[datetime, Meta(tz=True)] | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    dry_run: bool = False


class ReplayReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a replay did, or would do."""

    dry_run: bool
    matching: int
    replayed: int
    more: bool
    """Whether there are others beyond the limit that match too."""

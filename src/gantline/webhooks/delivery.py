"""A delivery on its way: the payload of the job that makes it, and that job itself."""

from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import msgspec

from gantline.contract.job import Job
from gantline.contract.payload import fingerprint
from gantline.contract.retry import RetryTable
from gantline.contract.submission import NewJob
from gantline.contract.webhook import DELIVERY_QUEUE, DELIVERY_TYPE, WebhookSpec
from gantline.webhooks.bodies import Body

PRIORITY: Final = 3

SCHEDULE: Final = RetryTable(
    # As Standard Webhooks recommends: a little over three days.
    waits=tuple(timedelta(seconds=seconds) for seconds in (5, 300, 1800))
    + tuple(timedelta(hours=hours) for hours in (2, 5, 10, 14, 20, 24)),
    attempts=10,
)
JITTER: Final = 0.2


class Delivery(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What is to be sent. The body is kept as it was made: its job may be gone at a late retry,
    and what is sent again must be the same, byte for byte."""

    webhook_id: UUID
    event_id: str
    event_type: str
    content_type: str
    body: str
    message_id: str = ""
    """What the receiver knows it by; empty: the id of this job."""
    is_test: bool = False


def delivery_job(
    delivery: Delivery,
    spec: WebhookSpec,
    *,
    job_id: UUID,
    tenant_id: str,
    now: datetime,
    correlation_id: str = "",
    parent: UUID | None = None,
    created_by: str = "",
) -> NewJob:
    """The job that makes a delivery. It is Gantline's own, so no check of the users' is asked."""
    data = msgspec.to_builtins(delivery)
    job = Job(
        job_id=job_id,
        job_type=DELIVERY_TYPE,
        subject_id=str(delivery.webhook_id),
        correlation_id=correlation_id,
        max_attempts=1 if delivery.is_test else attempts_of(spec),
        payload=msgspec.Raw(msgspec.json.encode(data)),
        created_at=now,
        tenant_id=tenant_id,
        queue=DELIVERY_QUEUE,
        priority=PRIORITY,
        created_by=created_by,
        parent_job_id=parent,
    )
    return NewJob(job, fingerprint(data, job.payload_version))


def delivery_of(body: Body, webhook_id: UUID, event_id: str, *, is_test: bool = False) -> Delivery:
    return Delivery(
        webhook_id=webhook_id,
        event_id=event_id,
        event_type=body.event_type,
        content_type=body.content_type,
        body=body.text.decode(),
        is_test=is_test,
    )


def attempts_of(spec: WebhookSpec) -> int:
    return SCHEDULE.attempts if spec.retry_seconds is None else len(spec.retry_seconds) + 1


def wait_after(attempt: int, spec: WebhookSpec, *, chance: float) -> timedelta:
    """How long to wait after failed attempt number `attempt`; `chance` is from 0 to 1."""
    waits = (
        [wait.total_seconds() for wait in SCHEDULE.waits]
        if spec.retry_seconds is None
        else spec.retry_seconds
    )
    seconds = waits[min(attempt, len(waits)) - 1] if waits else 0.0
    return timedelta(seconds=seconds * (1 + JITTER * chance))

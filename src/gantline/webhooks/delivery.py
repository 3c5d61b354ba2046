"""A delivery: the payload of its job, that job, and the result of an attempt."""

import re
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec

from gantline.contract.job import DELIVERY_QUEUE, Job
from gantline.contract.payload import fingerprint
from gantline.contract.snapshot import LogEntry
from gantline.contract.submission import NewJob
from gantline.contract.webhook import DELIVERY_TYPE, DeliveryAttempt, WebhookSpec
from gantline.webhooks.bodies import Body
from gantline.webhooks.retry import NoResponse, WebhookResponse, count_attempts

PRIORITY: Final = 3
_BODY_LIMIT: Final = 2048
_HEADERS_LIMIT: Final = 32
_HEADERS_TEXT_LIMIT: Final = 2000
_NOT_KEPT: Final = frozenset({"set-cookie", "set-cookie2", "authorization", "proxy-authorization"})
# They would be six characters each in JSON, and could control a terminal.
_UNPRINTABLE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


class Delivery(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What is to be sent. The body is stored: the job that it is about may be deleted before a late
    retry, and a retry must send the same bytes."""

    webhook_id: UUID
    event_id: str
    event_type: str
    content_type: str
    body: str
    message_id: str = ""
    """The id that the receiver sees; empty: the id of this job."""
    is_test: bool = False


def build_delivery_job(
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
    """Build the job of a delivery. It is Gantline's own, so no validation of the user runs."""
    data = msgspec.to_builtins(delivery)
    job = Job(
        job_id=job_id,
        job_type=DELIVERY_TYPE,
        subject_id=str(delivery.webhook_id),
        correlation_id=correlation_id,
        max_attempts=1 if delivery.is_test else count_attempts(spec),
        payload=msgspec.Raw(msgspec.json.encode(data)),
        created_at=now,
        tenant_id=tenant_id,
        queue=DELIVERY_QUEUE,
        priority=PRIORITY,
        created_by=created_by,
        parent_job_id=parent,
    )
    return NewJob(job, fingerprint(data, job.payload_version))


def build_delivery(
    body: Body, webhook_id: UUID, event_id: str, *, is_test: bool = False
) -> Delivery:
    return Delivery(
        webhook_id=webhook_id,
        event_id=event_id,
        event_type=body.event_type,
        content_type=body.content_type,
        body=body.text.decode(),
        is_test=is_test,
    )


class AttemptResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What is kept of an attempt, limited in size: as the result of the run that delivered, or as
    the detail of a failure."""

    http_status: int | None = None
    latency_seconds: float | None = None
    response_headers: dict[str, str] = msgspec.field(default_factory=dict)
    response_body: str = ""

    @classmethod
    def of(cls, response: WebhookResponse | NoResponse) -> "AttemptResult":
        if isinstance(response, NoResponse):
            return cls()
        return cls(
            http_status=response.status,
            latency_seconds=round(response.seconds, 6),
            response_headers=_keep_headers(response),
            response_body=_replace_unprintable(
                response.body.decode("utf-8", "replace")[:_BODY_LIMIT]
            ),
        )

    def text(self) -> str:
        return msgspec.json.encode(self).decode()


_NOTHING_SENT: Final = AttemptResult()


def read_attempt(entry: LogEntry) -> AttemptResult | None:
    """Read the attempt of a log entry; None where nothing was sent."""
    text: bytes | str = entry.result or (entry.error.detail if entry.error else "")
    try:
        return msgspec.json.decode(text, type=AttemptResult)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def describe_attempt(entry: LogEntry) -> DeliveryAttempt:
    known, error = read_attempt(entry) or _NOTHING_SENT, entry.error
    return DeliveryAttempt(
        attempt=entry.attempt,
        started_at=entry.started_at,
        ended_at=entry.at,
        http_status=known.http_status,
        latency_seconds=known.latency_seconds,
        error_code=error.code if error else None,
        error_message=error.message if error else None,
        response_headers=known.response_headers,
        response_body=known.response_body,
    )


def _keep_headers(response: WebhookResponse) -> dict[str, str]:
    kept: dict[str, str] = {}
    room = _HEADERS_TEXT_LIMIT
    for name, value in response.headers[:_HEADERS_LIMIT]:
        if name in _NOT_KEPT:
            continue
        name, value = _replace_unprintable(name), _replace_unprintable(value)[:room]
        room -= len(name) + len(value)
        if room < 0:
            break
        kept[name] = f"{kept[name]}, {value}" if name in kept else value
    return kept


def _replace_unprintable(text: str) -> str:
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)

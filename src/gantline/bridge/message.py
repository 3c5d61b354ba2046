"""A message as brokers carry it: a body, and the properties that name it."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from gantline.contract.job import Job
from gantline.contract.job_event import JobEvent

JSON: Final = "application/json"
CLOUD_EVENT: Final = "application/cloudevents+json"

Property = str | int


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent or received. A broker that has no place for one of these leaves it out."""

    body: bytes
    message_id: str = ""
    correlation_id: str = ""
    subject: str = ""
    content_type: str = JSON
    at: datetime | None = None
    properties: Mapping[str, Property] = msgspec.field(default_factory=dict)
    is_readable: bool = True
    """Whether what the broker said beside the body could be read."""


class Rejection(StrEnum):
    """Why a message is in the broker's dead letters."""

    INVALID_FORMAT = "InvalidFormat"
    """It is no job envelope, or one that breaks the contract: sending it again changes nothing."""
    NO_HANDLER = "NoHandler"
    CONFLICT = "IdempotencyConflict"
    """Its id or key belongs to a job with another payload."""


class Rejected(Exception):
    """A message that can never become a job. `detail` names no value that was sent."""

    def __init__(self, reason: Rejection, error_code: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.error_code = error_code
        self.detail = detail


def envelope_message(job: Job) -> Message:
    """A job on its way to a broker, named as the contract says."""
    return Message(
        body=job.to_json(),
        message_id=job.broker_message_id,
        correlation_id=job.correlation_id,
        subject=job.job_type,
        at=job.created_at,
        properties=_properties(job, job.attempt),
    )


def outcome_message(event: JobEvent, *, source: str) -> Message:
    """An outcome on its way to a broker, as a CloudEvent; the same each time it is told."""
    return Message(
        body=msgspec.json.encode(event.cloud_event(source)),
        message_id=event.event_id,
        correlation_id=event.job.correlation_id,
        subject=event.type,
        content_type=CLOUD_EVENT,
        at=event.entry.at,
        properties=_properties(event.job, max(1, event.entry.attempt)),
    )


def _properties(job: Job, attempt: int) -> dict[str, Property]:
    return {
        "JobType": job.job_type,
        "Attempt": attempt,
        "CreatedAt": job.created_at.isoformat().replace("+00:00", "Z"),
    }

"""Messages as brokers carry them, and the job envelopes that are read out of them."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID, uuid5

import msgspec

from gantline.contract.envelope import check_created_at
from gantline.contract.errors import Code, InvalidEnvelope
from gantline.contract.job import Job, read_job, with_own_id
from gantline.contract.job_event import JobEvent
from gantline.runtime import now

JSON: Final = "application/json"
CLOUD_EVENT: Final = "application/cloudevents+json"

Property = str | int


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent or received. A broker that does not know one of these fields leaves it out."""

    body: bytes
    message_id: str = ""
    correlation_id: str = ""
    subject: str = ""
    content_type: str = JSON
    at: datetime | None = None
    properties: Mapping[str, Property] = msgspec.field(default_factory=dict)
    is_readable: bool = True
    """Whether the properties could be read."""


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


def encode_envelope(job: Job) -> Message:
    """Make the message of a job, with the properties that the contract names."""
    return Message(
        body=job.to_json(),
        message_id=job.broker_message_id,
        correlation_id=job.correlation_id,
        subject=job.job_type,
        at=job.created_at,
        properties=_build_properties(job, job.attempt),
    )


def encode_outcome(event: JobEvent, *, source: str) -> Message:
    """Make the message of an outcome, a CloudEvent; of the same event always the same."""
    return Message(
        body=msgspec.json.encode(event.cloud_event(source)),
        message_id=event.event_id,
        correlation_id=event.job.correlation_id,
        subject=event.type,
        content_type=CLOUD_EVENT,
        at=event.entry.at,
        properties=_build_properties(event.job, max(1, event.entry.attempt)),
    )


def _build_properties(job: Job, attempt: int) -> dict[str, Property]:
    return {
        "JobType": job.job_type,
        "Attempt": attempt,
        "CreatedAt": job.created_at.isoformat().replace("+00:00", "Z"),
    }


MOST_BYTES: Final = 1 << 20
"""Of a body that is read at all; an envelope with the largest payload stays far below."""

MEMBERS: Final = frozenset(Job.__struct_encode_fields__) - {"externalId"}
"""What is taken of an envelope."""
_IDENTITY: Final = UUID("5f0c1f0e-7d0b-5b57-9a53-3b0f8d1c6a4e")
_FROM_PROPERTIES: Final = (
    ("jobType", "JobType"),
    ("attempt", "Attempt"),
    ("createdAt", "CreatedAt"),
)


def read_envelope(message: Message) -> dict[str, Any]:
    """Read the fields given by body or properties, still encoded; raise Rejected."""
    if not message.is_readable:
        raise _invalid("The properties of the message cannot be read.")
    if len(message.body) > MOST_BYTES:
        raise _invalid(f"The body is larger than {MOST_BYTES} bytes.")
    try:
        fields = msgspec.json.decode(message.body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise _invalid("The body is not a JSON object.") from None
    given: dict[str, Any] = {key: value for key, value in fields.items() if bytes(value) != b"null"}
    for key, name in _FROM_PROPERTIES:
        if name in message.properties:
            given.setdefault(key, message.properties[name])
    for key, value in (("jobType", message.subject), ("correlationId", message.correlation_id)):
        if value:
            given.setdefault(key, value)
    return given


def read_job_type(given: dict[str, Any]) -> str:
    """Read the job type of an envelope; raise Rejected."""
    name = given.get("jobType", "")
    if isinstance(name, str):
        return name
    try:
        return msgspec.json.decode(name, type=str)
    except (msgspec.DecodeError, UnicodeError, TypeError):  # a number in the properties
        raise _invalid("The jobType is not a text.") from None


def build_job(given: dict[str, Any], message: Message, *, tenant: str, trusts_tenant: bool) -> Job:
    """Build the job that an envelope describes; raise Rejected.

    A message may come twice, so a job must have an identity that comes with it: its own id, else
    one made of the message's id or of the idempotency key. It is a key of the tenant.
    """
    given = {"tenantId": tenant} | given
    try:
        job = read_job(msgspec.json.encode(given))
    except ValueError:  # InvalidFormat is one, and so is what cannot be encoded
        raise _invalid("The body is not a job envelope.") from None
    try:
        check_created_at(job.created_at, now())
    except InvalidEnvelope:
        raise _invalid("The createdAt is in the future.") from None
    if job.tenant_id != tenant and not trusts_tenant:
        raise _invalid("The envelope names a tenant for which this bridge is not open.")
    if "jobId" in given:
        return with_own_id(job)
    identity = message.message_id or job.idempotency_key
    if not identity:
        raise _invalid("There is neither a jobId, nor a message id, nor an idempotencyKey.")
    try:
        name = msgspec.json.encode([job.tenant_id, job.job_type, identity]).decode()
    except UnicodeEncodeError:
        raise _invalid("The message id is not a text.") from None
    return with_own_id(msgspec.structs.replace(job, job_id=uuid5(_IDENTITY, name)))


def _invalid(detail: str) -> Rejected:
    return Rejected(Rejection.INVALID_FORMAT, Code.INVALID_FORMAT, detail)

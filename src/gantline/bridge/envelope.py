"""Reading an envelope out of a message: what the body leaves out, the properties may say."""

from typing import Any, Final
from uuid import UUID, uuid5

import msgspec

from gantline.bridge.message import Message, Rejected, Rejection
from gantline.contract.errors import Code, InvalidFormat
from gantline.contract.job import Job, read_job

MOST_BYTES: Final = 1 << 20
"""Of a body that is read at all; an envelope with the largest payload stays far below."""

_IDENTITY: Final = UUID("5f0c1f0e-7d0b-5b57-9a53-3b0f8d1c6a4e")
_FROM_PROPERTIES: Final = (
    ("jobType", "JobType"),
    ("attempt", "Attempt"),
    ("createdAt", "CreatedAt"),
)


def read_envelope(message: Message) -> dict[str, Any]:
    """The fields that were given, by body or properties, still encoded; raise Rejected."""
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


def job_type_of(given: dict[str, Any]) -> str:
    """Which type of job an envelope is of; raise Rejected."""
    name = given.get("jobType", "")
    if isinstance(name, str):
        return name
    try:
        return msgspec.json.decode(name, type=str)
    except (msgspec.DecodeError, UnicodeError):
        raise _invalid("The jobType is not a text.") from None


def job_of(given: dict[str, Any], message: Message, *, tenant: str, trusts_tenant: bool) -> Job:
    """The job that an envelope describes; raise Rejected.

    A message may come twice, so a job must have an identity that comes with it: its own id, else
    one made of the message's id or of the idempotency key.
    """
    given = {"tenantId": tenant} | given
    try:
        job = read_job(msgspec.json.encode(given))
    except (InvalidFormat, UnicodeEncodeError):
        raise _invalid("The body is not a job envelope.") from None
    if job.tenant_id != tenant and not trusts_tenant:
        raise _invalid("The envelope names a tenant for which this bridge is not open.")
    if "jobId" in given:
        return job
    identity = message.message_id or job.idempotency_key
    if not identity:
        raise _invalid("There is neither a jobId, nor a message id, nor an idempotencyKey.")
    try:
        name = msgspec.json.encode([job.tenant_id, job.job_type, identity]).decode()
    except UnicodeEncodeError:
        raise _invalid("The message id is not a text.") from None
    return msgspec.structs.replace(job, job_id=uuid5(_IDENTITY, name))


def _invalid(detail: str) -> Rejected:
    return Rejected(Rejection.INVALID_FORMAT, Code.INVALID_FORMAT, detail)

"""Jobs to be submitted: what can be said of one, and how they are sent."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any, Final, TypedDict, Unpack
from uuid import UUID

import msgspec
from msgspec import UNSET

from gantline.api.requests import JobEdited, JobToSubmit
from gantline.contract.bounds import held_as
from gantline.contract.codec import codec_for
from gantline.contract.envelope import AnyEnvelope, read_members
from gantline.contract.errors import InvalidInput
from gantline.contract.job import check_expires_in
from gantline.contract.payload import check_encoded
from gantline.runtime import now

# Whether a payload is too large is for the server to say; some allow more than others.
_NO_LIMIT: Final = 2**31
_MOST_JOBS: Final = 1000
_MOST_BYTES: Final = 900 * 1024
_SENT_AS: Final = {
    "subject": "subject_id",
    "delay": "delay_seconds",
    "at": "scheduled_at",
    "tenant": "tenant_id",
}


class EditOptions(TypedDict, total=False):
    """What can be different in the job that an edited redrive makes."""

    subject: str
    idempotency_key: str
    """Of the job: two of a type with the same key are the same job."""
    queue: str
    priority: int
    delay: timedelta | float
    """Or seconds."""
    max_attempts: int


class JobOptions(EditOptions, total=False):
    """What can be said about a job beside its type and payload. What is not said, its type says."""

    job_id: UUID
    """The external id: within the tenant, a repeat with the same id finds the same job."""
    correlation_id: str
    at: datetime
    expires_in: timedelta | float
    """Counted from now, by the clock of this host. If no run has begun by then, none begins."""
    payload_version: int
    tenant: str
    group: str
    """Whose turn it takes within its tenant, instead of what its type says."""


def new_job(job_type: str, payload: Any = None, **options: Unpack[JobOptions]) -> JobToSubmit:
    """Make a job, for `submit_many`; raise InvalidInput where the payload is no JSON data."""
    _check_options(options, JobOptions.__optional_keys__)
    at = options.get("at")
    if at is not None and at.tzinfo is None:
        raise InvalidInput("An instant needs its time zone.", next_step="Give it tzinfo=UTC.")
    return JobToSubmit(job_type=job_type, payload=_encoded_payload(payload), **_fields(options))


def edited_job(payload: Any, options: EditOptions) -> JobEdited:
    _check_options(options, EditOptions.__optional_keys__)
    body = UNSET if payload is UNSET else _encoded_payload(payload)
    return JobEdited(payload=body, **_fields(options))


def _check_options(options: Mapping[str, Any], known: frozenset[str]) -> None:
    """Raise TypeError for an option that there is not: what is misspelt must not be left out."""
    for name in sorted(options.keys() - known):
        alike = get_close_matches(name, known, n=1)
        meant = f"Is {alike[0]} meant?" if alike else f"There are {', '.join(sorted(known))}."
        raise TypeError(f"There is no option {name!r} of a job. {meant}")


def _fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as fields of what is sent."""
    fields = {_SENT_AS.get(name, name): value for name, value in options.items()}
    if (expires_in := fields.pop("expires_in", None)) is not None:
        span = held_as("expires_in", expires_in, timedelta)
        check_expires_in(span)
        fields["expires_at"] = now() + span
    return fields | {"delay_seconds": seconds_of(options.get("delay"))}


def _encoded_payload(payload: Any) -> msgspec.Raw:
    if isinstance(payload, msgspec.Raw):  # JSON already
        check_encoded(bytes(payload), limit=_NO_LIMIT)
        return payload
    return msgspec.Raw(codec_for(type(payload)).encode(payload, limit=_NO_LIMIT).body)


def seconds_of(span: timedelta | float | None) -> float | None:
    """A span of time that may be given in seconds."""
    return span.total_seconds() if isinstance(span, timedelta) else span


def encoded(document: msgspec.Struct) -> bytes:
    """What was said, as JSON; what was not said is left out."""
    fields = msgspec.structs.fields(document)
    said = {field.encode_name: getattr(document, field.name) for field in fields}
    return msgspec.json.encode(
        {name: value for name, value in said.items() if value is not None and value is not UNSET}
    )


def envelope_body(envelope: AnyEnvelope, tenant: str | None) -> bytes:
    """An envelope as it is sent: as it came, for this tenant if it names none."""
    members = read_members(envelope)
    if tenant is not None and bytes(members.get("tenantId", b"null")) == b"null":
        members["tenantId"] = msgspec.Raw(msgspec.json.encode(tenant))
    return msgspec.json.encode(members)


def batches(jobs: Iterable[JobToSubmit]) -> Iterator[bytes]:
    """The bodies of as many requests as it takes: neither too many jobs nor bytes in one."""
    parts: list[bytes] = []
    size = 0
    for job in jobs:
        part = encoded(job)
        if parts and (len(parts) == _MOST_JOBS or size + len(part) > _MOST_BYTES):
            yield _batch(parts)
            parts, size = [], 0
        parts.append(part)
        size += len(part) + 1
    if parts:
        yield _batch(parts)


def _batch(parts: list[bytes]) -> bytes:
    return b'{"jobs":[%b]}' % b",".join(parts)

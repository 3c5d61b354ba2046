"""Between jobs and what is kept of them: packed once when they are submitted, never changed."""

from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from gantline.contract.clock import LAST_MICROS, from_micros, span_micros
from gantline.contract.errors import InvalidInput
from gantline.contract.identity import uuid_text
from gantline.contract.job import Job
from gantline.contract.submission import DedupeKey, NewJob

_encode: Final = msgspec.msgpack.Encoder().encode
_SIGN: Final = 2**63
_DIGEST_SIZE: Final = 20
_SIZES: Final = tuple(bytes((size,)) for size in range(256))


class _Envelope(msgspec.Struct, array_like=True, frozen=True):
    """The fields in the order in which they are packed, behind the fingerprint. The scripts know
    the first eight."""

    tenant: str
    job_type: str
    subject: str
    created_by: str
    queue: str
    correlation: str | None
    """None: its own id, as it is of most jobs."""
    idempotency_key: str
    parent: str
    attempt: int
    max_attempts: int
    payload: bytes
    payload_version: int
    priority: int
    created_at: int
    trace_context: dict[str, str] | None
    scheduled_at: int | None


_decode: Final = msgspec.msgpack.Decoder(_Envelope).decode


def packed(value: object) -> bytes:
    """Pack plain values for a script, or say that they cannot be kept."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        raise InvalidInput("A text contains a lone surrogate, which is not text.") from None


def binary(value: bytes) -> msgspec.Raw:
    """Bytes as the scripts can read them: their MessagePack knows texts only, of any bytes."""
    size = len(value)
    if size < 2**5:
        return msgspec.Raw(b"%c%b" % (0xA0 | size, value))
    if size < 2**8:
        return msgspec.Raw(b"\xd9%c%b" % (size, value))
    return msgspec.Raw(b"\xdb%b%b" % (size.to_bytes(4, "big"), value))


def pack_job(new: NewJob, *, created_at: int, scheduled_at: int | None) -> bytes:
    job = new.job
    fields = packed(
        (
            job.tenant_id,
            job.job_type,
            job.subject_id,
            job.created_by,
            job.queue,
            shared_correlation(job),
            job.idempotency_key,
            job.parent_job_id.hex if job.parent_job_id else "",
            job.attempt,
            job.max_attempts,
            bytes(job.payload),
            job.payload_version,
            job.priority,
            created_at,
            job.trace_context,
            scheduled_at,
        )
    )
    return b"".join((_SIZES[len(new.fingerprint)], new.fingerprint, fields))


def unpack_job(job_id: UUID, envelope: bytes) -> Job:
    fields = _decode(envelope[1 + envelope[0] :])
    return Job(
        job_id=job_id,
        tenant_id=fields.tenant,
        job_type=fields.job_type,
        queue=fields.queue,
        subject_id=fields.subject,
        correlation_id=uuid_text(job_id) if fields.correlation is None else fields.correlation,
        idempotency_key=fields.idempotency_key,
        attempt=fields.attempt,
        max_attempts=fields.max_attempts,
        payload=msgspec.Raw(fields.payload),
        payload_version=fields.payload_version,
        priority=fields.priority,
        created_at=from_micros(fields.created_at),
        created_by=fields.created_by,
        parent_job_id=UUID(fields.parent) if fields.parent else None,
        trace_context=fields.trace_context,
        scheduled_at=None if fields.scheduled_at is None else instant(fields.scheduled_at),
    )


def shared_correlation(job: Job) -> str | None:
    """What a job has in common with others; None where that is its own id."""
    return None if job.correlation_id == uuid_text(job.job_id) else job.correlation_id


def lane_name(queue: str, job_type: str) -> str:
    """One text for both, from which both can be read again."""
    return f"q{len(queue)}:{queue}{job_type}"


def tenant_name(tenant_id: str) -> str:
    return f"t{tenant_id}"


class Lane(NamedTuple):
    """A queue and a type."""

    queue: str
    job_type: str


def read_lane(name: bytes) -> Lane:
    length, _, rest = name.decode()[1:].partition(":")
    return Lane(rest[: int(length)], rest[int(length) :])


def sortable(micros: int) -> bytes:
    """Eight bytes that sort as the instants do, those before 1970 too."""
    return (micros + _SIGN).to_bytes(8, "big")


def digest(key: DedupeKey) -> bytes:
    """What a key is kept under: short however long its names are."""
    return sha256(packed(key.identity)).digest()[:_DIGEST_SIZE]


def instant(micros: float) -> datetime:
    """What a script tells may be rounded, behind the last instant there is."""
    return from_micros(min(int(micros), LAST_MICROS))


@lru_cache(maxsize=256)
def span(time: timedelta) -> int:
    """A script cannot take what is below zero; it means at once."""
    return max(0, span_micros(time))

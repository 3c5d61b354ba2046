"""insert: jobs as the script wants them, and its answers."""

import struct
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from gantline.contract.clock import to_micros
from gantline.contract.identity import uuid_from_bytes
from gantline.contract.job import Job
from gantline.contract.results import Applied, Conflict, Duplicate, InsertResult
from gantline.contract.submission import DedupeKey, KeyKind, NewJob
from gantline.contract.wakeup import Bell
from gantline.stores.redis import scripts
from gantline.stores.redis.calls import AT_ONCE, BATCH, Calls, in_batches
from gantline.stores.redis.connection import Argument
from gantline.stores.redis.rows import (
    binary,
    digest,
    lane_name,
    pack_job,
    packed,
    shared_correlation,
    sortable,
    span,
    tenant_name,
)

_META: Final = struct.Struct(">16s8sBI2BQ")
_SCHEDULED, _DELAYED, _NOW = range(3)
_NIL_SIZE: Final = 1
_INSERTED: Final = Applied(1)

Extras = tuple[object, ...]


async def insert(
    calls: Calls, jobs: Sequence[NewJob], now: bytes, bell: Bell
) -> list[InsertResult]:
    """Store jobs; the write of the last ones rings the bell."""
    answers: list[InsertResult] = []
    for some in in_batches(jobs, BATCH * AT_ONCE):
        channel = bell.ring() if len(answers) + len(some) == len(jobs) else ""
        batches = list(in_batches(some, BATCH))
        said = [_arguments(batch, now, "") for batch in batches[:-1]]
        said.append(_arguments(batches[-1], now, channel))
        reply = await calls.run_each(scripts.INSERT, said)
        read = [read_refusal(answer) or _INSERTED for batch in reply.value for answer in batch]
        answers += as_first_time(read, some) if reply.is_repeated else read
        if channel:
            bell.rang_for(jobs[0].job.job_id)
    return answers


def as_first_time(answers: list[InsertResult], jobs: Sequence[NewJob]) -> list[InsertResult]:
    """What a repeated insert means: a job that is there under its own id is the one we inserted."""
    return [
        _INSERTED if answer == Duplicate(new.job.job_id) else answer
        for answer, new in zip(answers, jobs, strict=True)
    ]


def _arguments(jobs: Sequence[NewJob], now: bytes, channel: str) -> list[Argument]:
    places: dict[tuple[str, str, str], int] = {}
    said: list[Argument] = []
    for new in jobs:
        job = new.job
        place = places.setdefault((job.queue, job.job_type, job.tenant_id), len(places) + 1)
        extras = extras_of(new)
        said += (place, *meta_and_envelope(new), packed(extras) if extras else b"")
    names = [
        name
        for queue, job_type, tenant in places
        for name in (lane_name(queue, job_type), tenant_name(tenant))
    ]
    return [now, channel, len(places), *names, *said]


def meta_and_envelope(new: NewJob) -> tuple[bytes, bytes]:
    job = new.job
    created = to_micros(job.created_at)
    scheduled = None if job.scheduled_at is None else to_micros(job.scheduled_at)
    envelope = pack_job(new, created_at=created, scheduled_at=scheduled)
    told, time = _NOW, 0
    if scheduled is not None:
        told, time = _SCHEDULED, max(0, scheduled)
    elif new.delay:
        told, time = _DELAYED, span(new.delay)
        envelope = envelope[:-_NIL_SIZE]  # the script adds when
    meta = _META.pack(
        job.job_id.bytes,
        sortable(created),
        job.priority,
        job.attempts_used,
        new.logged,
        told,
        time,
    )
    return meta, envelope


def extras_of(new: NewJob) -> Extras | None:
    """The keys of a job and what it is listed by; None for most."""
    listed = listed_by(new.job)
    if not (new.job.idempotency_key or new.request_key or any(listed)):
        return None
    return (
        _request(new.request_key) if new.request_key else False,
        (binary(digest(key)), binary(new.fingerprint)) if (key := new.job_key) else False,
        *listed,
    )


def listed_by(job: Job) -> tuple[str, str, str, str]:
    """In which lists a job is beside that of its status: by owner, subject, correlation, parent."""
    parent = job.parent_job_id.hex if job.parent_job_id else ""
    return job.created_by, job.subject_id, shared_correlation(job) or "", parent


def _request(key: DedupeKey) -> tuple[object, ...]:
    names = packed((key.tenant_id, key.scope, key.key, key.fingerprint))
    hold = span(key.hold or timedelta(0))
    return binary(digest(key)), binary(key.fingerprint), hold, binary(names)


def read_refusal(answer: int | bytes) -> Duplicate | Conflict | None:
    """Why a job was not stored; None if it was."""
    match answer:
        case bytes() if answer[:1] == b"D":
            kind = answer[17:].decode()
            return Duplicate(uuid_from_bytes(answer[1:17]), by=KeyKind(kind) if kind else None)
        case b"I":
            return Conflict()
        case bytes():
            return Conflict(by=KeyKind(answer[1:].decode()))
        case _:
            return None

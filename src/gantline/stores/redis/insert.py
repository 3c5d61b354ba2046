"""insert: jobs as arguments of the script, and its results."""

import struct
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from gantline.contract.clock import to_micros
from gantline.contract.job import Job
from gantline.contract.job_id import uuid_from_bytes
from gantline.contract.results import Applied, Conflict, Duplicate, InsertResult
from gantline.contract.submission import DedupeKey, KeyKind, NewJob
from gantline.contract.wakeup import EarlyHints
from gantline.stores.redis import scripts
from gantline.stores.redis.calls import AT_ONCE, BATCH, Calls, each_of, in_batches
from gantline.stores.redis.connection import Argument
from gantline.stores.redis.rows import (
    digest_key,
    encode_group,
    encode_lane,
    encode_sortable,
    encode_span,
    encode_tenant,
    find_shared_correlation,
    pack,
    pack_binary,
    pack_end,
    pack_job,
)

_META: Final = struct.Struct(">16s8sBI2BQ")
_SCHEDULED, _DELAYED, _NOW = range(3)
_NIL_SIZE: Final = 1
_INSERTED: Final = Applied(1)

Extras = tuple[object, ...]


async def insert(
    calls: Calls, jobs: Sequence[NewJob], now: bytes, early: EarlyHints
) -> list[InsertResult]:
    """Store jobs; the write of the last ones sends the hint."""
    results: list[InsertResult] = []
    for some in in_batches(jobs, BATCH * AT_ONCE):
        channel = early.channel_to_notify() if len(results) + len(some) == len(jobs) else ""
        batches = list(in_batches(some, BATCH))
        argv = [_make_argv(batch, now, "") for batch in batches[:-1]]
        argv.append(_make_argv(batches[-1], now, channel))
        reply = await calls.run_each(scripts.INSERT, argv)
        items = each_of(reply.value, batches)
        read = [read_refusal(item) or _INSERTED for item in items]
        results += accept_own_duplicates(read, some) if reply.is_repeated else read
        if channel:
            early.note_sent(jobs[0].job.job_id)
    return results


def accept_own_duplicates(
    results: list[InsertResult], jobs: Sequence[NewJob]
) -> list[InsertResult]:
    """After a repeated insert: a duplicate with the job's own id is the job that we inserted."""
    return [
        _INSERTED if item == Duplicate(new.job.job_id) else item
        for item, new in zip(results, jobs, strict=True)
    ]


def _make_argv(jobs: Sequence[NewJob], now: bytes, channel: str) -> list[Argument]:
    targets: dict[tuple[str, str, str, str], int] = {}
    names: list[Argument] = []
    argv: list[Argument] = []
    for new in jobs:
        job = new.job
        which = (job.queue, job.job_type, job.tenant_id, job.group)
        target = targets.get(which)
        if target is None:
            targets[which] = target = len(targets) + 1
            names += encode_place(job)
        extras = make_extras(new)
        argv += (target, *pack_meta_and_envelope(new), pack(extras) if extras else b"")
    return [now, channel, len(targets), *names, *argv]


def encode_place(job: Job) -> tuple[str, str, bytes]:
    """Encode lane, tenant and group, as `place_of` reads them."""
    return encode_lane(job.queue, job.job_type), encode_tenant(job.tenant_id), encode_group(job)


def pack_meta_and_envelope(new: NewJob) -> tuple[bytes, bytes]:
    job = new.job
    created = to_micros(job.created_at)
    scheduled = None if job.scheduled_at is None else to_micros(job.scheduled_at)
    envelope = pack_job(new, created_at=created, scheduled_at=scheduled)
    timing, time = _NOW, 0
    if scheduled is not None:
        timing, time = _SCHEDULED, max(0, scheduled)
    elif new.delay:
        timing, time = _DELAYED, encode_span(new.delay)
        # The script adds the time, and what comes after it.
        envelope = envelope[: -_NIL_SIZE - len(pack_end(job))]
    meta = _META.pack(
        job.job_id.bytes,
        encode_sortable(created),
        job.priority,
        job.attempts_used,
        new.logged,
        timing,
        time,
    )
    return meta, envelope


def make_extras(new: NewJob) -> Extras | None:
    """Make what few jobs have: keys, names by which they are listed, an end; mostly None."""
    job, listed = new.job, find_list_names(new.job)
    has_key = job.idempotency_key or new.request_key or job.external_id
    ends = job.expires_at is not None or (bool(job.group) and bool(new.delay))
    if not (has_key or ends or any(listed)):
        return None
    return (
        _pack_request(new.request_key) if new.request_key else False,
        (pack_binary(digest_key(key)), pack_binary(new.fingerprint))
        if (key := new.job_key)
        else False,
        *listed,
        _pack_external(new),
        ends
        and (job.expires_at is not None and _score_of(job.expires_at), pack_binary(pack_end(job))),
    )


def _score_of(expires_at: datetime) -> str:
    return str(to_micros(expires_at))


def find_list_names(job: Job) -> tuple[str, str, str, str]:
    """Find the names by which a job is listed: owner, subject, correlation, parent."""
    parent = job.parent_job_id.hex if job.parent_job_id else ""
    return job.created_by, job.subject_id, find_shared_correlation(job) or "", parent


def _pack_external(new: NewJob) -> tuple[object, ...] | bool:
    key, external_id = new.external_key, new.job.external_id
    if key is None or external_id is None:
        return False
    return tuple(map(pack_binary, (digest_key(key), key.fingerprint, external_id.bytes)))


def _pack_request(key: DedupeKey) -> tuple[object, ...]:
    names = pack((key.tenant_id, key.scope, key.key, key.fingerprint))
    hold = encode_span(key.hold or timedelta(0))
    return pack_binary(digest_key(key)), pack_binary(key.fingerprint), hold, pack_binary(names)


def read_refusal(item: int | bytes) -> Duplicate | Conflict | None:
    """Read why a job was not stored; None if it was."""
    match item:
        case bytes() if item[:1] == b"D":
            kind = item[17:].decode()
            return Duplicate(uuid_from_bytes(item[1:17]), by=KeyKind(kind) if kind else None)
        case b"I":
            return Conflict()
        case bytes():
            return Conflict(by=KeyKind(item[1:].decode()))
        case 1:
            return None
        case _:
            raise ValueError(f"a job was answered by {item!r}")

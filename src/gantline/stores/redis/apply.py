"""apply: transitions as the script wants them, and its answers."""

import struct
from collections.abc import Sequence
from functools import cache
from typing import Final

from gantline.contract.results import Applied, ApplyResult, CancelPending, Conflict, NotFound, Stale
from gantline.contract.status import Event, Reason
from gantline.contract.submission import DedupeKey, KeyKind, NewJob
from gantline.contract.transition import RunGuard, StateGuard, Transition
from gantline.stores.redis import scripts
from gantline.stores.redis.calls import AT_ONCE, BATCH, Calls, in_batches
from gantline.stores.redis.connection import Argument
from gantline.stores.redis.insert import extras_of, meta_and_envelope
from gantline.stores.redis.records import pack_write
from gantline.stores.redis.rows import (
    LETTERS,
    binary,
    digest,
    lane_name,
    pack_tail,
    packed,
    span,
    tenant_name,
)

_TRANSITION: Final = struct.Struct(">16s16sBBc3IBQQcI")
_BY_RUN, _BY_STATE = range(2)
_UNLESS_CANCELLED, _ONLY_EXPIRED, _SETS_COUNTERS = 1, 2, 4
_NO_VERSION: Final = 2**32 - 1
"""Which no job has."""
_NO_EXTRAS: Final[tuple[object, ...]] = (False, False, "", "", "", "")
_TO: Final = {status: letter.encode() for status, letter in LETTERS.items()}


async def apply(calls: Calls, transitions: Sequence[Transition], now: bytes) -> list[ApplyResult]:
    answers: list[ApplyResult] = []
    for some in in_batches(transitions, BATCH * AT_ONCE):
        said = [_arguments(batch, now) for batch in in_batches(some, BATCH)]
        reply = await calls.run_each(scripts.APPLY, said)
        answers += [_read(answer) for batch in reply.value for answer in batch]
    return answers


def _arguments(transitions: Sequence[Transition], now: bytes) -> list[Argument]:
    said: list[Argument] = [now]
    for transition in transitions:
        said += (_meta(transition), pack_tail(transition), _extras(transition))
    return said


def _meta(change: Transition) -> bytes:
    guard = change.guard
    conditions = _SETS_COUNTERS if change.sets_counters else 0
    if isinstance(guard, RunGuard):
        how, status, version = _BY_RUN, b"R", 0
        conditions += _UNLESS_CANCELLED if guard.unless_cancelled else 0
        conditions += _ONLY_EXPIRED if guard.only_expired else 0
    else:
        how, status, version = _BY_STATE, _TO[guard.status], guarded_version(guard)
    fixed = _TRANSITION.pack(
        change.job_id.bytes,
        change.change_id.bytes,
        how,
        conditions,
        _TO[change.to],
        change.attempt,
        change.crashes,
        change.snoozes,
        change.priority,
        span(change.delay),
        span(change.hold_key),
        status,
        version,
    )
    return fixed + _names(change.event, change.reason)


@cache
def _names(event: Event, reason: Reason) -> bytes:
    return b"%c%b%c%b" % (len(event), event.encode(), len(reason), reason.encode())


def guarded_version(guard: StateGuard) -> int:
    """As scripts want it: 0 for any; one that cannot be, for what no job can have."""
    if guard.version is None:
        return 0
    return guard.version if 0 < guard.version < _NO_VERSION else _NO_VERSION


def _extras(change: Transition) -> bytes:
    guard = change.guard
    tenant = guard.tenant_id if isinstance(guard, StateGuard) else False
    if not (tenant or change.follow_ups or change.once or change.records):
        return b""
    return packed(
        (
            tenant,
            [_follow_up(new) for new in change.follow_ups],
            [_once(key) for key in change.once],
            [pack_write(write) for write in change.records],
        )
    )


def _follow_up(new: NewJob) -> tuple[object, ...]:
    job = new.job
    return (
        *map(binary, meta_and_envelope(new)),
        extras_of(new) or _NO_EXTRAS,
        lane_name(job.queue, job.job_type),
        tenant_name(job.tenant_id),
    )


def _once(key: DedupeKey) -> tuple[object, ...]:
    hold = key.hold is not None and span(key.hold)
    return binary(digest(key)), binary(key.fingerprint), hold, binary(packed(key.identity))


def _read(answer: int | bytes) -> ApplyResult:
    match answer:
        case int():
            return Applied(answer)
        case b"S":
            return Stale()
        case b"P":
            return CancelPending()
        case b"N":
            return NotFound()
        case b"I":
            return Conflict()
        case _ if answer[:1] == b"K":
            return Conflict(by=KeyKind(answer[1:].decode()))
        case _:
            return Conflict(by=answer[1:].decode())

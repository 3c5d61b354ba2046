"""apply: transitions as arguments of the script, and its results."""

import struct
from collections.abc import Sequence
from functools import cache
from typing import Final

from gantline.contract.results import Applied, ApplyResult, CancelPending, Conflict, NotFound, Stale
from gantline.contract.status import Event, Reason
from gantline.contract.submission import DedupeKey, KeyKind, NewJob
from gantline.contract.transition import RunGuard, StateGuard, Transition
from gantline.stores.redis import scripts
from gantline.stores.redis.calls import AT_ONCE, BATCH, Calls, each_of, in_batches
from gantline.stores.redis.connection import Argument
from gantline.stores.redis.insert import encode_place, make_extras, pack_meta_and_envelope
from gantline.stores.redis.records import pack_write
from gantline.stores.redis.rows import (
    LETTERS,
    digest_key,
    encode_span,
    pack,
    pack_binary,
    pack_tail,
)

_TRANSITION: Final = struct.Struct(">16s16sBBc3IBQQcI")
_BY_RUN, _BY_STATE = range(2)
_UNLESS_CANCELLED, _ONLY_EXPIRED, _SETS_COUNTERS = 1, 2, 4
_NO_VERSION: Final = 2**32 - 1
"""Which no job has."""
_NO_EXTRAS: Final[tuple[object, ...]] = (False, False, "", "", "", "", False, False)
_TO: Final = {status: letter.encode() for status, letter in LETTERS.items()}


async def apply(calls: Calls, transitions: Sequence[Transition], now: bytes) -> list[ApplyResult]:
    results: list[ApplyResult] = []
    for some in in_batches(transitions, BATCH * AT_ONCE):
        batches = list(in_batches(some, BATCH))
        reply = await calls.run_each(scripts.APPLY, [_make_argv(batch, now) for batch in batches])
        results += map(_read_result, each_of(reply.value, batches))
    return results


def _make_argv(transitions: Sequence[Transition], now: bytes) -> list[Argument]:
    argv: list[Argument] = [now]
    for transition in transitions:
        argv += (_pack_meta(transition), pack_tail(transition), _pack_extras(transition))
    return argv


def _pack_meta(change: Transition) -> bytes:
    guard = change.guard
    conditions = _SETS_COUNTERS if change.sets_counters else 0
    if isinstance(guard, RunGuard):
        how, status, version = _BY_RUN, b"R", 0
        conditions += _UNLESS_CANCELLED if guard.unless_cancelled else 0
        conditions += _ONLY_EXPIRED if guard.only_expired else 0
    else:
        how, status, version = _BY_STATE, _TO[guard.status], encode_version(guard)
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
        encode_span(change.delay),
        encode_span(change.hold_key),
        status,
        version,
    )
    return fixed + _pack_names(change.event, change.reason)


@cache
def _pack_names(event: Event, reason: Reason) -> bytes:
    return b"%c%b%c%b" % (len(event), event.encode(), len(reason), reason.encode())


def encode_version(guard: StateGuard) -> int:
    """Encode a version for scripts: 0 for any; an impossible one for what no job can have."""
    if guard.version is None:
        return 0
    return guard.version if 0 < guard.version < _NO_VERSION else _NO_VERSION


def _pack_extras(change: Transition) -> bytes:
    guard = change.guard
    tenant = guard.tenant_id if isinstance(guard, StateGuard) else False
    if not (tenant or change.follow_ups or change.once or change.records or change.closes):
        return b""
    return pack(
        (
            tenant,
            [_pack_follow_up(new) for new in change.follow_ups],
            [_pack_once_key(key) for key in change.once],
            [pack_write(write) for write in change.records],
            change.closes,
        )
    )


def _pack_follow_up(new: NewJob) -> tuple[object, ...]:
    lane, tenant, group = encode_place(new.job)
    return (
        *map(pack_binary, pack_meta_and_envelope(new)),
        make_extras(new) or _NO_EXTRAS,
        lane,
        tenant,
        pack_binary(group),
    )


def _pack_once_key(key: DedupeKey) -> tuple[object, ...]:
    hold = key.hold is not None and encode_span(key.hold)
    return (
        pack_binary(digest_key(key)),
        pack_binary(key.fingerprint),
        hold,
        pack_binary(pack(key.identity)),
    )


def _read_result(item: int | bytes) -> ApplyResult:
    match item:
        case int():
            return Applied(item)
        case b"S":
            return Stale()
        case b"P":
            return CancelPending()
        case b"N":
            return NotFound()
        case b"I":
            return Conflict()
        case _ if item[:1] == b"K":
            return Conflict(by=KeyKind(item[1:].decode()))
        case _:
            return Conflict(by=item[1:].decode())

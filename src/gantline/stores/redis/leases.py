"""Leases: renewed, ended, expired; the progress of a run; and what was not started in time."""

import struct
from collections.abc import Sequence
from datetime import timedelta
from heapq import nsmallest
from itertools import chain
from typing import Final
from uuid import UUID

from gantline.contract.job_id import uuid_from_bytes
from gantline.contract.results import ProgressResult, Renewal
from gantline.contract.snapshot import Progress, Run, RunRef
from gantline.stores.pool import Purpose
from gantline.stores.redis import scripts
from gantline.stores.redis.calls import Calls, each_of, in_batches
from gantline.stores.redis.connection import Argument
from gantline.stores.redis.rows import (
    encode_span,
    is_running,
    pack_progress,
    read_run,
    read_version,
)

_BATCH: Final = 500
_LOST: Final = ord("l")
_CANCELLED: Final = ord("c")
_PERCENT: Final = struct.Struct(">d")


_PAGE: Final = 5000
_READ_AT_ONCE: Final = 250


async def renew(
    calls: Calls, session: str, runs: Sequence[RunRef], *, lease: timedelta, now: bytes
) -> Renewal:
    letters = b""
    for batch in in_batches(runs, _BATCH):
        argv: list[Argument] = [now, session, encode_span(lease)]
        for run in batch:
            argv += (run.job_id.bytes, run.token.bytes)
        letters += await calls.run(scripts.RENEW, *argv, purpose=Purpose.CONTROL)
    states = list(zip(runs, letters, strict=True))
    return Renewal(
        lost=frozenset(run.token for run, letter in states if letter == _LOST),
        cancel_requested=frozenset(run.token for run, letter in states if letter == _CANCELLED),
    )


async def expire_session(calls: Calls, session: str, now: bytes) -> int:
    return int(await calls.run(scripts.EXPIRE_SESSION, now, session))


async def progress(calls: Calls, updates: Sequence[Progress], now: bytes) -> list[ProgressResult]:
    results: list[ProgressResult] = []
    for batch in in_batches(updates, _BATCH):
        argv: list[Argument] = [now]
        for one in batch:
            argv += (
                one.run.job_id.bytes,
                one.run.token.bytes,
                _PERCENT.pack(one.percent),
                one.phase,
                pack_progress(one.percent, one.phase) if one.logged else b"",
            )
        reply = await calls.run(scripts.PROGRESS, *argv)
        results += map(read_version, each_of([reply], [batch]))
    return results


async def expired(calls: Calls, *, limit: int, after: UUID | None, now: bytes) -> list[Run]:
    """Read expired runs by id. They are stored by time, so all of them are read."""
    if limit == 0:
        return []
    first, ids = after.bytes if after else b"", list[bytes]()
    while True:
        looked, *page = await calls.run(scripts.EXPIRED, now, len(ids), _PAGE)
        ids += page
        if looked < _PAGE:
            break
    late = nsmallest(limit, {one for one in ids if one > first})
    pages = [await _read_runs(calls, some) for some in in_batches(late, _READ_AT_ONCE)]
    return list(chain.from_iterable(pages))


async def past_expiry(calls: Calls, *, limit: int, now: bytes) -> list[UUID]:
    return [uuid_from_bytes(one) for one in await calls.run(scripts.PAST_EXPIRY, now, limit)]


async def _read_runs(calls: Calls, ids: Sequence[bytes]) -> list[Run]:
    reply = await calls.run(scripts.GET, *ids)
    found = [(job_id, *item) for job_id, item in zip(ids, reply, strict=True) if item]
    return [
        read_run(job_id, state, envelope, until)
        for job_id, state, envelope, _, until in found
        if is_running(state)
    ]

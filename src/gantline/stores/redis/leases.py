"""Leases: renewed, ended, expired; and the progress of a run."""

import struct
from collections.abc import Sequence
from datetime import timedelta
from heapq import nsmallest
from itertools import chain
from typing import Final
from uuid import UUID

from gantline.contract.results import ProgressResult, Renewal
from gantline.contract.snapshot import Progress, Run, RunRef
from gantline.stores.pool import Purpose
from gantline.stores.redis import scripts
from gantline.stores.redis.calls import Calls, in_batches
from gantline.stores.redis.connection import Argument
from gantline.stores.redis.rows import is_running, pack_progress, read_version, run_from, span

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
        said: list[Argument] = [now, session, span(lease)]
        for run in batch:
            said += (run.job_id.bytes, run.token.bytes)
        letters += (await calls.run(scripts.RENEW, said, purpose=Purpose.CONTROL)).value
    told = list(zip(runs, letters, strict=True))
    return Renewal(
        lost=frozenset(run.token for run, letter in told if letter == _LOST),
        cancel_requested=frozenset(run.token for run, letter in told if letter == _CANCELLED),
    )


async def expire_session(calls: Calls, session: str, now: bytes) -> int:
    return int((await calls.run(scripts.EXPIRE_SESSION, [now, session])).value)


async def progress(calls: Calls, updates: Sequence[Progress], now: bytes) -> list[ProgressResult]:
    answers: list[ProgressResult] = []
    for batch in in_batches(updates, _BATCH):
        said: list[Argument] = [now]
        for one in batch:
            said += (
                one.run.job_id.bytes,
                one.run.token.bytes,
                _PERCENT.pack(one.percent),
                one.phase,
                pack_progress(one.percent, one.phase) if one.logged else b"",
            )
        reply = await calls.run(scripts.PROGRESS, said)
        answers += [read_version(answer) for answer in reply.value]
    return answers


async def expired(calls: Calls, *, limit: int, after: UUID | None, now: bytes) -> list[Run]:
    """By id, though they are kept by time: who has many of them reads them all."""
    if limit == 0:
        return []
    first, ids = after.bytes if after else b"", list[bytes]()
    while True:
        said: list[Argument] = [now, len(ids), _PAGE]
        looked, *page = (await calls.run(scripts.EXPIRED, said)).value
        ids += page
        if looked < _PAGE:
            break
    late = nsmallest(limit, {one for one in ids if one > first})
    pages = [await _read_runs(calls, some) for some in in_batches(late, _READ_AT_ONCE)]
    return list(chain.from_iterable(pages))


async def _read_runs(calls: Calls, ids: Sequence[bytes]) -> list[Run]:
    reply = await calls.run(scripts.GET, ids)
    found = [(job_id, *answer) for job_id, answer in zip(ids, reply.value, strict=True) if answer]
    return [
        run_from(job_id, state, envelope, until)
        for job_id, state, envelope, _, until in found
        if is_running(state)
    ]

"""renew, progress and expire_session: what is said of the runs of a session."""

import struct
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from gantline.contract.results import Applied, NotFound, ProgressResult, Renewal, Stale
from gantline.contract.snapshot import Progress, RunRef
from gantline.stores.redis import scripts
from gantline.stores.redis.calls import Calls, Purpose, in_batches
from gantline.stores.redis.connection import Argument
from gantline.stores.redis.envelope import span
from gantline.stores.redis.rows import pack_progress

_BATCH: Final = 500
_LOST: Final = ord("l")
_CANCELLED: Final = ord("c")
_PERCENT: Final = struct.Struct(">d")


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
        answers += [_read(answer) for answer in reply.value]
    return answers


def _read(answer: int | bytes) -> ProgressResult:
    match answer:
        case b"S":
            return Stale()
        case b"N":
            return NotFound()
        case _:
            return Applied(int(answer))

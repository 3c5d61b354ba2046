"""The application of the proof of limits: each process keeps a journal of its own."""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from gantline import Context, Gantline, Limit

FOLDER_VARIABLE: Final = "TEST_FLOW_JOURNALS"
MOST: Final = 2
"""So many runs of a key at once."""
RATE: Final = 200
BURST: Final = 20
# Who is killed on purpose all the time is not to blame.
_CRASHES: Final = 1_000_000

jobs = Gantline()


class Call(msgspec.Struct):
    key: str
    seconds: float


@jobs.job(
    "call",
    group="{key}",
    limits=[Limit(running=MOST)],
    max_crashes=_CRASHES,
    timeout=timedelta(minutes=1),
)
async def call(call: Call, ctx: Context) -> None:
    with _noted(call.key, ctx):
        await asyncio.sleep(call.seconds)


@jobs.job("mail", limits=[Limit(rate=f"{RATE}/s", burst=BURST)], max_crashes=_CRASHES)
async def mail(number: int, ctx: Context) -> None:
    with _noted("mail", ctx):
        pass


@contextmanager
def _noted(key: str, ctx: Context) -> Iterator[None]:
    _note("began", key, ctx)
    try:
        yield
    finally:
        _note("ended", key, ctx)


def _note(what: str, key: str, ctx: Context) -> None:
    line = f"{what} {ctx.job_id} {ctx.fence} {key} {time.time():.6f} {time.monotonic():.6f}\n"
    os.write(_journal(), line.encode())


@cache
def _journal() -> int:
    file = Path(os.environ[FOLDER_VARIABLE]) / f"{os.getpid()}.journal"
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

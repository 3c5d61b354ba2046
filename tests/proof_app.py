"""The application of the long proofs: every handler keeps a journal of its own."""

import asyncio
import os
from datetime import timedelta
from pathlib import Path

from gantline import Context, Gantline
from tests.journal import noted

jobs = Gantline()
TIMEOUT = timedelta(seconds=5)


@jobs.job("work")
async def work(seconds: float, ctx: Context) -> None:
    with noted(ctx):
        await asyncio.sleep(seconds)


@jobs.job("hold")
async def hold(flag: str, ctx: Context) -> None:
    """Run until a file is there."""
    with noted(ctx):
        while not Path(flag).exists():  # noqa: ASYNC110, ASYNC240  # the test speaks by a file
            await asyncio.sleep(0.02)


@jobs.job("killer")
async def killer(value: int, ctx: Context) -> None:
    """End the process, a moment after it was begun."""
    with noted(ctx):
        await asyncio.sleep(0.5)
        os._exit(3)


@jobs.job("one-at-a-time", concurrency=1, timeout=TIMEOUT)
async def one_at_a_time(seconds: float, ctx: Context) -> None:
    with noted(ctx):
        await asyncio.sleep(seconds)


@jobs.job("two-at-a-time", concurrency=2, timeout=TIMEOUT)
async def two_at_a_time(seconds: float, ctx: Context) -> None:
    with noted(ctx):
        await asyncio.sleep(seconds)


@jobs.job("five-at-a-time", concurrency=5, timeout=TIMEOUT)
async def five_at_a_time(seconds: float, ctx: Context) -> None:
    with noted(ctx):
        await asyncio.sleep(seconds)

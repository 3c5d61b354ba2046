"""The application of the process tests; its store is named by GANTLINE_STORE."""

import asyncio
import os
import signal
import time
from pathlib import Path

from gantline import Context, Gantline

jobs = Gantline()


@jobs.job("hold")
async def hold(flag: str, ctx: Context) -> int:
    """Run until a file is there; tell by which run it was done."""
    while not Path(flag).exists():  # noqa: ASYNC110, ASYNC240  # the test speaks by a file
        await asyncio.sleep(0.02)
    return ctx.fence


@jobs.job("block")
async def block_the_loop(seconds: float, ctx: Context) -> int:
    """Do what no handler should, the first time."""
    if ctx.fence == 1:
        time.sleep(seconds)  # noqa: ASYNC251, TID251  # the fault itself
    return ctx.fence


@jobs.job("killer")
async def killer(value: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@jobs.job("innocent")
async def innocent(seconds: float) -> None:
    await asyncio.sleep(seconds)

"""The application of the tests of stopping: all that a worker does beside its jobs is there too."""

import asyncio
import os
import time
from datetime import timedelta
from pathlib import Path

import msgspec

from gantline import Gantline
from gantline.contract.job_event import JobEvent

jobs = Gantline()


class Files(msgspec.Struct):
    """How a handler and its test speak: the one is made by the handler, the other by the test."""

    begun: str
    may_end: str


@jobs.job("hold")
async def hold(files: Files) -> None:
    Path(files.begun).write_text(str(os.getpid()))  # noqa: ASYNC240  # the test reads it
    while not Path(files.may_end).exists():  # noqa: ASYNC110, ASYNC240  # the test speaks by a file
        await asyncio.sleep(0.02)


@jobs.job("block")
async def block(files: Files) -> None:
    """Do what no handler should."""
    Path(files.begun).write_text(str(os.getpid()))  # noqa: ASYNC240  # the test reads it
    while not Path(files.may_end).exists():  # noqa: ASYNC240  # the test speaks by a file
        time.sleep(0.02)  # noqa: ASYNC251, TID251  # the fault itself


@jobs.job("fork", run_in="process")
def fork(files: Files) -> None:
    """Fork, and go on in both processes; the number told is that of the fork."""
    if os.fork() == 0:
        Path(files.begun).write_text(str(os.getpid()))
    while not Path(files.may_end).exists():
        time.sleep(0.02)  # noqa: TID251  # a process that works for long


@jobs.every(timedelta(seconds=1))
@jobs.job("tick")
async def tick() -> None: ...


@jobs.on("job.completed")
async def note(event: JobEvent) -> None: ...

"""An application for tests: handlers of every kind, on whatever store the test names."""

import asyncio
import os
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Literal

import msgspec

from gantline import Context, Fixed, Gantline, JobGroup, Permanent, Retry, Snooze

group = JobGroup()


class Document(msgspec.Struct):
    document_id: str
    row_version: int = 1


@group.job("index", subject="{document_id}", idempotency_key="doc-{document_id}-v{row_version}")
async def index(document: Document, ctx: Context) -> dict[str, int]:
    """Index a document."""
    await ctx.progress(50, "parsed")
    return {"pages": len(document.document_id)}


@group.job("fail")
async def fail(code: str) -> None:
    raise Permanent(code, "for good")


@group.job("flaky", retry=Fixed(every=timedelta(0), attempts=3))
async def flaky(succeeds_at: int, ctx: Context) -> int:
    if ctx.attempt < succeeds_at:
        raise Retry("not yet", after=timedelta(0))
    return ctx.attempt


@group.job("snooze")
async def snooze(times: int, ctx: Context) -> int:
    if ctx.fence <= times:
        raise Snooze(timedelta(0))
    return ctx.attempt


@group.job("in-thread")
def in_thread(value: int) -> str:
    return f"{value} in {threading.current_thread().name.split('_')[0]}"


@group.job("thread-until-stopped")
def thread_until_stopped(value: None, ctx: Context) -> bool:
    while not ctx.cancelled:
        time.sleep(0.005)  # noqa: TID251  # a thread that works for a while
    return ctx.cancelled


@group.job("in-process", run_in="process")
def in_process(what: str) -> int:
    match what:
        case "pid":
            return os.getpid()
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            time.sleep(60)  # noqa: TID251  # what the kill is for
        case "print":
            print("this must not reach the pipe")  # noqa: T201  # on purpose
        case _:
            raise Permanent("UNKNOWN", what)
    return 0


@group.job("hang-in-process", run_in="process", timeout=timedelta(seconds=1))
def hang_in_process(value: None) -> None:
    time.sleep(60)  # noqa: TID251  # what the kill is for


class Fork(msgspec.Struct):
    """Where the fork writes its process id, and what the handler does once that is done."""

    pid_file: str
    then: Literal["die", "hang", "return", "both return"]


@group.job("fork", run_in="process", timeout=timedelta(seconds=60))
def fork(what: Fork) -> int:
    """Fork a process that has all our descriptors, and stays."""
    ready, tell = os.pipe()
    if os.fork() == 0:
        Path(what.pid_file).write_text(str(os.getpid()))
        os.write(tell, b"x")
        if what.then == "both return":
            return -1
        time.sleep(60)  # noqa: TID251  # what the kill is for
        os._exit(0)
    os.read(ready, 1)
    match what.then:
        case "die":
            os._exit(3)
        case "hang":
            time.sleep(60)  # noqa: TID251  # what the kill is for
        case "return" | "both return":
            pass
    return os.getpid()


@group.job("wait-for-ever", timeout=timedelta(seconds=30))
async def wait_for_ever(value: None) -> None:
    await asyncio.Event().wait()


@group.job(
    "times-out", timeout=timedelta(milliseconds=20), retry=Fixed(every=timedelta(0), attempts=1)
)
async def times_out(value: None) -> None:
    await asyncio.Event().wait()


@group.job("exit")
async def exit_(value: None) -> None:
    raise SystemExit(3)


def make_app(store: str) -> Gantline:
    return Gantline(store, include=[group])

"""Handlers that end in every way there is; the payload says how, and in which run."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from gantline import Fixed, Gantline, Permanent, Retry

worker_loops: Final[list[asyncio.AbstractEventLoop]] = []


@asynccontextmanager
async def remember_the_loop(app: Gantline) -> AsyncIterator[None]:
    """A handler in a thread has no loop of its own that it could stop."""
    worker_loops.append(asyncio.get_running_loop())
    yield


jobs = Gantline(lifespan=remember_the_loop)
AGAIN_AT_ONCE: Final = Fixed(attempts=2, every=timedelta(0), jitter=0)


class FirstRunFailed(Exception):
    """What the first run raises where a later one is to be seen."""


class OwnBaseException(BaseException):
    """As a user may declare one."""


class UselessPolicy(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        raise RuntimeError("this policy makes no loops")


class End(msgspec.Struct):
    """How a run is to end, and in which run; `journal` counts them."""

    kind: str
    run: Literal["first", "later", "every"]
    journal: str


def raising(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def recurse() -> None:
    recurse()


def end_the_process() -> None:
    os._exit(3)


def stop_the_loop() -> None:
    worker_loops[-1].call_soon_threadsafe(worker_loops[-1].stop)


def close_the_loop() -> None:
    worker_loops[-1].close()


def change_the_policy() -> None:
    asyncio.set_event_loop_policy(UselessPolicy())


ACTS: Final[Mapping[str, Callable[[], None]]] = {
    "Exception": raising(Exception("any")),
    "StopIteration": raising(StopIteration("any")),
    "StopAsyncIteration": raising(StopAsyncIteration("any")),
    "GeneratorExit": raising(GeneratorExit("any")),
    "KeyboardInterrupt": raising(KeyboardInterrupt("any")),
    "SystemExit": raising(SystemExit(3)),
    "CancelledError": raising(asyncio.CancelledError("nobody asked")),
    "MemoryError": raising(MemoryError("any")),
    "RecursionError": recurse,
    "OwnBaseException": raising(OwnBaseException("any")),
    "ExceptionGroup": raising(ExceptionGroup("any", [ValueError("any")])),
    "BaseExceptionGroup": raising(BaseExceptionGroup("any", [SystemExit(3)])),
    "Permanent": raising(Permanent("GONE", "for good")),
    "Permanent in a group": raising(
        ExceptionGroup("any", [ValueError("any"), Permanent("GONE", "for good")])
    ),
    "Retry": raising(Retry(code="LATER", after=timedelta(0))),
    "Retry in a group": raising(
        ExceptionGroup("any", [ValueError("any"), Retry(code="LATER", after=timedelta(0))])
    ),
    "loop.stop()": stop_the_loop,
    "loop.close()": close_the_loop,
    "a changed event loop policy": change_the_policy,
    "os._exit()": end_the_process,
}


def act(end: End) -> None:
    """Do it, in the run that it is for."""
    if is_due(end):
        ACTS[end.kind]()


def is_due(end: End) -> bool:
    """Count this run. Where a later one is meant, the first fails in a plain way."""
    descriptor = os.open(end.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, b".")
    number = os.fstat(descriptor).st_size
    os.close(descriptor)
    if end.run == "later" and number == 1:
        raise FirstRunFailed
    return end.run == "every" or number == (1 if end.run == "first" else 2)


async def act_in_a_task(kind: str) -> None:
    ACTS[kind]()


@jobs.job("loop", retry=AGAIN_AT_ONCE)
async def on_the_loop(end: End) -> None:
    act(end)


@jobs.job("thread", retry=AGAIN_AT_ONCE)
def in_a_thread(end: End) -> None:
    act(end)


@jobs.job("process", retry=AGAIN_AT_ONCE, run_in="process", concurrency=2)
def in_a_process(end: End) -> None:
    act(end)


@jobs.job("awaited", retry=AGAIN_AT_ONCE)
async def in_an_awaited_task(end: End) -> None:
    if is_due(end):
        await asyncio.create_task(act_in_a_task(end.kind))


@jobs.job("left-alone", retry=AGAIN_AT_ONCE)
async def in_a_task_left_alone(end: End) -> None:
    if is_due(end):
        task = asyncio.create_task(act_in_a_task(end.kind))
        while not task.done():  # noqa: ASYNC110  # to await it would be the other case
            await asyncio.sleep(0)


@jobs.job("group", retry=AGAIN_AT_ONCE)
async def in_a_task_group(end: End) -> None:
    if is_due(end):
        async with asyncio.TaskGroup() as group:
            group.create_task(act_in_a_task(end.kind))


@jobs.job("neighbour")
async def neighbour(seconds: float) -> None:
    await asyncio.sleep(seconds)


@jobs.job("threaded-neighbour")
def threaded_neighbour(flag: str) -> bool:
    return Path(flag).exists()


@jobs.job("process-neighbour", run_in="process", concurrency=2)
def process_neighbour(value: int) -> int:
    return value


WHERE: Final[Mapping[str, Any]] = {
    "loop": on_the_loop,
    "thread": in_a_thread,
    "process": in_a_process,
    "awaited": in_an_awaited_task,
    "left-alone": in_a_task_left_alone,
    "group": in_a_task_group,
}

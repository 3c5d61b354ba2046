"""Handlers for processes that use their context; importable by the child, which gets no closure."""

import asyncio
import functools
import logging
import multiprocessing
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from gantline import (
    Context,
    Fixed,
    JobGroup,
    Permanent,
    RunStopped,
    current_job,
    provide,
)

group = JobGroup()
log = logging.getLogger("shop")
AT_ONCE: Final = Fixed(every=timedelta(0), attempts=2)


class Pipes(msgspec.Struct):
    """How a handler and its test speak: named pipes, which wait until the other side is there."""

    begun: str
    act: str = ""

    def begin(self) -> None:
        Path(self.begun).write_text(str(os.getpid()))


# -- what a handler may do after a stop came; then it returns ------------------------------------


def reads(ctx: Context) -> None:
    assert ctx.cancelled


def raises(ctx: Context) -> None:
    ctx.raise_if_cancelled()


def swallows(ctx: Context) -> None:
    with suppress(RunStopped):
        ctx.raise_if_cancelled()


def loops(ctx: Context) -> None:
    for _ in ctx.until_cancelled(range(3)):
        pass


def does_not_look(ctx: Context) -> None: ...


ACTS: Final = {act.__name__: act for act in (reads, raises, swallows, loops, does_not_look)}


def until_the_stop(what: Pipes, ctx: Context) -> str:
    if ctx.fence > 1:
        return "whole"
    what.begin()
    while not ctx._is_stopping:  # to look at `cancelled` would be to see it
        time.sleep(0.005)  # noqa: TID251  # a process that works for a while
    ACTS[what.act](ctx)
    return "partial"


@group.job("until-the-stop", run_in="process", retry=AT_ONCE)
def stopped(what: Pipes, ctx: Context) -> str:
    return until_the_stop(what, ctx)


@group.job("until-the-timeout", run_in="process", retry=AT_ONCE, timeout=timedelta(seconds=1))
def stopped_in_time(what: Pipes, ctx: Context) -> str:
    return until_the_stop(what, ctx)


@group.job("awaits", run_in="process")
async def awaits(what: Pipes) -> None:
    what.begin()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        Path(what.act).write_text("cancelled")  # noqa: ASYNC240  # the test reads it
        raise


@group.job("fails-after-the-stop", run_in="process")
def fails_after_the_stop(what: Pipes, ctx: Context) -> None:
    what.begin()
    while not ctx.cancelled:
        time.sleep(0.005)  # noqa: TID251  # a process that works for a while
    raise Permanent("TOO_LATE", "for good")


@group.job("deaf", run_in="process")
def deaf(what: Pipes, ctx: Context) -> None:
    what.begin()
    time.sleep(60)  # noqa: TID251  # what the kill is for


# -- what it sees, reports and asks --------------------------------------------------------------


@group.job("pid", run_in="process")
def pid(ctx: Context) -> int:
    assert not ctx.cancelled
    return os.getpid()


@group.job("describes", run_in="process")
def describes(ctx: Context) -> dict[str, Any]:
    assert current_job() is ctx
    return {
        "job_id": str(ctx.job_id),
        "run_token": str(ctx.run_token),
        "subject": ctx.job.subject_id,
        "attempt": ctx.attempt,
        "fence": ctx.fence,
        "deadline": ctx.deadline.isoformat(),
        "loop": asyncio.run(has_a_loop()),
    }


async def has_a_loop() -> bool:
    return asyncio.get_running_loop().is_running()


@group.job("emits", run_in="process", subject="o-1")
def emits(fails: bool, ctx: Context) -> None:
    ctx.emit("ORDER_SHIPPED", "Order", {"parcel": "p-\u00fc"})
    try:
        ctx.audit("ORDER_SHIPPED", "Order", {"parcel": "p-1"})
    except Permanent as error:
        ctx.logger.warning("%s", error)
    if fails:
        raise Permanent("NO", "for good")


@group.job("logs", run_in="process")
def logs(ctx: Context) -> None:
    ctx.logger.warning("it goes on")


@group.job("progresses", run_in="process", events=["progressed"])
def progresses(what: Pipes, ctx: Context) -> None:
    ctx.progress(40, "half \ud800 way")
    ctx.progress(float("nan"), "later")
    what.begin()


@group.job("progresses-awaited", run_in="process")
async def progresses_awaited(times: int, ctx: Context) -> int:
    for number in range(times):
        await ctx.progress(100 * number / times, "counting")
    return times


class Mail(msgspec.Struct):
    to: str


@group.job("mail", idempotency_key="mail-{to}")
async def mail(what: Mail) -> str:
    return what.to


class Order(msgspec.Struct):
    to: str
    options: dict[str, Any] = {}
    fails: bool = False


@group.job("follows-up", run_in="process")
def follows_up(order: Order, ctx: Context) -> str:
    followed = ctx.follow_up(mail, Mail(order.to), delay=timedelta(seconds=5), **order.options)
    if order.fails:
        raise Permanent("NO", "for good")
    return str(followed)


@group.job("multiply", run_in="process")
def multiply(ctx: Context, factor: int, *, by: int = 2, then: bool = False) -> int:
    if then:
        ctx.follow_up(multiply, {"factor": 3}, subject="followed")
    return factor * by


@group.job("follows-up-nothing", run_in="process")
def follows_up_wrongly(option: str, ctx: Context) -> str:
    undeclared = JobGroup().job("undeclared")(has_a_loop)
    try:
        if option == "type":
            ctx.follow_up(undeclared, None)
        elif option == "payload":
            ctx.follow_up(mail, Mail(7))  # type: ignore[arg-type]
        else:
            ctx.follow_up(mail, Mail("a"), **cast(Any, {option: "high"}))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@group.job("once", run_in="process")
async def does_once(key: str, ctx: Context) -> bool:
    return await ctx.once(key, hold=timedelta(days=1))


@group.job("once-in-def", run_in="process")
def does_once_in_def(key: str, ctx: Context) -> None:
    ctx.once(key)


@group.job("transaction", run_in="process")
async def in_transaction(ctx: Context) -> None:
    async with ctx.transaction():
        pass


@group.job("in-a-fork", run_in="process")
def in_a_fork(ctx: Context) -> str:
    """Progress of a fork would get between the messages of its parent."""
    context = multiprocessing.get_context("fork")
    said: Any = context.SimpleQueue()
    fork = context.Process(target=_reports, args=(ctx, said))
    fork.start()
    fork.join()
    text: str = said.get()
    return text


def _reports(ctx: Context, said: Any) -> None:
    try:
        ctx.progress(1)
    except Exception as error:
        said.put(str(error))


# -- dependencies --------------------------------------------------------------------------------


class Notes:
    """A file in which the opening and the closing are noted."""

    def __init__(self, ctx: Context) -> None:
        self._path = Path(ctx.job.data()["path"])

    def note(self, what: str) -> None:
        with self._path.open("a") as file:
            file.write(f"{what}\n")


def plain(ctx: Context) -> Iterator[Notes]:
    notes = Notes(ctx)
    notes.note("open")
    try:
        yield notes
    except BaseException as error:
        notes.note(f"after {type(error).__name__}")
        raise
    notes.note("committed")


async def asynchronous(ctx: Context) -> AsyncIterator[Notes]:
    notes = Notes(ctx)
    await asyncio.sleep(0)
    notes.note("open too")
    try:
        yield notes
    finally:
        await asyncio.sleep(0)
        notes.note("closed too")


class Task(msgspec.Struct):
    path: str
    fails: bool = False
    begun: str = ""


def use(task: Task, one: Notes, other: Notes) -> int:
    one.note("used")
    other.note("used too")
    if task.fails:
        raise Permanent("NO", "for good")
    return os.getpid()


@group.job("with-dependencies", run_in="process")
def with_dependencies(
    task: Task, *, one: Notes = provide(plain), other: Notes = provide(asynchronous)
) -> int:
    return use(task, one, other)


@group.job("with-dependencies-async", run_in="process")
async def with_dependencies_async(
    task: Task, *, one: Notes = provide(plain), other: Notes = provide(asynchronous)
) -> int:
    await asyncio.sleep(0)
    return use(task, one, other)


@group.job("with-dependencies-stopped", run_in="process")
def with_dependencies_stopped(task: Task, ctx: Context, *, one: Notes = provide(plain)) -> None:
    Pipes(task.begun).begin()
    while not ctx.cancelled:
        time.sleep(0.005)  # noqa: TID251  # a process that works for a while


# -- payloads of an older version ----------------------------------------------------------------


class Name(msgspec.Struct):
    first: str
    last: str


def split(data: Any, version: int) -> Any:
    first, last = data["name"].split()
    return {"first": first, "last": last}


@group.job("greet", run_in="process", version=2, upgrade=split)
def greet(name: Name, ctx: Context) -> str:
    return f"{name.last}, {name.first}"


# -- what may not break the way to the parent ----------------------------------------------------


@group.job("gives-up-a-question", run_in="process")
async def gives_up_a_question(ctx: Context) -> bool:
    asked = asyncio.ensure_future(ctx.once("given up"))
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    return await ctx.once("asked")


@group.job("asks-what-cannot-be-sent", run_in="process")
def asks_what_cannot_be_sent(ctx: Context) -> str:
    try:
        ctx.follow_up(mail, Mail("a"), subject="\ud800")
    except Exception as error:
        ctx.follow_up(mail, Mail("b"))
        return type(error).__name__
    return ""


@group.job("logs-beside-a-fork", run_in="process")
def logs_beside_a_fork() -> int:
    fork = multiprocessing.get_context("fork").Process(target=_logs_much)
    fork.start()
    _logs_much()
    fork.join()
    return fork.exitcode or 0


def _logs_much() -> None:
    for _ in range(20):
        log.warning("y" * 60_000)


@group.job("is-interrupted", run_in="process")
def is_interrupted(ctx: Context) -> str:
    """A limit of time as programs set it: a signal whose handler raises, wherever that is."""

    def late(number: int, frame: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    interrupted = 0
    for _ in range(20):
        with suppress(TimeoutError):
            signal.setitimer(signal.ITIMER_REAL, 0.005)
            while True:
                ctx.progress(1, "x" * 100)
        interrupted += 1
    return str(interrupted)


def _returns_a_coroutine(function: Any) -> Any:
    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return function(*args)

    return call


async def _does_something() -> None: ...


wrapped = group.job("wrapped", result="omit")(_returns_a_coroutine(_does_something))

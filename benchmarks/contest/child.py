"""A process that is measured: `python -m benchmarks.contest.child MODULE URL WHAT [OPTION …]`."""

import argparse
import asyncio
import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress
from threading import Thread
from typing import Any, Final

from benchmarks.contest import meter
from benchmarks.contest.contender import Contender, contender_of

_TICK_SECONDS: Final = 0.01
_WARM_UP_JOBS: Final = 100
# A server that waits for its disk can stand still for a while.
_QUIET_SECONDS: Final = 3.0


def main() -> None:
    """End at once: whatever still runs has nothing to tell, and not every peer can be stopped."""
    options = _options()
    try:
        contender = contender_of(options.module)(options.url, more_types=options.types)
        runner = asyncio.Runner(loop_factory=contender.loop_factory)
        runner.run(_ROLES[options.what](contender, options))
    except BaseException:
        traceback.print_exc()
        _leave(1)
    _leave(0)


def _leave(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("module")
    parser.add_argument("url")
    parser.add_argument("what", choices=list(_ROLES))
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--callers", type=int, default=1)
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--rate", type=float, default=0)
    parser.add_argument("--types", type=int, default=0)
    return parser.parse_args()


def _tell(answer: object) -> None:
    print(json.dumps(answer))


# -- submitting ------------------------------------------------------------------------------------


async def _make(contender: Contender, options: argparse.Namespace) -> None:
    await contender.make()


async def _fill(contender: Contender, options: argparse.Namespace) -> None:
    await contender.open()
    await contender.submit_many(options.jobs)


async def _submit(contender: Contender, options: argparse.Namespace) -> None:
    """Tell the rate of callers that each submit one by one."""

    async def call(jobs: int) -> None:
        for _ in range(jobs):
            await contender.submit()

    each, callers = options.jobs // options.callers, options.callers
    together = _in_threads if contender.is_blocking else _in_tasks
    await contender.open()
    await together(lambda: call(_WARM_UP_JOBS // callers), callers)
    start = time.perf_counter()
    await together(lambda: call(each), callers)
    _tell(each * callers / (time.perf_counter() - start))


async def _in_tasks(call: Callable[[], Coroutine[Any, Any, None]], callers: int) -> None:
    await asyncio.gather(*(call() for _ in range(callers)))


async def _in_threads(call: Callable[[], Coroutine[Any, Any, None]], callers: int) -> None:
    """One caller needs none. What never waits for a loop can be run by any."""
    if callers == 1:
        return await call()
    threads = [Thread(target=lambda: asyncio.run(call())) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


async def _submit_many(contender: Contender, options: argparse.Namespace) -> None:
    await contender.open()
    await contender.submit_many(_WARM_UP_JOBS)
    start = time.perf_counter()
    await contender.submit_many(options.jobs)
    _tell(options.jobs / (time.perf_counter() - start))


async def _send(contender: Contender, options: argparse.Namespace) -> None:
    """Submit timed jobs at a rate: single ones while they fit into ticks, else some in each tick.

    Tell the rate that was kept.
    """
    await contender.open()
    at_once = max(1, round(options.rate * _TICK_SECONDS))
    apart = at_once / options.rate
    start = time.perf_counter()
    sent = 0
    while sent < options.jobs:
        await contender.submit_timed(at_once)
        sent += at_once
        await asyncio.sleep(start + sent / at_once * apart - time.perf_counter())
    _tell(sent / (time.perf_counter() - start))


# -- working ---------------------------------------------------------------------------------------


async def _drain(contender: Contender, options: argparse.Namespace) -> None:
    """Work until so many jobs are done, where it is known how many, or until none comes."""
    await contender.open()
    await asyncio.to_thread(meter.wait_for_go)
    limits = {"most_jobs": options.jobs or math.inf, "quiet_seconds": _QUIET_SECONDS}
    _meanwhile(lambda: _tell(meter.read(contender.done, **limits)))
    await contender.work(options.slots)


async def _drain_some(contender: Contender, options: argparse.Namespace) -> None:
    """Work until so many jobs are done or so much time is over, and leave the rest in order."""
    await contender.open()
    await asyncio.to_thread(meter.wait_for_go)
    working = asyncio.create_task(contender.work(options.slots))
    limits = {"most_jobs": options.jobs, "most_seconds": options.seconds}
    given = {name: limit for name, limit in limits.items() if limit}
    reading = await asyncio.to_thread(meter.read, contender.done, **given)
    working.cancel()
    with suppress(asyncio.CancelledError):
        await working
    _tell(reading)


async def _serve(contender: Contender, options: argparse.Namespace) -> None:
    """Work until the parent closes our input; tell the delays of the timed jobs."""

    def until_closed() -> None:
        sys.stdin.read()
        _tell(contender.delays_ns)

    await contender.open()
    await asyncio.to_thread(meter.wait_for_go)
    _meanwhile(until_closed)
    await contender.work(options.slots)
    raise RuntimeError("the worker has ended by itself")


def _meanwhile(observe: Callable[[], None]) -> None:
    """Observe in a thread, for a worker may block the loop; the process ends with it."""

    def observe_and_leave() -> None:
        observe()
        _leave(0)

    Thread(target=observe_and_leave, daemon=True).start()


_ROLES: Final[dict[str, Callable[[Contender, argparse.Namespace], Coroutine[Any, Any, None]]]] = {
    "make": _make,
    "fill": _fill,
    "submit": _submit,
    "submit_many": _submit_many,
    "send": _send,
    "drain": _drain,
    "drain_some": _drain_some,
    "serve": _serve,
}


if __name__ == "__main__":
    main()

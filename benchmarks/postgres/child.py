"""A process that is measured: `python -m benchmarks.postgres.child SYSTEM URL WHAT [OPTION …]`."""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from benchmarks.postgres.contender import Contender, contender_of
from benchmarks.worker import meter

_TICK_SECONDS: Final = 0.01
_WARM_UP_JOBS: Final = 100
# A server that waits for its disk can stand still for a while.
_QUIET_SECONDS: Final = 3.0


def main() -> None:
    options = _options()
    contender = contender_of(options.system)(options.url, more_types=options.types)
    with asyncio.Runner(loop_factory=contender.loop_factory) as runner:
        runner.run(_ROLES[options.what](contender, options))
        # Whatever still runs has nothing to tell, and not every peer can be stopped.
        sys.stdout.flush()
        os._exit(0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("system")
    parser.add_argument("url")
    parser.add_argument("what", choices=list(_ROLES))
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--callers", type=int, default=1)
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--rate", type=float, default=0)
    parser.add_argument("--types", type=int, default=0)
    return parser.parse_args()


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

    await contender.open()
    await call(_WARM_UP_JOBS)
    each = options.jobs // options.callers
    start = time.perf_counter()
    await asyncio.gather(*(call(each) for _ in range(options.callers)))
    print(json.dumps(each * options.callers / (time.perf_counter() - start)))


async def _submit_many(contender: Contender, options: argparse.Namespace) -> None:
    await contender.open()
    await contender.submit_many(_WARM_UP_JOBS)
    start = time.perf_counter()
    await contender.submit_many(options.jobs)
    print(json.dumps(options.jobs / (time.perf_counter() - start)))


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
    print(json.dumps(sent / (time.perf_counter() - start)))


# -- working ---------------------------------------------------------------------------------------


async def _drain(contender: Contender, options: argparse.Namespace) -> None:
    """Work until nothing is left."""
    await contender.open()
    await asyncio.to_thread(meter.wait_for_go)
    meter.watch(contender.done, quiet_seconds=_QUIET_SECONDS)
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
    print(json.dumps(reading))


async def _serve(contender: Contender, options: argparse.Namespace) -> None:
    """Work until the parent closes our input; tell the delays of the timed jobs."""
    await contender.open()
    await asyncio.to_thread(meter.wait_for_go)
    working = asyncio.create_task(contender.work(options.slots))
    await asyncio.to_thread(sys.stdin.read)
    assert not working.done(), working
    print(json.dumps(contender.delays_ns))


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

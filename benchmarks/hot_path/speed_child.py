"""One tree on one store: `python -m benchmarks.hot_path.speed_child URL` tells its figures.

Both trees run this very file, so it uses nothing but the public names of Gantline.
"""

import asyncio
import gc
import json
import sys
import time
from contextlib import nullcontext
from importlib.util import find_spec
from statistics import median
from typing import Any, Final

import gantline
from benchmarks.contest.contender import uvloop
from benchmarks.contest.meter import INVOICE
from benchmarks.hot_path.figures import (
    AT_ONCE,
    BULK,
    BULK_CPU,
    DRAIN,
    DRAIN_CPU,
    PICK_UP,
    SINGLE,
    SINGLE_CPU,
    Figures,
)
from gantline import Gantline, WorkerSettings

_WARM_UP_JOBS: Final = 100
_SINGLE_JOBS: Final = 400
_SINGLE_JOBS_IN_MEMORY: Final = 4_000  # as many would be over in 10 ms
_CALLERS: Final = 100
_JOBS_PER_CALLER: Final = 20
_BULK_JOBS: Final = 5_000
_PICK_UPS: Final = 50
_APART_SECONDS: Final = 0.02
_WARM_UP_SECONDS: Final = 0.3
_LONGEST_SECONDS: Final = 60.0
_DRAINING: Final = WorkerSettings(queues={"default": 500})
_WAITING: Final = WorkerSettings(queues={"default": 10})


class Program:
    """An application with two kinds of jobs: one that does nothing, one that notes its delay."""

    def __init__(self, url: str) -> None:
        self.app = Gantline(url)
        self.started_at: list[float] = []
        self.delays_ms: list[float] = []

        @self.app.job("no_op")
        async def no_op(invoice: dict[str, Any]) -> None:
            self.started_at.append(time.perf_counter())

        @self.app.job("timed")
        async def timed(submitted_at: float) -> None:
            self.delays_ms.append((time.perf_counter() - submitted_at) * 1e3)

        self.no_op = no_op
        self.timed = timed


def main() -> None:
    loop_factory = uvloop() if find_spec("uvloop") else None
    _relax_collector()
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        figures = runner.run(_measured(sys.argv[1]))
    print(json.dumps({"gantline": gantline.__file__, **figures}))


def _relax_collector() -> None:
    """As a worker process does: what the collector costs at random moments is noise here."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


async def _measured(url: str) -> Figures:
    program = Program(url)
    is_in_memory = url.startswith("memory:")
    single_jobs = _SINGLE_JOBS_IN_MEMORY if is_in_memory else _SINGLE_JOBS
    async with program.app:
        await program.no_op.submit_many([INVOICE] * _WARM_UP_JOBS)
        await _submit_in_turn(program, _WARM_UP_JOBS)
        figures = {
            **await _one_by_one(program, single_jobs),
            **await _at_once(program),
            **await _in_bulk(program),
        }
        waiting = 2 * _WARM_UP_JOBS + single_jobs + _CALLERS * _JOBS_PER_CALLER + _BULK_JOBS
        figures |= await _drain(program, waiting)
        # Another application is told of new jobs by the store, as another process is.
        worker = program if is_in_memory else Program(url)
        return figures | await _pick_up(program, worker)


# -- submitting ------------------------------------------------------------------------------------


async def _submit_in_turn(program: Program, jobs: int) -> list[float]:
    seconds = []
    for _ in range(jobs):
        start = time.perf_counter()
        await program.no_op.submit(INVOICE)
        seconds.append(time.perf_counter() - start)
    return seconds


async def _one_by_one(program: Program, jobs: int) -> Figures:
    cpu = time.process_time()
    seconds = await _submit_in_turn(program, jobs)
    cpu = time.process_time() - cpu
    return {SINGLE: median(seconds) * 1e6, SINGLE_CPU: cpu / jobs * 1e6}


async def _at_once(program: Program) -> Figures:
    start = time.perf_counter()
    callers = (_submit_in_turn(program, _JOBS_PER_CALLER) for _ in range(_CALLERS))
    await asyncio.gather(*callers)
    return {AT_ONCE: _CALLERS * _JOBS_PER_CALLER / (time.perf_counter() - start)}


async def _in_bulk(program: Program) -> Figures:
    start, cpu = time.perf_counter(), time.process_time()
    await program.no_op.submit_many([INVOICE] * _BULK_JOBS)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    return {BULK: _BULK_JOBS / seconds, BULK_CPU: cpu / _BULK_JOBS * 1e6}


# -- working ---------------------------------------------------------------------------------------


async def _drain(program: Program, jobs: int) -> Figures:
    """The rate is that of handlers. The CPU is all that a worker uses, from its start to its end,
    for a handler that has run is not yet a job that is completed."""
    cpu = time.process_time()
    async with program.app.running(_DRAINING):
        await _grown(program.started_at, jobs)
    cpu = time.process_time() - cpu
    seconds = program.started_at[-1] - program.started_at[0]
    return {DRAIN: jobs / seconds, DRAIN_CPU: cpu / jobs * 1e6}


async def _pick_up(program: Program, worker: Program) -> Figures:
    opened = nullcontext() if worker is program else worker.app
    async with opened, worker.app.running(_WAITING):
        await asyncio.sleep(_WARM_UP_SECONDS)
        for _ in range(_PICK_UPS):
            await program.timed.submit(time.perf_counter())
            await asyncio.sleep(_APART_SECONDS)
        await _grown(worker.delays_ms, _PICK_UPS)
    return {PICK_UP: median(worker.delays_ms)}


async def _grown(some: list[float], size: int) -> None:
    """Look now and then, so that a handler does nothing but note its moment."""
    async with asyncio.timeout(_LONGEST_SECONDS):
        while len(some) < size:  # noqa: ASYNC110  # the reason is above
            await asyncio.sleep(0.005)


if __name__ == "__main__":
    main()

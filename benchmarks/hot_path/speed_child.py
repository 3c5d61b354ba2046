"""One tree on one store: `python -m benchmarks.hot_path.speed_child URL`.

For each line that names a part it measures that part, and tells its figures. Both trees run this
very file, so it uses nothing but the public names of Gantline.
"""

import asyncio
import gc
import json
import sys
import time
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from statistics import median
from typing import Any, Final

import gantline
from benchmarks.contest.contender import uvloop
from benchmarks.contest.meter import INVOICE, wait_for_go
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
_SINGLE_JOBS: Final = 200
_SINGLE_JOBS_IN_MEMORY: Final = 2_000  # as many as elsewhere would be over in 5 ms
_CALLERS: Final = 100
_JOBS_PER_CALLER: Final = 10
_BULK_JOBS: Final = 3_000
_PICK_UPS: Final = 25
_APART_SECONDS: Final = 0.01
_LONGEST_SECONDS: Final = 60.0
_DRAINING: Final = WorkerSettings(queues={"default": 500})
_WAITING: Final = WorkerSettings(queues={"default": 10})


class Application:
    """Two kinds of jobs: one that does nothing, and one that notes its delay."""

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


class Program:
    """Measures one part at a time. Jobs that some parts submit wait until they are drained."""

    def __init__(self, url: str) -> None:
        is_in_memory = url.startswith("memory:")
        self._single_jobs = _SINGLE_JOBS_IN_MEMORY if is_in_memory else _SINGLE_JOBS
        self._own = Application(url)
        # Another application is told of new jobs by the store, as another process is.
        self._other = self._own if is_in_memory else Application(url)
        self._waiting = 0
        self._parts: dict[str, Callable[[], Awaitable[Figures]]] = {
            "one by one": self._one_by_one,
            "at once": self._at_once,
            "in bulk": self._in_bulk,
            "drain": self._drain,
            "pick-up": self._pick_up,
        }

    async def run(self) -> None:
        async with self._own.app:
            await self._submit_in_turn(_WARM_UP_JOBS)
            wait_for_go()
            tell({"gantline": gantline.__file__})
            while part := (await asyncio.to_thread(sys.stdin.readline)).strip():
                gc.collect()  # what the last part left behind is not this one's cost
                async with asyncio.timeout(_LONGEST_SECONDS):
                    tell(await self._parts[part]())
            if self._other is not self._own:
                await self._other.app.close()

    # -- submitting --------------------------------------------------------------------------------

    async def _submit_in_turn(self, jobs: int) -> list[float]:
        seconds = []
        for _ in range(jobs):
            start = time.perf_counter()
            await self._own.no_op.submit(INVOICE)
            seconds.append(time.perf_counter() - start)
        self._waiting += jobs
        return seconds

    async def _one_by_one(self) -> Figures:
        cpu = time.process_time()
        seconds = await self._submit_in_turn(self._single_jobs)
        cpu = time.process_time() - cpu
        return {SINGLE: median(seconds) * 1e6, SINGLE_CPU: cpu / self._single_jobs * 1e6}

    async def _at_once(self) -> Figures:
        start = time.perf_counter()
        callers = (self._submit_in_turn(_JOBS_PER_CALLER) for _ in range(_CALLERS))
        await asyncio.gather(*callers)
        return {AT_ONCE: _CALLERS * _JOBS_PER_CALLER / (time.perf_counter() - start)}

    async def _in_bulk(self) -> Figures:
        start, cpu = time.perf_counter(), time.process_time()
        await self._own.no_op.submit_many([INVOICE] * _BULK_JOBS)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        self._waiting += _BULK_JOBS
        return {BULK: _BULK_JOBS / seconds, BULK_CPU: cpu / _BULK_JOBS * 1e6}

    # -- working -----------------------------------------------------------------------------------

    async def _drain(self) -> Figures:
        """The rate is that of handlers. The CPU is all of the worker, from its start to its end,
        for a handler that has run is not yet a job that is completed."""
        jobs, self._waiting = self._waiting, 0
        self._own.started_at.clear()
        cpu = time.process_time()
        async with self._own.app.running(_DRAINING):
            await _grown(self._own.started_at, jobs)
        cpu = time.process_time() - cpu
        seconds = self._own.started_at[-1] - self._own.started_at[0]
        return {DRAIN: jobs / seconds, DRAIN_CPU: cpu / jobs * 1e6}

    async def _pick_up(self) -> Figures:
        delays = self._other.delays_ms
        delays.clear()
        async with self._other.app.running(_WAITING):
            for number in range(1 + _PICK_UPS):
                await self._own.timed.submit(time.perf_counter())
                await asyncio.sleep(_APART_SECONDS)
                await _grown(delays, number + 1)
        return {PICK_UP: median(delays[1:])}  # the first one finds a worker that is starting


async def _grown(some: list[float], size: int) -> None:
    """Look now and then, so that a handler does nothing but note its moment."""
    while len(some) < size:  # noqa: ASYNC110  # the reason is above
        await asyncio.sleep(0.005)


def tell(answer: object) -> None:
    print(json.dumps(answer), flush=True)


def main() -> None:
    _relax_collector()
    with asyncio.Runner(loop_factory=uvloop() if find_spec("uvloop") else None) as runner:
        runner.run(Program(sys.argv[1]).run())


def _relax_collector() -> None:
    """As a worker process does: what the collector costs at random moments is noise here."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


if __name__ == "__main__":
    main()

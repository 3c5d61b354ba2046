"""A worker process of ours: `python -m benchmarks.worker.gantline_child PATH SLOTS MEASURE`."""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

from benchmarks.contest import meter
from benchmarks.worker.workload import Workload, open_workload
from gantline.cli.process import run_tuned
from gantline.worker.settings import WorkerSettings
from gantline.worker.worker import Worker

Measure = Callable[[Workload, int], Awaitable[object]]

_WARM_UP_SECONDS: Final = 1.0
_IDLE_SECONDS: Final = 5.0
_BUSY_SECONDS: Final = 3.0


def main() -> None:
    path, slots, what = sys.argv[1:]
    workload = open_workload(Path(path))
    meter.wait_for_go()
    run_tuned(_work(workload, int(slots), what))  # as `gantline worker` does


async def _work(workload: Workload, slots: int, what: str) -> None:
    settings = WorkerSettings(queues={"default": slots}, drain=timedelta(0))
    async with workload.app, workload.app.working(settings) as worker:
        if what == "drain":
            meter.watch(lambda: _ended(worker))
        running = asyncio.create_task(worker.run())
        if measure := _MEASURES.get(what):
            print(json.dumps(await measure(workload, slots)), flush=True)
            worker.stop()
        await running


def _ended(worker: Worker) -> int:
    return worker.counts["completed"]


async def _delays_ns(workload: Workload, slots: int) -> list[int]:
    """Run until the parent closes our input."""
    await asyncio.to_thread(sys.stdin.read)
    return workload.delays_ns


async def _idle_cpu_share(workload: Workload, slots: int) -> float:
    await asyncio.sleep(_WARM_UP_SECONDS)
    cpu, start = time.process_time(), time.perf_counter()
    await asyncio.sleep(_IDLE_SECONDS)
    return (time.process_time() - cpu) / (time.perf_counter() - start)


async def _busy_share(workload: Workload, slots: int) -> float:
    await asyncio.sleep(_WARM_UP_SECONDS)
    busy, start = workload.busy.seconds(), time.perf_counter()
    await asyncio.sleep(_BUSY_SECONDS)
    return (workload.busy.seconds() - busy) / (time.perf_counter() - start) / slots


_MEASURES: Final[dict[str, Measure]] = {
    "delays": _delays_ns,
    "idle": _idle_cpu_share,
    "busy": _busy_share,
}


if __name__ == "__main__":
    main()

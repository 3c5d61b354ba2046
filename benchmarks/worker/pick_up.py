"""How soon an idle worker starts a job: from the call of submit to the handler's first line."""

import asyncio
import statistics
import time
from pathlib import Path
from typing import Final

from benchmarks.bench import Bench
from benchmarks.contest.children import ended, started
from benchmarks.report import GANTLINE, Goal
from benchmarks.worker.draining import ENGINE, child_command
from benchmarks.worker.workload import Workload, open_workload
from gantline.worker.settings import WorkerSettings

_SLOTS: Final = 10
_APART_SECONDS: Final = 0.02
_WARM_UP_SECONDS: Final = 0.5


def run(bench: Bench) -> None:
    bench.report.say("  pick-up")
    jobs = bench.scale.pick_ups
    with bench.empty_file() as path:
        _report(bench, "in one process", asyncio.run(_in_one_process(path, jobs)), Goal(most=3))
    with bench.empty_file() as path:
        _report(bench, "across processes", _across_processes(path, jobs), Goal(most=6))


async def _in_one_process(path: Path, jobs: int) -> list[int]:
    workload = open_workload(path)
    settings = WorkerSettings(queues={"default": _SLOTS})
    async with workload.app, workload.app.working(settings) as worker:
        running = asyncio.create_task(worker.run())
        await _submit(workload, jobs)
        worker.stop()
        await running
    return workload.delays_ns


def _across_processes(path: Path, jobs: int) -> list[int]:
    asyncio.run(_make(open_workload(path)))
    with started(child_command(path, _SLOTS, "delays")) as child:
        asyncio.run(_submit_from_outside(path, jobs))
        delays: list[int] = ended(child)
    return delays


async def _make(workload: Workload) -> None:
    """Open once, so that both processes find the schema made."""
    async with workload.app:
        pass


async def _submit_from_outside(path: Path, jobs: int) -> None:
    workload = open_workload(path)
    async with workload.app:
        await _submit(workload, jobs)


async def _submit(workload: Workload, jobs: int) -> None:
    await asyncio.sleep(_WARM_UP_SECONDS)
    for _ in range(jobs):
        await workload.timed.submit(time.time_ns())
        await asyncio.sleep(_APART_SECONDS)


def _report(bench: Bench, where: str, delays_ns: list[int], goal: Goal) -> None:
    assert len(delays_ns) == bench.scale.pick_ups
    millis = [delay / 1e6 for delay in delays_ns]
    percentiles = statistics.quantiles(millis, n=100)
    for percent in (50, 95, 99):
        bench.report.add(
            engine=ENGINE,
            system=GANTLINE,
            metric=f"idle pick-up {where}, p{percent}",
            unit="ms",
            values=[percentiles[percent - 1]],
            goal=goal if percent == 50 else None,
        )

"""Submitting through a job type: one by one, by many callers at once, and many in one call."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from benchmarks.bench import Bench
from benchmarks.contest.meter import INVOICE
from benchmarks.report import GANTLINE, Goal
from benchmarks.scale import Scale
from benchmarks.worker.draining import ENGINE
from benchmarks.worker.workload import Workload, open_workload

_WARM_UP_JOBS: Final = 500

Submit = Callable[[Workload], Awaitable[int]]


def run(bench: Bench) -> None:
    ways = _ways(bench.scale)
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(bench.scale.worker_runs):
        bench.report.say(f"  submit, run {number + 1} of {bench.scale.worker_runs}")
        for name, submit in ways.items():
            with bench.empty_file() as path:
                rates[name].append(asyncio.run(_rate(path, submit)))
    for name, values in rates.items():
        bench.report.add(engine=ENGINE, system=GANTLINE, metric=name, unit="jobs/s", values=values)
    one_by_one, at_once, _ = ways
    bench.report.compare(
        engine=ENGINE,
        metric=at_once,
        values=rates[at_once],
        beside=rates[one_by_one],
        beside_name=one_by_one,
        goal=Goal(least=8),
    )


def _ways(scale: Scale) -> dict[str, Submit]:
    """The first is what the second is compared with."""

    async def in_turn(workload: Workload, jobs: int) -> int:
        for _ in range(jobs):
            await workload.loop.submit(INVOICE)
        return jobs

    async def at_once(workload: Workload) -> int:
        callers = (in_turn(workload, scale.jobs_per_caller) for _ in range(scale.callers))
        return sum(await asyncio.gather(*callers))

    async def in_one_call(workload: Workload) -> int:
        return len(await workload.loop.submit_many([INVOICE] * scale.batch_jobs))

    return {
        "submit one by one": lambda workload: in_turn(workload, scale.single_jobs),
        f"submit, {scale.callers} callers": at_once,
        "submit_many": in_one_call,
    }


async def _rate(path: Path, submit: Submit) -> float:
    workload = open_workload(path)
    async with workload.app:
        await workload.loop.submit_many([INVOICE] * _WARM_UP_JOBS)
        start = time.perf_counter()
        jobs = await submit(workload)
        return jobs / (time.perf_counter() - start)

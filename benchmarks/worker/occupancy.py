"""What a worker process costs while idle, and how well it fills its slots while busy."""

import asyncio
from typing import Final

from benchmarks.bench import Bench
from benchmarks.contest.children import ended, started
from benchmarks.report import GANTLINE, Goal
from benchmarks.worker.draining import ENGINE, child_command, fill
from benchmarks.worker.workload import HANDLER_SECONDS, open_workload

_SLOTS: Final = 50
_MORE_THAN_ENOUGH_SECONDS: Final = 5


def run(bench: Bench) -> None:
    bench.report.say("  idle CPU, busy slots")
    jobs = round(_SLOTS / HANDLER_SECONDS * _MORE_THAN_ENOUGH_SECONDS)
    busy = [_share(bench, "busy", jobs) * 100 for _ in range(bench.scale.worker_runs)]
    _add(bench, f"{_SLOTS} slots busy, handlers of 20 ms", busy, Goal(least=95))
    _add(bench, "CPU of an idle worker", [_share(bench, "idle", 0) * 100], Goal(most=2))


def _share(bench: Bench, measure: str, jobs: int) -> float:
    with bench.empty_file() as path:
        asyncio.run(fill(open_workload(path), "sleeping", jobs))
        with started(child_command(path, _SLOTS, measure)) as child:
            share: float = ended(child)
    return share


def _add(bench: Bench, metric: str, values: list[float], goal: Goal) -> None:
    bench.report.add(
        engine=ENGINE, system=GANTLINE, metric=metric, unit="%", values=values, goal=goal
    )

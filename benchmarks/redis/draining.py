"""Drains on Redis, with the memory that the jobs take before."""

from typing import Final

from benchmarks.contest import draining
from benchmarks.contest.draining import SERVER_CPU, WORKER_CPU, WORKER_MEMORY, Costs, Figure
from benchmarks.contest.stage import Target
from benchmarks.contest.system import System
from benchmarks.redis.stage import Stage
from benchmarks.report import Goal

_KEPT: Final = "memory per queued job"
_FIGURES: Final = (
    Figure(WORKER_CPU, "µs"),
    Figure(SERVER_CPU, "µs"),
    Figure(WORKER_MEMORY, "MB", target=Target(Goal(most=1.5), best=min)),
    Figure(_KEPT, "bytes", target=Target(Goal(most=1), best=min), is_before=True),
)


def run(stage: Stage) -> None:
    draining.run(
        stage,
        lambda processes, system: _costs(stage, system, processes),
        target=Target(Goal(least=8)),
        figures=_FIGURES,
    )


def _costs(stage: Stage, system: System, processes: int) -> Costs:
    jobs = round(stage.scale.redis_jobs * system.drain_share)
    with stage.emptied(system) as url:
        empty = stage.server.memory_bytes()
        system.run(url, "fill", jobs=jobs)
        kept = stage.server.memory_bytes() - empty
        before = stage.server.cpu_seconds()
        drained = draining.drained(system, url, jobs, processes, stops_at_the_last=True)
        cpu_seconds = stage.server.cpu_seconds() - before
    return {
        draining.RATE: drained.rate,
        WORKER_CPU: drained.cpu_micros,
        SERVER_CPU: cpu_seconds / drained.jobs * 1e6,
        WORKER_MEMORY: drained.resident_bytes / 1e6,
        _KEPT: kept / jobs,
    }

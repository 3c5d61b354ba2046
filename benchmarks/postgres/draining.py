"""Drains on PostgreSQL, with what each job costs the server."""

from contextlib import ExitStack
from typing import Final

from benchmarks.contest import draining
from benchmarks.contest.draining import SERVER_CPU, WORKER_CPU, WORKER_MEMORY, Costs, Figure
from benchmarks.contest.stage import Target
from benchmarks.contest.system import System
from benchmarks.postgres.stage import Stage
from benchmarks.postgres.systems import PGQUEUER
from benchmarks.report import Goal

_WAL: Final = "WAL per job"
_COMMITS: Final = "commits per job"
_FIGURES: Final = (
    Figure(WORKER_CPU, "µs"),
    Figure(SERVER_CPU, "µs"),
    Figure(_WAL, "bytes", Goal(most=1200)),
    Figure(_COMMITS, "commits", Goal(most=0.02)),
    Figure(WORKER_MEMORY, "MB", Goal(most=60)),
)


def run(stage: Stage) -> list[float]:
    """Give our rates with one process, for what goes by a share of them."""
    with ExitStack() as stack:
        urls = {
            system: stack.enter_context(stage.database(system, "drain")) for system in stage.systems
        }
        return draining.run(
            stage,
            lambda processes, system: _costs(stage, system, urls[system], processes),
            target=Target(Goal(least=2), PGQUEUER),
            figures=_FIGURES,
        )


def _costs(stage: Stage, system: System, url: str, processes: int) -> Costs:
    jobs = round(stage.scale.postgres_jobs * system.drain_share)
    system.run(url, "fill", jobs=jobs)
    before = stage.server.counters(url, when_alone=True)
    drained = draining.drained(system, url, jobs, processes)
    after = stage.server.counters(url, when_alone=True)
    return {
        draining.RATE: drained.rate,
        WORKER_CPU: drained.cpu_micros,
        SERVER_CPU: (after.cpu_seconds - before.cpu_seconds) / drained.jobs * 1e6,
        _WAL: (after.wal_bytes - before.wal_bytes) / drained.jobs,
        _COMMITS: (after.commits - before.commits) / drained.jobs,
        WORKER_MEMORY: drained.resident_bytes / 1e6,
    }

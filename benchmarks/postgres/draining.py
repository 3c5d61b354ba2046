"""No-op jobs drained by one and by two worker processes, and what each job costs the server."""

from contextlib import ExitStack
from typing import Final, NamedTuple

from benchmarks.postgres.server import Server
from benchmarks.postgres.stage import Stage
from benchmarks.postgres.systems import OURS, PGQUEUER, System
from benchmarks.report import Goal
from benchmarks.worker.children import drained_by

_PROCESSES: Final = (1, 2)
_RATIO_GOALS: Final = {PGQUEUER: Goal(least=2)}


class _Cost(NamedTuple):
    """What a drain took, by job; the memory by process."""

    rate: float
    cpu_micros: float
    wal_bytes: float
    commits: float
    resident_megabytes: float


def run(stage: Stage) -> list[float]:
    """Give our rates with one process, for what goes by a share of them."""
    runs: dict[tuple[int, System], list[_Cost]] = {
        (processes, system): [] for processes in _PROCESSES for system in stage.systems
    }
    with ExitStack() as stack:
        urls = {
            system: stack.enter_context(stage.database(system, "drain")) for system in stage.systems
        }
        for number in range(stage.scale.worker_runs):
            stage.say(f"drain, run {number + 1} of {stage.scale.worker_runs}")
            for (processes, system), costs in runs.items():
                jobs = round(stage.scale.postgres_jobs * system.drain_share)
                costs.append(_drained(stage.server, system, urls[system], jobs, processes))
    for processes in _PROCESSES:
        _report(stage, processes, {system: runs[(processes, system)] for system in stage.systems})
    return [cost.rate for cost in runs[(1, OURS)]]


def _drained(server: Server, system: System, url: str, jobs: int, processes: int) -> _Cost:
    system.run(url, "fill", jobs=jobs)
    before = server.counters(url)
    drained = drained_by(system.command(url, "drain", slots=system.slots), processes)
    after = server.counters(url)
    # A peer that is killed with work in hand runs it again; none of them may have lost any.
    assert drained.jobs >= jobs, f"{system.name}: {drained.jobs} of {jobs}"
    return _Cost(
        rate=drained.rate,
        cpu_micros=drained.cpu_micros,
        wal_bytes=(after.wal_bytes - before.wal_bytes) / drained.jobs,
        commits=(after.commits - before.commits) / drained.jobs,
        resident_megabytes=drained.resident_bytes / 1e6,
    )


def _report(stage: Stage, processes: int, runs: dict[System, list[_Cost]]) -> None:
    name = f"no-op drain, {processes} process{'es' if processes > 1 else ''}"
    rates = {system: [cost.rate for cost in costs] for system, costs in runs.items()}
    stage.add_all(name, "jobs/s", rates)
    stage.compare_all(name, rates, _RATIO_GOALS)
    cpu = {system: [cost.cpu_micros for cost in costs] for system, costs in runs.items()}
    stage.add_all(f"{name}, worker CPU per job", "µs", cpu)
    if processes > 1:
        return
    wal = {system: [cost.wal_bytes for cost in costs] for system, costs in runs.items()}
    stage.add_all(f"{name}, WAL per job", "bytes", wal, goal=Goal(most=1200))
    commits = {system: [cost.commits for cost in costs] for system, costs in runs.items()}
    stage.add_all(f"{name}, commits per job", "commits", commits, goal=Goal(most=0.02))
    memory = {system: [cost.resident_megabytes for cost in costs] for system, costs in runs.items()}
    stage.add_all(f"{name}, memory of the worker", "MB", memory, goal=Goal(most=60))

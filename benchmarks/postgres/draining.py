"""No-op jobs drained by one and by two worker processes, and what each job costs the server."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, NamedTuple

from benchmarks.postgres.server import Server
from benchmarks.postgres.stage import Runs, Stage
from benchmarks.postgres.systems import OURS, PGQUEUER, System
from benchmarks.report import Goal
from benchmarks.worker.children import drained_by

_PROCESSES: Final = (1, 2)
_RATIO_GOALS: Final = {PGQUEUER: Goal(least=2)}


class _Cost(NamedTuple):
    """What a drain took, by job; the memory by process."""

    rate: float
    cpu_micros: float
    server_cpu_micros: float
    wal_bytes: float
    commits: float
    resident_megabytes: float


_COSTS: Final[tuple[tuple[str, str, Goal | None, Callable[[_Cost], float]], ...]] = (
    ("worker CPU per job", "µs", None, lambda cost: cost.cpu_micros),
    ("server CPU per job", "µs", None, lambda cost: cost.server_cpu_micros),
    ("WAL per job", "bytes", Goal(most=1200), lambda cost: cost.wal_bytes),
    ("commits per job", "commits", Goal(most=0.02), lambda cost: cost.commits),
    ("memory of the worker", "MB", Goal(most=60), lambda cost: cost.resident_megabytes),
)


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
    before = server.counters(url, when_alone=True)
    drained = drained_by(system.command(url, "drain", slots=system.slots), processes)
    after = server.counters(url, when_alone=True)
    # A peer that is killed with work in hand runs it again; none of them may have lost any.
    assert drained.jobs >= jobs, f"{system.name}: {drained.jobs} of {jobs}"
    return _Cost(
        rate=drained.rate,
        cpu_micros=drained.cpu_micros,
        server_cpu_micros=(after.cpu_seconds - before.cpu_seconds) / drained.jobs * 1e6,
        wal_bytes=(after.wal_bytes - before.wal_bytes) / drained.jobs,
        commits=(after.commits - before.commits) / drained.jobs,
        resident_megabytes=drained.resident_bytes / 1e6,
    )


def _report(stage: Stage, processes: int, runs: dict[System, list[_Cost]]) -> None:
    name = f"no-op drain, {processes} process{'es' if processes > 1 else ''}"
    rates = _each(runs, lambda cost: cost.rate)
    stage.add_all(name, "jobs/s", rates)
    stage.compare_all(name, rates, _RATIO_GOALS)
    for what, unit, goal, of_cost in _COSTS if processes == 1 else ():
        stage.add_all(f"{name}, {what}", unit, _each(runs, of_cost), goal=goal)


def _each(runs: dict[System, list[_Cost]], of_cost: Callable[[_Cost], float]) -> Runs:
    return {system: [of_cost(cost) for cost in costs] for system, costs in runs.items()}

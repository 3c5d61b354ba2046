"""No-op jobs drained by one and by two worker processes, and what each of them costs."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from benchmarks.contest.children import ChildFailed, Drained, drained_by
from benchmarks.contest.stage import Runs, Stage, Target
from benchmarks.contest.system import OURS, System
from benchmarks.report import Goal

_PROCESSES: Final = (1, 2)
RATE: Final = "rate"
WORKER_CPU: Final = "worker CPU per job"
SERVER_CPU: Final = "server CPU per job"
WORKER_MEMORY: Final = "memory of the worker"

Costs = Mapping[str, float]
Drain = Callable[[int, System], Costs]


class Figure(NamedTuple):
    """What is told of a drain by one process, beside its rate."""

    name: str
    unit: str
    goal: Goal | None = None
    target: Target | None = None
    is_before: bool = False
    """Whether it is about the jobs while they wait."""


def run(
    stage: Stage, drain: Drain, *, target: Target | None = None, figures: tuple[Figure, ...]
) -> list[float]:
    """Give our rates with one process, for what goes by a share of them."""
    rates: dict[int, Runs] = {}
    for processes in _PROCESSES:
        name = f"no-op drain, {processes} process{'es' if processes > 1 else ''}"
        taken = stage.rounds(name, partial(drain, processes))
        rates[processes] = _each(taken, RATE)
        stage.add_all(name, "jobs/s", rates[processes])
        stage.compare_all(name, rates[processes], target)
        for figure in figures if processes == 1 else ():
            runs = _each(taken, figure.name)
            metric = figure.name if figure.is_before else f"{name}, {figure.name}"
            stage.add_all(metric, figure.unit, runs, goal=figure.goal)
            if figure.target:
                stage.compare_all(metric, runs, figure.target)
    return rates[1][OURS]


def drained(
    system: System, url: str, jobs: int, processes: int, *, stops_at_the_last: bool = False
) -> Drained:
    """Drain so many jobs, and see that none is lost.

    A process stops when none comes for a while, or with the last job, where it has all of them.
    """
    known = {"jobs": jobs} if stops_at_the_last and processes == 1 else {}
    taken = drained_by(system.command(url, "drain", slots=system.slots, **known), processes)
    # A peer that is killed with work in hand runs it again; none of them may have lost any.
    if taken.jobs < jobs:
        raise ChildFailed(f"{taken.jobs} of {jobs} jobs were run")
    return taken


def _each(taken: Mapping[System, list[Costs]], name: str) -> Runs:
    return {system: [costs[name] for costs in runs] for system, runs in taken.items()}

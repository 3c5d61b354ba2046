"""Submitting: one by one, by many callers at once, and many in one call."""

from contextlib import ExitStack
from typing import Final

from benchmarks.postgres.stage import Runs, Stage
from benchmarks.postgres.systems import OURS, PGQUEUER, System
from benchmarks.report import Goal

_ONE_BY_ONE: Final = "submit one by one"
_IN_BULK: Final = "submit_many"
_AS_FAST: Final = {PGQUEUER: Goal(least=1)}


def run(stage: Stage) -> None:
    at_once = f"submit, {stage.scale.callers} callers"
    runs: dict[str, Runs] = {
        _ONE_BY_ONE: {system: [] for system in stage.systems},
        at_once: {OURS: []},
        _IN_BULK: {system: [] for system in stage.systems},
    }
    with ExitStack() as stack:
        urls = {
            system: stack.enter_context(stage.database(system, "submit"))
            for system in stage.systems
        }
        for number in range(stage.scale.worker_runs):
            stage.say(f"submit, run {number + 1} of {stage.scale.worker_runs}")
            for way, systems in runs.items():
                for system, rates in systems.items():
                    rates.append(_rate(stage, way, system, urls[system]))
    for way, systems in runs.items():
        stage.add_all(way, "jobs/s", systems)
    for way in (_ONE_BY_ONE, _IN_BULK):
        stage.compare_all(way, runs[way], _AS_FAST)
    if theirs := runs[_ONE_BY_ONE].get(PGQUEUER):
        stage.compare(
            at_once,
            runs[at_once][OURS],
            theirs,
            beside_name=f"{PGQUEUER.name} one by one",
            goal=Goal(least=10),
        )


def _rate(stage: Stage, way: str, system: System, url: str) -> float:
    scale = stage.scale
    if way == _ONE_BY_ONE:
        rate: float = system.run(url, "submit", jobs=scale.single_jobs)
    elif way == _IN_BULK:
        rate = system.run(url, "submit_many", jobs=scale.batch_jobs)
    else:
        jobs = scale.callers * scale.jobs_per_caller
        rate = system.run(url, "submit", jobs=jobs, callers=scale.callers)
    return rate

"""Submitting: one by one, by many callers at once, and many in one call."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from benchmarks.contest.stage import Runs, Stage, Target
from benchmarks.contest.system import System

ONE_BY_ONE: Final = "submit one by one"
AT_ONCE: Final = "submit, {} callers"
IN_BULK: Final = "submit_many"


def run(stage: Stage, targets: Mapping[str, Target]) -> dict[str, Runs]:
    """Give the rates of each way."""
    scale = stage.scale
    every, bulk = stage.systems, [system for system in stage.systems if system.has_bulk]
    at_once = {"jobs": scale.callers * scale.jobs_per_caller, "callers": scale.callers}
    ways: tuple[tuple[str, str, dict[str, int], list[System]], ...] = (
        (ONE_BY_ONE, "submit", {"jobs": scale.single_jobs}, every),
        (AT_ONCE, "submit", at_once, every),
        (IN_BULK, "submit_many", {"jobs": scale.batch_jobs}, bulk),
    )
    taken: dict[str, Runs] = {}
    for way, what, options, systems in ways:
        name = way.format(scale.callers)
        taken[way] = stage.rounds(name, partial(_rate, stage, what, options), systems)
        stage.add_all(name, "jobs/s", taken[way])
        stage.compare_all(name, taken[way], targets.get(way))
    return taken


def _rate(stage: Stage, what: str, options: dict[str, int], system: System) -> float:
    with stage.emptied(system) as url:
        rate: float = system.run(url, what, **options)
    return rate

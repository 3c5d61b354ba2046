"""What each part of the benchmark is given: the run, the server, the systems, and its rows."""

from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from benchmarks.bench import Bench
from benchmarks.postgres.server import Server
from benchmarks.postgres.systems import OURS, System
from benchmarks.report import Goal
from benchmarks.scale import Scale

ENGINE: Final = "postgres"

Runs = dict[System, list[float]]


class Stage(NamedTuple):
    """One run of `postgres`."""

    bench: Bench
    server: Server
    systems: list[System]

    @property
    def scale(self) -> Scale:
        return self.bench.scale

    def make_tables(self) -> None:
        """Let every system make its tables once; what it is measured on is a copy."""
        for system in self.systems:
            self.say(f"tables of {system.name}")
            system.run(self.server.make(_empty(system)), "make")

    def database(self, system: System, name: str) -> AbstractContextManager[str]:
        """A database with a system's tables by its URL, which is dropped afterwards."""
        return self.server.copied(_empty(system), f"{system.module}_{name}")

    def say(self, text: str) -> None:
        self.bench.report.say(f"  {text}")

    def add(
        self,
        metric: str,
        unit: str,
        values: list[float],
        *,
        system: System = OURS,
        goal: Goal | None = None,
    ) -> None:
        """Add a figure; that of a peer is told apart by its name."""
        self.bench.report.add(
            engine=ENGINE,
            system=system.name,
            metric=metric if system == OURS else f"{metric}, {system.name}",
            unit=unit,
            values=values,
            goal=goal,
        )

    def add_all(self, metric: str, unit: str, runs: Runs, *, goal: Goal | None = None) -> None:
        """Add a figure of every system; the goal is ours."""
        for system, values in runs.items():
            mine = goal if system == OURS else None
            self.add(metric, unit, values, system=system, goal=mine)

    def compare(
        self,
        metric: str,
        values: list[float],
        beside: list[float],
        *,
        beside_name: str,
        goal: Goal | None = None,
    ) -> None:
        self.bench.report.compare(
            engine=ENGINE,
            metric=metric,
            values=values,
            beside=beside,
            beside_name=beside_name,
            goal=goal,
        )

    def compare_all(self, metric: str, runs: Runs, goals: dict[System, Goal]) -> None:
        """Add our ratio to every peer."""
        for system, values in runs.items():
            if system != OURS:
                self.compare(
                    f"{metric}, {system.name}",
                    runs[OURS],
                    values,
                    beside_name=system.name,
                    goal=goals.get(system),
                )


def _empty(system: System) -> str:
    return f"{system.module}_empty"

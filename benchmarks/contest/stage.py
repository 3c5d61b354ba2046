"""What each part of a contest is given: the run, the systems, their empty stores, and its rows."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final, NamedTuple, TypeVar

from benchmarks.bench import Bench
from benchmarks.contest.children import ChildFailed
from benchmarks.contest.system import OURS, System
from benchmarks.report import Goal
from benchmarks.scale import Scale

_BEST: Final = "the best peer"

T = TypeVar("T")
Runs = dict[System, list[float]]


class Target(NamedTuple):
    """What our ratio should be: to one peer, or to the best of them."""

    ratio: Goal
    peer: System | None = None
    best: Callable[[Sequence[float]], float] = max


class Stage(ABC):
    """One server with the systems that are measured on it."""

    def __init__(
        self, bench: Bench, systems: list[System], *, engine: str, where: str = ""
    ) -> None:
        self._report = bench.report
        self.scale: Scale = bench.scale
        self.systems = systems
        self._engine = engine
        self._where = where
        """What tells this stage's figures from those of others on the same engine."""

    @abstractmethod
    def emptied(self, system: System) -> AbstractContextManager[str]:
        """An empty store for a system by its URL, which is removed afterwards."""

    def say(self, text: str) -> None:
        self._report.say(f"  {self._named(text)}")

    def rounds(
        self, what: str, measure: Callable[[System], T], systems: Sequence[System] = ()
    ) -> dict[System, list[T]]:
        """Measure the systems in turns. A peer that fails is left out, and it is said why."""
        taken: dict[System, list[T]] = {system: [] for system in systems or self.systems}
        for number in range(self.scale.worker_runs):
            self.say(f"{what}, run {number + 1} of {self.scale.worker_runs}")
            for system in tuple(taken):
                try:
                    taken[system].append(measure(system))
                except ChildFailed as failure:
                    if system == OURS:
                        raise
                    del taken[system]
                    self._report.leave_out(system.name, what=self._named(what), reason=str(failure))
        return taken

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
        metric = self._named(metric)
        self._report.add(
            engine=self._engine,
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
        self._report.compare(
            engine=self._engine,
            metric=self._named(metric),
            values=values,
            beside=beside,
            beside_name=beside_name,
            goal=goal,
        )

    def compare_all(self, metric: str, runs: Runs, target: Target | None = None) -> None:
        """Add our ratio to every peer; if they all are the target, to the best of each round."""
        peers = {system: values for system, values in runs.items() if system != OURS}
        for system, values in peers.items():
            goal = target.ratio if target and target.peer == system else None
            name = system.name
            self.compare(f"{metric}, {name}", runs[OURS], values, beside_name=name, goal=goal)
        if peers and target and target.peer is None:
            self.compare(
                f"{metric}, {_BEST}",
                runs[OURS],
                [target.best(values) for values in zip(*peers.values(), strict=True)],
                beside_name=_BEST,
                goal=target.ratio,
            )

    def _named(self, text: str) -> str:
        return f"{text}, {self._where}" if self._where else text

"""What each part of `flow` is given: a store, children with a shape, and rows in the report."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from benchmarks.bench import Bench
from benchmarks.contest.children import answer_of, drained_by, ended, started_together
from benchmarks.contest.environment import python_of
from benchmarks.contest.system import OURS, System
from benchmarks.flow.engines import Engine
from benchmarks.flow.player import NotedRun, Shape
from benchmarks.report import GANTLINE, Goal
from benchmarks.scale import Scale

_FILL_SECONDS: Final = 1200.0
_DRAIN_SECONDS: Final = 600.0
OURS_HERE: Final = OURS._replace(module="benchmarks.flow.on_gantline")


class Stage:
    """One engine."""

    def __init__(self, bench: Bench, engine: Engine) -> None:
        self.report = bench.report
        self.scale: Scale = bench.scale
        self.engine = engine

    def say(self, text: str) -> None:
        self.report.say(f"  {self.engine.name}: {text}")

    @contextmanager
    def filled(self, system: System, shape: Shape, jobs: int) -> Iterator[str]:
        """A store with so many jobs of this shape."""
        with self.engine.emptied() as url:
            answer_of(_command(system, url, shape, "make"))
            fill = _command(system, url, shape, "fill", jobs=jobs)
            answer_of(fill, longest_seconds=_FILL_SECONDS)
            yield url

    def drained(self, url: str, shape: Shape, jobs: int, *, slots: int) -> tuple[float, float]:
        """Drain a filled store by one process: the rate, and the CPU of client and server."""
        command = _command(OURS_HERE, url, shape, "drain", slots=slots, jobs=jobs)
        before = self.engine.cpu_seconds()
        drained = drained_by(command, 1, longest_seconds=_DRAIN_SECONDS)
        server = (self.engine.cpu_seconds() - before) / drained.jobs * 1e6
        assert drained.jobs == jobs, f"{drained.jobs} of {jobs} jobs were run"
        return drained.rate, drained.cpu_micros + server

    def noted(
        self,
        system: System,
        url: str,
        shape: Shape,
        *,
        processes: int,
        slots: int,
        seconds: float = 0,
    ) -> list[NotedRun]:
        """Have processes work until none comes or the time is over; when each of their runs was."""
        command = _command(system, url, shape, "note", slots=slots, seconds=seconds)
        with started_together(command, processes) as children:
            told = [ended(child, longest_seconds=_DRAIN_SECONDS) for child in children]
        return sorted((NotedRun(*run) for runs in told for run in runs), key=_began)

    def add(
        self,
        metric: str,
        unit: str,
        values: Sequence[float],
        *,
        system: str = GANTLINE,
        goal: Goal | None = None,
    ) -> None:
        """Add a figure; that of a peer is told apart by its name."""
        self.report.add(
            engine=self.engine.name,
            system=system,
            metric=metric if system == GANTLINE else f"{metric}, {system}",
            unit=unit,
            values=list(values),
            goal=goal,
        )

    def compare(
        self,
        metric: str,
        values: Sequence[float],
        beside: Sequence[float],
        *,
        beside_name: str,
        goal: Goal | None = None,
    ) -> None:
        self.report.compare(
            engine=self.engine.name,
            metric=metric,
            values=list(values),
            beside=list(beside),
            beside_name=beside_name,
            goal=goal,
        )

    def leave_out(self, system: str, *, what: str, reason: str) -> None:
        self.report.leave_out(system, what=what, reason=reason)


def _command(system: System, url: str, shape: Shape, what: str, **options: float) -> list[str]:
    python = str(python_of(system.environment)) if system.requirements else sys.executable
    given = [f"--{name}={number}" for name, number in options.items()]
    program = [python, "-m", "benchmarks.flow.child", system.module, url]
    return [*program, json.dumps(shape), what, *given]


def _began(run: NotedRun) -> int:
    return run.began_ns

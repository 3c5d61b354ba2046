"""The report: rows with medians and spreads, said as they come, then a table and a JSON file."""

import statistics
import sys
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.conditions import Conditions

GANTLINE: Final = "gantline"
RATIO: Final = "ratio"


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """What a median should reach."""

    least: float | None = None
    most: float | None = None

    def is_met(self, value: float) -> bool:
        enough = self.least is None or value >= self.least
        return enough and (self.most is None or value <= self.most)

    def __str__(self) -> str:
        if self.most is None:
            return f">= {self.least:g}"
        return f"<= {self.most:g}"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One figure: the median of its runs, and the least and the greatest of them."""

    benchmark: str
    commit: str
    engine: str
    system: str
    metric: str
    value: float
    unit: str
    runs: int
    spread: tuple[float, float]
    goal: Goal | None = None
    met: bool | None = None


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A system without a figure, and why."""

    benchmark: str
    system: str
    what: str
    reason: str


class _Written(msgspec.Struct, frozen=True):
    rows: tuple[Row, ...]
    left_out: tuple[LeftOut, ...] = ()


class Report:
    """Collects the rows of all benchmarks of one run."""

    def __init__(self, *, commit: str) -> None:
        self._commit = commit
        self.benchmark = ""
        """The one that is running."""
        self.rows: list[Row] = []
        self.left_out: list[LeftOut] = []

    def say(self, text: str) -> None:
        """Tell on the terminal what is being done, apart from the table that goes to stdout."""
        print(text, file=sys.stderr, flush=True)

    def add(
        self,
        *,
        engine: str,
        system: str,
        metric: str,
        unit: str,
        values: list[float],
        goal: Goal | None = None,
    ) -> None:
        value = _rounded(statistics.median(values))
        self.rows.append(
            Row(
                benchmark=self.benchmark,
                commit=self._commit,
                engine=engine,
                system=system,
                metric=metric,
                value=value,
                unit=unit,
                runs=len(values),
                spread=(_rounded(min(values)), _rounded(max(values))),
                goal=goal,
                met=goal.is_met(value) if goal else None,
            )
        )

    def compare(
        self,
        *,
        engine: str,
        metric: str,
        values: list[float],
        beside: list[float],
        beside_name: str,
        goal: Goal | None = None,
    ) -> None:
        """Add a ratio. Runs are compared one by one, so that what slows both cancels out."""
        self.add(
            engine=engine,
            system=f"{GANTLINE} / {beside_name}",
            metric=metric,
            unit=RATIO,
            values=[ours / theirs for ours, theirs in zip(values, beside, strict=True)],
            goal=goal,
        )

    def leave_out(self, system: str, *, what: str = "everything", reason: str) -> None:
        """Say why there is no figure, here and on the page."""
        self.say(f"  {system} is left out of {what}: {reason}")
        self.left_out.append(
            LeftOut(benchmark=self.benchmark, system=system, what=what, reason=reason)
        )

    def table(self) -> str:
        """Lay out the figures, each with its ratio where it has one; then ratios to no figure."""
        ratios = {(row.engine, row.metric): row for row in self.rows if row.unit == RATIO}
        head = ("engine", "metric", "median", "unit", "min - max", "runs", "ratio", "to", "goal")
        body = [
            (*_figures(row), *_ratio(ratio), _verdict(row) or _verdict(ratio))
            for row in self.rows
            if row.unit != RATIO
            for ratio in (ratios.pop((row.engine, row.metric), None),)
        ]
        body += [(*_figures(ratio), *_ratio(ratio), _verdict(ratio)) for ratio in ratios.values()]
        return aligned(head, body, numbers={2, 5, 6})

    def write(self, path: Path, conditions: Conditions) -> None:
        """Replace the rows of the benchmarks that ran; those of the others stay as they were."""
        path.parent.mkdir(exist_ok=True)
        kept = self._kept(path)
        document = msgspec.to_builtins(conditions) | {
            "left_out": [*kept.left_out, *self.left_out],
            "rows": [*kept.rows, *self.rows],
        }
        path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")

    def _kept(self, path: Path) -> _Written:
        if not path.exists():
            return _Written(())
        ran = {row.benchmark for row in self.rows}
        told = {one.benchmark for one in self.left_out}
        before = msgspec.json.decode(path.read_bytes(), type=_Written)
        return _Written(
            rows=tuple(row for row in before.rows if row.benchmark not in ran),
            left_out=tuple(one for one in before.left_out if one.benchmark not in ran | told),
        )


def _figures(row: Row) -> tuple[str, ...]:
    least, greatest = map(figure, row.spread)
    spread = f"{least} - {greatest}"
    return (row.engine, row.metric, figure(row.value), row.unit, spread, str(row.runs))


def _ratio(row: Row | None) -> tuple[str, str]:
    if row is None:
        return ("", "")
    return (f"{row.value:.2f}", row.system.partition(" / ")[2])


def _verdict(row: Row | None) -> str:
    if row is None or row.goal is None:
        return ""
    return f"{row.goal} {'met' if row.met else 'MISSED'}"


def aligned(head: Sequence[str], body: Sequence[Sequence[str]], *, numbers: Set[int]) -> str:
    """Lay cells out in columns for a terminal; those of numbers end at the same place."""
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    rule = tuple("-" * width for width in widths)
    return "\n".join(_line(cells, widths, numbers) for cells in (head, rule, *body))


def _line(cells: Sequence[str], widths: Sequence[int], numbers: Set[int]) -> str:
    padded = [
        cell.rjust(width) if column in numbers else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()


def figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _rounded(value: float) -> float:
    """Four digits; the rest is noise."""
    return float(f"{value:.4g}")

"""The page: `python -m benchmarks.page` writes docs/benchmarks.md from the latest results."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.conditions import Conditions
from benchmarks.report import GANTLINE, RATIO, LeftOut, Row, figure

ROOT: Final = Path(__file__).parents[1]
RESULTS: Final = ROOT / "benchmarks" / "results" / "latest.json"
PAGE: Final = ROOT / "docs" / "benchmarks.md"


class Results(Conditions, frozen=True, kw_only=True):
    """What a run of the benchmarks wrote."""

    rows: tuple[Row, ...]
    left_out: tuple[LeftOut, ...] = ()


def page(results: Results) -> str:
    """Lay the results out as Markdown."""
    goals = [row for row in results.rows if row.goal is not None]
    met = sum(row.met is True for row in goals)
    return "\n\n".join(
        (
            "# Benchmarks",
            "`make bench` measures and writes this page from `benchmarks/results/latest.json`; do "
            "not edit it. Every figure is the median of its runs, beside the least and the "
            "greatest. A ratio compares runs of the same round, so that what slows the machine "
            "slows both sides.",
            _conditions(results),
            f"## Goals: {met} of {len(goals)} met",
            _table(
                ("", "median", "goal", "met"),
                ((_name(row), _value(row), str(row.goal), _verdict(row)) for row in goals),
            ),
            *_left_out(results.left_out),
            "## All figures",
            _table(
                ("", "median", "least – greatest", "runs", "store", "commit"),
                (
                    (_name(row), _value(row), _spread(row), str(row.runs), row.engine, row.commit)
                    for row in results.rows
                ),
            ),
        )
    )


def _left_out(systems: tuple[LeftOut, ...]) -> tuple[str, ...]:
    if not systems:
        return ()
    rows = ((f"{one.what} ({one.system})", one.reason.replace("|", "/")) for one in systems)
    return "## Left out", _table(("", "because"), rows)


def _conditions(results: Results) -> str:
    return (
        f"Python {results.python}, SQLite {results.sqlite} with `synchronous = "
        f"{results.sqlite_sync}`, {results.cores} cores ({results.machine}), "
        f"{results.file_system} with {results.fsync_ms:g} ms for a durable page, load "
        f"{results.load_before:g} before the start. Commit {results.commit}, {results.date}"
        f"{', small sizes (--quick)' if results.quick else ''}."
    )


def _name(row: Row) -> str:
    """The metric; with whose it is where that is not us, or what it is compared with."""
    if row.unit == RATIO:
        other = row.system.removeprefix(f"{GANTLINE} / ")
        return f"{row.metric.removesuffix(f', {other}')}, times {other}"
    if row.system in (GANTLINE, row.metric) or row.system in row.metric:
        return row.metric
    return f"{row.metric} ({row.system})"


def _value(row: Row) -> str:
    return figure(row.value) if row.unit == RATIO else f"{figure(row.value)} {row.unit}"


def _spread(row: Row) -> str:
    return " – ".join(map(figure, row.spread))


def _verdict(row: Row) -> str:
    return "yes" if row.met else "**no**"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = (head, ["---"] * len(head), *rows)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def read_results() -> Results:
    return msgspec.json.decode(RESULTS.read_bytes(), type=Results)


def write_page() -> None:
    PAGE.write_text(f"{page(read_results())}\n", encoding="utf-8")


if __name__ == "__main__":
    write_page()

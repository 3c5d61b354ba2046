"""What was measured beside others, from benchmarks/results/latest.json."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.conditions import Conditions
from benchmarks.report import GANTLINE, RATIO, Row, figure
from scripts.docs.markdown import table

RESULTS: Final = Path(__file__).parents[2] / "benchmarks" / "results" / "latest.json"
STORES: Final = {"sqlite": "SQLite", "postgres": "PostgreSQL", "redis": "Redis"}
# Where less is better; of everything else, more is.
COSTS: Final = frozenset({"ms", "µs", "bytes", "MB", "commits", "1/s", "%"})


Line = dict[str, Row]
"""The figures of one metric, by whose they are."""


class _Results(msgspec.Struct):
    rows: tuple[Row, ...]


def _rows() -> tuple[Row, ...]:
    return msgspec.json.decode(RESULTS.read_bytes(), type=_Results).rows


def when_and_where() -> str:
    """When, and on what, the figures were measured."""
    measured = msgspec.json.decode(RESULTS.read_bytes(), type=Conditions)
    return (
        f"Measured up to {measured.date[:10]} on {measured.cores} cores ({measured.machine}) "
        f"with Python {measured.python}, which client, worker and server share."
    )


def beside_others() -> str:
    """A table for each store: what was measured, of whom; the best of each line is bold."""
    parts = []
    for name, lines in compared().items():
        others = (one for line in lines.values() for one in line)
        systems = list(dict.fromkeys([GANTLINE, *others]))
        rows = ([metric, *_cells(line, systems)] for metric, line in lines.items())
        parts.append(f"### On {name}\n\n" + table(["", "Gantline", *systems[1:]], rows))
    return "\n".join(parts)


def losses() -> str:
    """The lines of which another has the best."""
    found = [
        f"- {name}, {metric}: {best.system} {_shown(best)}, Gantline {_shown(line[GANTLINE])}\n"
        for name, lines in compared().items()
        for metric, line in lines.items()
        for best in (_best(line),)
        if best.system != GANTLINE
    ]
    return "".join(found)


def compared() -> dict[str, dict[str, Line]]:
    """By store and metric, the figures of all who were measured beside us."""
    found: dict[str, dict[str, Line]] = {}
    for row in filter(_is_of_a_system, _rows()):
        store = STORES.get(row.engine, row.engine)
        metric = row.metric.removesuffix(f", {row.system}")
        found.setdefault(store, {}).setdefault(metric, {})[row.system] = row
    return {
        store: compared
        for store, lines in found.items()
        if (compared := {metric: line for metric, line in lines.items() if _is_compared(line)})
    }


def _is_of_a_system(row: Row) -> bool:
    """Not a ratio, not the bare engine, and not the server over HTTP that answers nothing."""
    return row.unit != RATIO and not row.system.startswith("raw ") and row.benchmark != "http"


def _is_compared(line: Line) -> bool:
    return GANTLINE in line and len(line) > 1


def _best(line: Line) -> Row:
    rows = list(line.values())
    return (min if rows[0].unit in COSTS else max)(rows, key=lambda row: row.value)


def _cells(line: Line, systems: Sequence[str]) -> Iterator[str]:
    best = _best(line)
    for system in systems:
        row = line.get(system)
        shown = "–" if row is None else _shown(row)
        yield f"**{shown}**" if row is best else shown


def _shown(row: Row) -> str:
    return f"{figure(row.value)} {row.unit}"

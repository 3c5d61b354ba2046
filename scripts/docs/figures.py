"""What was measured beside others, from benchmarks/results/latest.json."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.conditions import Conditions
from benchmarks.report import RATIO, WINDLASS, Row, figure
from scripts.docs.markdown import table

RESULTS: Final = Path(__file__).parents[2] / "benchmarks" / "results" / "latest.json"
STORES: Final = {"sqlite": "SQLite", "postgres": "PostgreSQL", "redis": "Redis"}
# Where less is better; of everything else, more is.
COSTS: Final = frozenset({"ms", "µs", "bytes", "MB", "commits", "1/s", "%"})


class _Results(msgspec.Struct):
    rows: tuple[Row, ...]


def _rows() -> tuple[Row, ...]:
    return msgspec.json.decode(RESULTS.read_bytes(), type=_Results).rows


def when_and_where() -> str:
    """When, and on what, the figures were measured."""
    told = msgspec.json.decode(RESULTS.read_bytes(), type=Conditions)
    return (
        f"Measured up to {told.date[:10]} on {told.cores} cores ({told.machine}) with Python "
        f"{told.python}, which client, worker and server share."
    )


def beside_others() -> str:
    """A table for each store: what was measured, of whom; the best of each line is bold."""
    parts = []
    for engine, name in STORES.items():
        # What was measured over HTTP is beside a server that answers nothing, and no rival.
        measured = [row for row in _rows() if row.engine == engine and row.benchmark != "http"]
        if rows := [row for row in measured if row.unit != RATIO]:
            parts.append(f"### On {name}\n\n" + _beside(rows))
    return "\n".join(parts)


def _beside(rows: Sequence[Row]) -> str:
    others = [row for row in rows if row.system != WINDLASS and not row.system.startswith("raw ")]
    found = {(row.system, _metric(row)): row for row in rows}
    metrics = list(dict.fromkeys(map(_metric, others)))
    systems = [WINDLASS, *dict.fromkeys(row.system for row in others)]
    lines = [
        [metric, *_line([found.get((system, metric)) for system in systems])] for metric in metrics
    ]
    return table(["", "Windlass", *systems[1:]], lines)


def _line(rows: Sequence[Row | None]) -> Iterator[str]:
    there = [row for row in rows if row is not None]
    best = (min if there[0].unit in COSTS else max)(row.value for row in there)
    for row in rows:
        shown = "–" if row is None else f"{figure(row.value)} {row.unit}"
        yield f"**{shown}**" if row is not None and row.value == best else shown


def _metric(row: Row) -> str:
    return row.metric.removesuffix(f", {row.system}")

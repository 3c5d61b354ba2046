"""A table that fits its terminal: ids and what matters stay whole, the rest folds or goes."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from rich.cells import cell_len

_GAP: Final = "  "
_INDENT: Final = "    "
# Prose in a narrower column is a tower of words.
_NARROWEST_PROSE: Final = 40
_NARROWEST: Final = 8
# What people copy or compare.
_WHOLE: Final = frozenset(
    {"jobId", "sessionId", "webhookId", "deliveryId", "keyId", "state", "status", "attempts"}
    | {"age", "event", "time", "endedAt", "completedAt"}
)

Cells = Mapping[str, str]


class Columns(NamedTuple):
    """What a table shows, from left to right, and what it does without in a narrow terminal."""

    names: tuple[str, ...]
    prose: str = ""
    """Folded at the right; put below its row where even that is too narrow."""
    expendable: tuple[str, ...] = ()
    """Given up one after the other, the first first; prose that is among them is not put below."""


class _Layout(NamedTuple):
    widths: dict[str, int]
    below: str = ""

    def room(self, width: int) -> int:
        """What is left of the terminal; negative where the table is too wide."""
        return width - sum(self.widths.values()) - len(_GAP) * (len(self.widths) - 1)


class Table(NamedTuple):
    lines: list[str]
    """The first is the header."""
    left_out: list[str]
    """The columns that have something to say, and no room."""


def table_of(rows: Sequence[Cells], columns: Columns, width: int) -> Table:
    """Lay rows out in so many columns of characters."""
    natural = _natural(rows, columns)
    layout = _fitted(natural, columns, width)
    lines = [_joined({name: name for name in layout.widths}, layout)]
    for row in rows:
        lines += _row_lines(row, layout, width)
    shown = {*layout.widths, layout.below}
    left_out = [name for name in natural.widths if name not in shown]
    return Table([line.rstrip() for line in lines], left_out)


def _natural(rows: Sequence[Cells], columns: Columns) -> _Layout:
    """As wide as what is in it; a column that says nothing is left out."""
    widths = {
        name: max(cell_len(name), *(cell_len(row[name]) for row in rows))
        for name in columns.names
        if any(row[name] for row in rows)
    }
    return _Layout(widths)


def _fitted(layout: _Layout, columns: Columns, width: int) -> _Layout:
    layout = _with_prose_folded(_Layout(dict(layout.widths)), columns, width)
    for name in columns.expendable:
        if layout.room(width) < 0:
            layout.widths.pop(name, None)
            layout = _with_prose_folded(layout, columns, width)
    while layout.room(width) < 0 and (widest := _widest_that_folds(layout)):
        narrower = layout.widths[widest] + layout.room(width)
        layout.widths[widest] = max(_narrowest(widest), narrower)
    return layout


def _with_prose_folded(layout: _Layout, columns: Columns, width: int) -> _Layout:
    name, room = columns.prose, layout.room(width)
    if room >= 0 or name not in layout.widths:
        return layout
    left = layout.widths[name] + room
    if left >= _NARROWEST_PROSE:
        return layout._replace(widths=layout.widths | {name: left})
    if name in columns.expendable:
        return layout
    kept = {other: wide for other, wide in layout.widths.items() if other != name}
    return _Layout(kept, below=name)


def _widest_that_folds(layout: _Layout) -> str | None:
    folding = [
        name
        for name, wide in layout.widths.items()
        if name not in _WHOLE and wide > _narrowest(name)
    ]
    return max(folding, key=layout.widths.__getitem__, default=None)


def _narrowest(name: str) -> int:
    return max(_NARROWEST, len(name))


def _row_lines(row: Cells, layout: _Layout, width: int) -> list[str]:
    folded = {name: _folded(row[name], wide) for name, wide in layout.widths.items()}
    height = max(map(len, folded.values()))
    lines = [
        _joined({name: part[at] if at < len(part) else "" for name, part in folded.items()}, layout)
        for at in range(height)
    ]
    if layout.below and row[layout.below]:
        lines += [_INDENT + line for line in _folded(row[layout.below], width - len(_INDENT))]
    return lines


def _joined(cells: Cells, layout: _Layout) -> str:
    return _GAP.join(
        cells[name] + " " * (wide - cell_len(cells[name])) for name, wide in layout.widths.items()
    )


def _folded(text: str, width: int) -> list[str]:
    """Break between words; within one only where it is wider than the column."""
    if cell_len(text) <= width:
        return [text]
    lines = [""]
    for word in text.split(" "):
        room = width - cell_len(lines[-1])
        if lines[-1] and cell_len(word) + 1 <= room:
            lines[-1] += f" {word}"
            continue
        if lines[-1]:
            lines.append("")
        for letter in word:
            if cell_len(lines[-1]) + cell_len(letter) > width and lines[-1]:
                lines.append("")
            lines[-1] += letter
    return lines

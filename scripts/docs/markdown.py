"""Small pieces of Markdown that several pages are made of."""

from collections.abc import Iterable, Sequence
from datetime import timedelta


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a line in a cell would end its row, so there are none."""
    lines = [_row(head), _row(["---"] * len(head)), *map(_row, rows)]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def code(text: object) -> str:
    """A piece of code within a line; nothing where there is none."""
    return f"`{text}`" if str(text) else ""


def page(title: str, *parts: str) -> str:
    """A page of the reference, whose tables keep the names in their first column whole."""
    body = "\n\n".join(part.strip() for part in parts if part.strip())
    return f'# {title}\n\n<div class="reference" markdown>\n\n{body}\n\n</div>\n'


def first_line(text: str | None) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join((text or "").strip().partition("\n\n")[0].split())


def span_text(span: timedelta) -> str:
    """A span in the largest unit of which it is a whole number."""
    seconds = span.total_seconds()
    for unit, size in (("days", 86_400), ("hours", 3600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            count = seconds / size
            return f"{count:g} {unit.removesuffix('s') if count == 1 else unit}"
    return f"{seconds:g} s"

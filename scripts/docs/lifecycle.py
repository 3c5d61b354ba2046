"""Draws the lifecycle from TRANSITIONS: `python -m scripts.docs.lifecycle` writes the picture anew.

Where the boxes and the lines are is said here; which lines there are, and what is written on them,
the code says.
"""

from pathlib import Path
from typing import Final, NamedTuple

from gantline.contract.status import TERMINAL, TRANSITIONS, Event, JobStatus, Move

PICTURE: Final = Path(__file__).parents[2] / "docs" / "images" / "lifecycle.svg"
CAPTION: Final = "The six statuses of a job, and every move between them"

Q, R, C, F, P, X = JobStatus
ORDER: Final = list(JobStatus)
BOXES: Final = {
    Q: (60, 215),
    R: (400, 215),
    C: (740, 70),
    F: (740, 165),
    P: (740, 260),
    X: (740, 355),
}
WIDTH, HEIGHT, LINE = 140, 50, 16


class Way(NamedTuple):
    """The way of a line, and where its words stand; none where it joins another line."""

    path: str
    words: tuple[int, int] | None = None
    anchor: str = "middle"


WAYS: Final = {
    (Q, R): Way("M200,230 H400", (300, 222)),
    (R, Q): Way("M400,250 H200", (300, 272)),
    (R, R): Way("M440,215 C430,160 510,160 500,215", (470, 163)),
    (R, C): Way("M540,228 C660,228 630,95 740,95", (655, 118), "end"),
    (R, F): Way("M540,235 C650,235 640,190 740,190", (700, 184)),
    (R, P): Way("M540,246 C640,246 650,278 740,278", (706, 262)),
    (R, X): Way("M540,254 C650,254 630,374 740,374", (655, 352), "end"),
    (Q, P): Way(
        "M150,265 V390 Q150,402 162,402 H655 Q672,402 672,385 V312 Q672,296 688,296 H740",
        (300, 396),
    ),
    (Q, X): Way(
        "M110,265 V430 Q110,442 122,442 H690 Q702,442 702,430 V402 Q702,390 714,390 H740",
        (300, 436),
    ),
    (F, Q): Way("M880,190 H908 Q920,190 920,178"),
    (P, Q): Way("M880,285 H908 Q920,285 920,273"),
    (X, Q): Way(
        "M880,380 H908 Q920,380 920,368 V42 Q920,30 908,30 H142 Q130,30 130,42 V215", (520, 22)
    ),
}
STYLE: Final = """\
  <style>
    rect.paper { fill: #ffffff }
    .box { fill: #f1f5f4; stroke: #37474f; stroke-width: 1.5 }
    .end { fill: #e0f2f1 }
    .name { font: 600 17px system-ui, sans-serif; fill: #1c2b2a; text-anchor: middle }
    .line { fill: none; stroke: #37474f; stroke-width: 1.5 }
    .again { stroke-dasharray: 5 4; stroke: #00796b }
    .words { font: 13px system-ui, sans-serif; fill: #37474f }
  </style>
  <defs>
    <marker id="head" viewBox="0 0 10 10" refX="9" refY="5"
            markerWidth="8" markerHeight="8" orient="auto">
      <path d="M0,0 L10,5 L0,10 z" fill="#37474f"/>
    </marker>
  </defs>
"""


def ordered_moves() -> list[Move]:
    """Every move, by the statuses that it is from and to."""
    events = list(Event)
    return sorted(
        TRANSITIONS,
        key=lambda move: (ORDER.index(move[0]), ORDER.index(move[2]), events.index(move[1])),
    )


def drawing() -> str:
    """The picture. A move that it has no way for is a KeyError: draw one."""
    words: dict[tuple[JobStatus, JobStatus], list[str]] = {}
    for start, event, end in ordered_moves():
        words.setdefault((start, end), []).append(event.value.replace("_", " "))
    lines = [_line(WAYS[move], move, labels) for move, labels in words.items()]
    boxes = [_box(status) for status in JobStatus]
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 470" role="img">\n'
        f"  <title>{CAPTION}</title>\n{STYLE}"
        '  <rect class="paper" width="960" height="470" rx="8"/>\n'
        + "".join(lines + boxes)
        + "</svg>\n"
    )


def _line(way: Way, move: tuple[JobStatus, JobStatus], labels: list[str]) -> str:
    kind = "line again" if move[0] in TERMINAL else "line"
    if way.words is None:
        return f'  <path class="{kind}" d="{way.path}"/>\n'
    drawn = f'  <path class="{kind}" d="{way.path}" marker-end="url(#head)"/>\n'
    x, y = way.words
    for at, line in enumerate(_lines(labels)):
        place = f'x="{x}" y="{y + LINE * at}" text-anchor="{way.anchor}"'
        drawn += f'  <text class="words" {place}>{line}</text>\n'
    return drawn


def _lines(labels: list[str]) -> list[str]:
    """Two words a line, so that they fit between two boxes."""
    pairs = [", ".join(labels[at : at + 2]) for at in range(0, len(labels), 2)]
    return [f"{pair}," for pair in pairs[:-1]] + pairs[-1:]


def _box(status: JobStatus) -> str:
    x, y = BOXES[status]
    kind = "box end" if status in TERMINAL else "box"
    return (
        f'  <rect class="{kind}" x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="8"/>\n'
        f'  <text class="name" x="{x + WIDTH // 2}" y="{y + 31}">{status.value}</text>\n'
    )


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(drawing(), encoding="utf-8")

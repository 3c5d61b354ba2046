"""Draws what was measured beside others: `python -m scripts.docs.chart` writes the picture anew."""

from pathlib import Path
from typing import Final

from benchmarks.report import GANTLINE, figure
from scripts.docs.figures import Line, compared

PICTURE: Final = Path(__file__).parents[2] / "docs" / "images" / "measured.svg"
CAPTION: Final = "Jobs a second on one machine: Gantline is first at running, not at submitting"
PANELS: Final = (
    ("PostgreSQL", "no-op drain, 1 process", "run, one process"),
    ("Redis", "no-op drain, 1 process", "run, one process"),
    ("PostgreSQL", "submit one by one", "submit one by one"),
    ("Redis", "submit one by one", "submit one by one"),
)
MOST_BARS: Final = 5
WIDTH, NAME, LONGEST, ROW, TOP = 470, 112, 250, 24, 46
HEIGHT: Final = TOP + MOST_BARS * ROW + 14
STYLE: Final = """\
  <style>
    .paper { fill: #ffffff }
    .title { font: 600 15px system-ui, sans-serif; fill: #1c2b2a }
    .name, .figure { font: 13px system-ui, sans-serif; fill: #37474f }
    .ours { font-weight: 600; fill: #00695c }
    .bar { fill: #b0bec5 }
    .bar.ours { fill: #00897b }
  </style>
"""


def drawing() -> str:
    """The picture: in each panel the fastest, and Gantline whether it is among them or not."""
    measured = compared()
    panels = "".join(
        _panel(at, f"{store}: {title}", measured[store][metric])
        for at, (store, metric, title) in enumerate(PANELS)
    )
    width, height = 2 * WIDTH, 2 * HEIGHT
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">\n'
        f"  <title>{CAPTION}</title>\n{STYLE}"
        f'  <rect class="paper" width="{width}" height="{height}" rx="8"/>\n{panels}</svg>\n'
    )


def _panel(at: int, title: str, line: Line) -> str:
    left, top = at % 2 * WIDTH + 16, at // 2 * HEIGHT
    rows = sorted(line.values(), key=lambda row: -row.value)
    shown = rows[:MOST_BARS]
    if line[GANTLINE] not in shown:
        shown[-1] = line[GANTLINE]
    drawn = f'  <text class="title" x="{left}" y="{top + 30}">{title}, jobs a second</text>\n'
    for rank, row in enumerate(shown):
        y = top + TOP + rank * ROW
        length = max(2, round(LONGEST * row.value / rows[0].value))
        ours = " ours" if row.system == GANTLINE else ""
        name = "Gantline" if ours else row.system.partition(" (")[0]
        drawn += (
            f'  <text class="name{ours}" x="{left}" y="{y + 13}">{name}</text>\n'
            f'  <rect class="bar{ours}" x="{left + NAME}" y="{y}" width="{length}" height="17"/>\n'
            f'  <text class="figure{ours}" x="{left + NAME + length + 7}" y="{y + 13}">'
            f"{figure(row.value)}</text>\n"
        )
    return drawn


if __name__ == "__main__":
    PICTURE.write_text(drawing(), encoding="utf-8")

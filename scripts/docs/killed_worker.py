"""Records a terminal in which a worker is killed and its job completed all the same.

`python -m scripts.docs.killed_worker` does it with real processes, and draws what they printed.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import IO, Final, NamedTuple

PICTURE: Final = Path(__file__).parents[2] / "docs" / "images" / "killed-worker.svg"
CAPTION: Final = "A worker is killed with kill -9 while it runs a job; the next one completes it"
APPLICATION: Final = """\
import time

from gantline import Context, Gantline

jobs = Gantline()


@jobs.job
def resize(picture: str, ctx: Context) -> str:
    ctx.logger.info("resizing %s", picture)
    time.sleep(5)
    return f"{picture}: 800 x 600"
"""
CHARACTERS, LINE, CHARACTER, MARGIN, BAR = 96, 20, 8.43, 18, 34
MOMENT: Final = re.compile(r"^\d{4}-\d\d-\d\d (\d\d:\d\d:\d\d),\d+ ")
STYLE: Final = """\
  <style>
    .frame { fill: #0f1b1f }
    text { font: 14px ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", monospace;
           fill: #d5dfe0; white-space: pre }
    .typed { fill: #ffffff; font-weight: 600 }
    .note { fill: #8aa0a5 }
    .bad { fill: #ff8a80; font-weight: 600 }
    .good { fill: #69d5a4; font-weight: 600 }
  </style>
"""


class Shown(NamedTuple):
    """A line of the terminal."""

    text: str
    kind: str = ""


class Terminal:
    """Types commands in a folder, and keeps what is shown."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        ours = {name: text for name, text in os.environ.items() if "GANTLINE" not in name}
        self._environment = ours | {"GANTLINE_APP": "shop:jobs", "PYTHONUNBUFFERED": "1"}
        self.lines: list[Shown] = []

    def run(self, command: str, note: str = "", *, only: str = "") -> str:
        """Run a command to its end, and return what it printed; show lines that have `only`."""
        self._type(command, note)
        done = subprocess.run(
            self._words(command),
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=True,
        )
        self._show(line for line in done.stdout.splitlines() if re.search(only, line))
        return done.stdout

    @contextmanager
    def worker(self, note: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
        """Have a worker run beside; it ends in the block."""
        self._type("gantline worker &", note)
        with subprocess.Popen(
            self._words("gantline worker"),
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None
            yield process, process.stdout

    def kill(self, process: subprocess.Popen[str]) -> None:
        self._type(f"kill -9 {process.pid}", "no time to clean up")
        process.kill()
        # A shell prints this; here its words are made of how the process ended.
        self.lines.append(Shown(signal.strsignal(-process.wait()) or "", "bad"))

    def show_until(self, output: IO[str], last: str, *, leave_out: str = "Press") -> None:
        """Show what a worker prints, until a line has `last`."""
        for line in output:
            if leave_out not in line:
                self._show([line.rstrip()])
            if last in line:
                return
        raise RuntimeError(f"the worker ended before it printed {last!r}")

    def _words(self, command: str) -> list[str]:
        program, *arguments = shlex.split(command)
        return [str(Path(sys.executable).with_name(program)), *arguments]

    def _type(self, command: str, note: str) -> None:
        self.lines.append(Shown(f"$ {command}" + (f"    # {note}" if note else ""), "typed"))

    def _show(self, lines: Iterator[str] | list[str]) -> None:
        for line in lines:
            text = MOMENT.sub(r"\1 ", line).replace(str(self._folder), "~/shop")
            good = "ompleted" in text
            self.lines.append(Shown(text, "good" if good else "bad" if "crashed" in text else ""))


def recorded() -> list[Shown]:
    """What a person sees who does it."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "shop.py").write_text(APPLICATION, encoding="utf-8")
        terminal = Terminal(Path(folder))
        said = terminal.run("""gantline job submit resize '"cat.jpg"'""", only="jobId")
        job_id = said.split()[1]
        with terminal.worker("a job of five seconds begins") as (process, output):
            terminal.show_until(output, "resizing", leave_out="are kept")
            terminal.kill(process)
        with terminal.worker("another worker") as (process, output):
            terminal.show_until(output, "completed", leave_out="are kept")
            process.send_signal(signal.SIGINT)
            output.read()
        terminal.run(f"gantline job get {job_id}", only=r"^(status|result|endedAt|\d{4}-)")
    return terminal.lines


def drawing(lines: list[Shown]) -> str:
    rows = [Shown(part, line.kind) for line in lines for part in _folded(line.text)]
    width = round(2 * MARGIN + CHARACTERS * CHARACTER)
    height = BAR + MARGIN + len(rows) * LINE + MARGIN // 2
    dots = "".join(
        f'  <circle cx="{MARGIN + 4 + 20 * at}" cy="20" r="6" fill="{colour}"/>\n'
        for at, colour in enumerate(("#ff6159", "#ffbd2e", "#28c941"))
    )
    drawn = "".join(_row(row, BAR + MARGIN + at * LINE) for at, row in enumerate(rows))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">\n'
        f"  <title>{CAPTION}</title>\n{STYLE}"
        f'  <rect class="frame" width="{width}" height="{height}" rx="10"/>\n{dots}{drawn}</svg>\n'
    )


def _folded(text: str) -> list[str]:
    if len(text) <= CHARACTERS:
        return [text]
    return textwrap.wrap(text, CHARACTERS, subsequent_indent="    ", break_on_hyphens=False)


def _row(row: Shown, y: int) -> str:
    command, mark, note = row.text.partition("    # ")
    noted = f'<tspan class="note">{escape(mark + note)}</tspan>' if mark else ""
    kind = f' class="{row.kind}"' if row.kind else ""
    return (
        f'  <text{kind} x="{MARGIN}" y="{y}" xml:space="preserve">{escape(command)}{noted}</text>\n'
    )


if __name__ == "__main__":
    PICTURE.write_text(drawing(recorded()), encoding="utf-8")

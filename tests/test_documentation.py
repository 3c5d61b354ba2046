"""What README and docs/first-job.md tell is done here, as written, in an empty folder."""

import ast
import inspect
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.harness import MemoryHarness
from windlass import Windlass

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(120)]

REPOSITORY = Path(__file__).parents[1]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
FIRST_JOB = (REPOSITORY / "docs" / "first-job.md").read_text(encoding="utf-8")
ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?Z?")
SPAN = re.compile(r"\b[\d.]+ (?:s|min)\b")
GAP = re.compile(r"  +")  # a column is as wide as what is in it


class Step(NamedTuple):
    """A command as it was typed, and what the terminal is said to have shown."""

    command: str
    shown: str


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def steps(text: str) -> list[Step]:
    found = []
    for block in blocks(text, "console"):
        for piece in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = piece.partition("\n")
            found.append(Step(command.partition("  #")[0].strip(), shown.strip()))
    return found


class Shell:
    """Runs `windlass` as a person would, in a folder with the shop.py of the README."""

    def __init__(self, folder: Path) -> None:
        (folder / "shop.py").write_text(blocks(README, "python")[0])
        self._folder = folder
        ours = {name: text for name, text in os.environ.items() if "WINDLASS" not in name}
        self.environment = ours | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def run(self, command: str) -> str:
        done = subprocess.run(
            shlex.split(command),
            cwd=self._folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stdout
        assert (done.returncode == 0) == ("Error: " not in done.stdout), done.stdout
        return done.stdout.strip()

    def work(self, command: str, *, runs: int) -> str:
        """Run a worker until it has told of so many runs; then press Ctrl-C."""
        shown, told = "", 0
        with subprocess.Popen(
            shlex.split(command),
            cwd=self._folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as worker:
            assert worker.stdout is not None
            for line in worker.stdout:
                shown += line
                told += " windlass.worker " in line
                if told == runs:
                    worker.send_signal(signal.SIGINT)
                    told += 1  # once only
        assert worker.returncode == 0, shown
        return shown.strip()


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_the_commands_of_the_readme_work_in_their_order(shell: Shell) -> None:
    done: list[str] = []
    for command, _ in steps(README):
        if command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            shell.environment[name] = value
        elif command == "windlass worker":
            shell.work(command, runs=2)
        elif command.startswith("windlass "):
            job_id = ID.findall(done[-1])[0] if "JOB_ID" in command else ""
            done.append(shell.run(command.replace("JOB_ID", job_id)))
    assert len(done) == 6
    assert "Completed" in done[2]
    assert "DOCUMENT_UNKNOWN" in done[3]
    assert "redriven  1" in done[5]


def test_the_first_job_is_shown_as_it_is(shell: Shell) -> None:
    shell.environment["WINDLASS_APP"] = "shop:jobs"
    really: dict[str, str] = {}
    for command, expected in steps(FIRST_JOB):
        for told, real in really.items():
            command = command.replace(told, real)
        if command == "windlass worker":
            shown = shell.work(command, runs=expected.count(" windlass.worker "))
        else:
            shown = shell.run(command)
            really |= zip(ID.findall(expected), ID.findall(shown), strict=True)
        assert without_chance(shown) == without_chance(expected), command


def without_chance(text: str) -> list[str]:
    """The lines, without ids, times and the order in which two jobs happened to end."""
    for pattern, name in ((ID, "ID"), (MOMENT, "MOMENT"), (SPAN, "SPAN"), (GAP, "  ")):
        text = pattern.sub(name, text)
    return sorted(line.rstrip() for line in text.splitlines())


class Order(msgspec.Struct):
    order_id: str


def compiled(block: str) -> CodeType:
    code: CodeType = compile(block, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return code


async def test_the_python_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shop, submitting, declaring, testing, conformance = blocks(README, "python")
    names: dict[str, Any] = {"__name__": "shop", "MyHarness": MemoryHarness}
    exec(compiled(shop), names)  # noqa: S102  # our own README
    exec(compiled(declaring), names)  # noqa: S102  # our own README
    jobs: Windlass = names["jobs"]

    @jobs.job("ship")
    async def ship(order: Order) -> None: ...

    async def place_order(order_id: str) -> None:
        await ship.submit(Order(order_id))

    names |= {"ship": ship, "place_order": place_order}
    async with jobs.running():
        # Nobody waits for a minute here.
        at_once = submitting.replace("timedelta(minutes=1)", "timedelta(0)")
        waiting = eval(compiled(at_once), names)  # noqa: S307  # our own README
        assert inspect.isawaitable(waiting)
        await waiting
        rebuilt = await names["rebuild"].submit("index")
        assert await rebuilt.result(timeout=30) is None
    await jobs.close()
    exec(compiled(testing), names)  # noqa: S102  # our own README
    await names["test_an_order_is_shipped"]()
    exec(compiled(conformance), names)  # noqa: S102  # our own README
    await names["test_my_store"](names["all_rules"]()[0])

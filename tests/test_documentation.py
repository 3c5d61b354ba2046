"""What README and docs tell is done here, as written, in an empty folder."""

import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import psycopg
import pytest

from tests.servers.postgres import PostgresServer

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(120)]

REPOSITORY = Path(__file__).parents[1]
DOCS = REPOSITORY / "docs"
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?Z?")
SPAN = re.compile(r"\b[\d.]+ (?:s|min)\b")
ACTOR = re.compile(r"\bcli:\S+")
SESSION = re.compile(r"\S+-\d+-[0-9a-f]{8}\b")
GAP = re.compile(r"  +")  # a column is as wide as what is in it
FILE = re.compile(r"# (\w+\.(?:py|toml))(, continued)?\n")
FOLDER = "/home/me/shop"


class Step(NamedTuple):
    """A command as it was typed, and what the terminal is said to have shown."""

    command: str
    shown: str


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def steps(text: str) -> list[Step]:
    found = []
    for block in blocks(text, "console"):
        for piece in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = piece.partition("\n")
            found.append(Step(command.strip(), shown.strip()))
    return found


def modules(text: str, language: str = "python") -> dict[str, str]:
    """The Python of a page, by the file that the first line of each block names."""
    found: dict[str, str] = {}
    for block in blocks(text, language):
        named = FILE.match(block)
        assert named, f"in which file is this? {block}"
        name, is_continued = named.groups()
        assert (name in found) == bool(is_continued), name
        found[name] = found.get(name, "") + "\n\n" + block
    return found


class Shell:
    """Runs commands as a person would, in a folder with the files of a page."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ours = {name: text for name, text in os.environ.items() if "GANTLINE" not in name}
        self.environment = ours | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            (self.folder / name).write_text(text)

    def run(self, command: str) -> str:
        variables, words = self._words(command)
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=self.environment | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stdout, done.stdout
        assert (done.returncode == 0) == ("Error: " not in done.stdout), done.stdout
        return self._told(done.stdout)

    def work(self, command: str, *, runs: int, processes: int = 1) -> str:
        """Run a worker until it has told of so many runs; then press Ctrl-C."""
        variables, words = self._words(command)
        shown, started, told, is_stopped = "", 0, 0, False
        with subprocess.Popen(
            words,
            cwd=self.folder,
            env=self.environment | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as worker:
            assert worker.stdout is not None
            for line in worker.stdout:
                shown += line
                started += line.startswith("Working on ")
                told += " gantline.worker " in line
                if not is_stopped and started >= processes and told >= runs:
                    worker.send_signal(signal.SIGINT)
                    is_stopped = True
        assert worker.returncode == 0, shown
        return self._told(shown)

    def _words(self, command: str) -> tuple[dict[str, str], list[str]]:
        words = shlex.split(command)
        variables: dict[str, str] = {}
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            variables[name] = value
        return variables, words

    def _told(self, text: str) -> str:
        return text.replace(str(self.folder), FOLDER).strip()


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_the_commands_of_the_readme_work_in_their_order(shell: Shell) -> None:
    # Nobody waits here.
    shell.write({name: text.replace("seconds=2", "0") for name, text in modules(README).items()})
    shell.write(modules(README, "toml"))
    done: list[str] = []
    beside: list[str] = []
    for command, shown in steps(README):
        if command == "gantline worker":
            shell.work(command, runs=2)
            beside = []  # from here on gantline.toml names it
        elif command.startswith("gantline worker "):
            beside = command.split()[2:]
        elif command.startswith("python ") and shown:
            assert submitted_beside_a_worker(shell, command, target=beside) == shown
        elif command == "gantline dev":
            continue  # tests/cli/test_serve.py runs it, on a port of its own
        elif command.startswith("gantline "):
            job_id = ID.findall(done[-1])[0] if "JOB_ID" in command else ""
            done.append(shell.run(command.replace("JOB_ID", job_id)))
    assert len(done) == 6
    assert "Completed" in done[2]
    assert "DOCUMENT_UNKNOWN" in done[3]
    assert "redriven      1" in done[5]


def submitted_beside_a_worker(shell: Shell, command: str, *, target: Sequence[str]) -> str:
    with subprocess.Popen(
        ["gantline", "worker", *target],
        cwd=shell.folder,
        env=shell.environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as worker:
        assert worker.stderr is not None
        assert any(line.startswith("Working on") for line in worker.stderr)
        printed = shell.run(command)
        worker.send_signal(signal.SIGINT)
        worker.stderr.read()
    assert worker.returncode == 0
    return printed


def assert_shown_as_it_is(shell: Shell, text: str) -> None:
    """Do what a page does, and compare what it says that the terminal showed."""
    really: dict[str, str] = {}
    for command, expected in steps(text):
        for told, real in really.items():
            command = command.replace(told, real)
        if command.endswith("gantline worker"):
            shown = shell.work(command, runs=expected.count(" gantline.worker "))
        else:
            shown = shell.run(command)
            really |= zip(ID.findall(expected), ID.findall(shown), strict=True)
        assert without_chance(shown) == without_chance(expected), command


def without_chance(text: str) -> list[str]:
    """The lines, without ids, sessions, times and the order in which two jobs happened to end."""
    chance = {
        "ID": ID,
        "MOMENT": MOMENT,
        "SPAN": SPAN,
        "ACTOR": ACTOR,
        "SESSION": SESSION,
        "  ": GAP,
    }
    for name, pattern in chance.items():
        text = pattern.sub(name, text)
    return sorted(line.rstrip() for line in text.splitlines())


def test_the_first_job_is_shown_as_it_is(shell: Shell) -> None:
    shell.write(modules(README) | modules(README, "toml"))
    assert_shown_as_it_is(shell, page("first-job.md"))


def test_the_command_line_is_shown_as_it_is(shell: Shell) -> None:
    files = modules(README)
    named = files["shop.py"].replace("Gantline()", 'Gantline("sqlite:///gantline.db")')
    shell.write({"shop.py": named})
    shell.environment["GANTLINE_APP"] = "shop:jobs"
    shell.run("""gantline job submit document-indexing '{"document_id": "d1"}' --delay 3600""")
    assert_shown_as_it_is(shell, page("command-line.md"))


def test_the_audit_trail_is_shown_as_it_is(shell: Shell) -> None:
    text = page("audit.md")
    shell.write(modules(text))
    shell.run("gantline job submit mail '{}'")
    assert_shown_as_it_is(shell, text)
    exported = [line for line in shell.run("gantline audit export").splitlines() if "{" in line]
    check = (
        "import json, sys, hashes; print([hashes.is_sound(json.loads(a)) for a in sys.argv[1:]])"
    )
    assert shell.run(shlex.join([sys.executable, "-c", check, *exported])) == "[True, True]"


def test_an_order_on_sqlite_is_placed_and_shipped_in_transactions_of_its_own(shell: Shell) -> None:
    text = page("sqlite.md")
    shell.write(modules(text))
    submit, work = (step.command for step in steps(text))
    shell.run(submit)
    shell.work(work, runs=1)
    assert "Completed" in shell.run("gantline --app orders:jobs job list --type ship")
    with closing(sqlite3.connect(shell.folder / "shop.db")) as connection:
        assert connection.execute("SELECT id, shipped FROM orders").fetchall() == [("o-1", 1)]


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    """A database of its own, since the page uses the schema that everybody uses."""
    name = f"d{uuid4().hex}"
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        yield postgres.url(name)
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def test_what_is_told_of_postgresql_is_done_there(shell: Shell, database: str) -> None:
    text = page("postgresql.md")
    shell.write(modules(README) | modules(text))
    done = []
    for command, _ in steps(text):
        if command.startswith("export GANTLINE_STORE="):
            shell.environment["GANTLINE_STORE"] = database
        elif command.startswith("gantline worker "):
            assert "--processes 4" in command
            shell.work(command, runs=0, processes=4)
        elif command.startswith("gantline "):
            done.append(shell.run(command))
    assert "Applied" in done[-1]
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id text, shipped bool)")
        shell.environment["DATABASE_URL"] = database.replace("://", "+psycopg://", 1)
        shell.run("python orders.py")
        for statement in blocks(text, "sql"):
            connection.execute(statement.encode())
        shell.run("""gantline --app orders:jobs job submit ship '{"order_id": "o-1"}'""")
        shell.work("gantline worker orders:jobs", runs=2)
        rows = connection.execute("SELECT id, shipped FROM orders").fetchall()
    assert rows == [("o-1", True)]
    states = [line.split()[1] for line in shell.run("gantline job list").splitlines()[1:]]
    assert sorted(states) == ["Completed", "Completed", "Queued"]


PAGES = [
    file
    for file in sorted([*REPOSITORY.glob("*.md"), *DOCS.rglob("*.md")])
    if "adr" not in file.parts
]


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.relative_to(REPOSITORY).as_posix())
def test_commands_can_be_pasted(file: Path) -> None:
    """zsh, the shell of macOS, takes a comment for arguments, and [x] for a pattern of names."""
    text = file.read_text(encoding="utf-8")
    typed = [step.command for step in steps(text)]
    typed += [line for block in blocks(text, "bash") for line in block.splitlines()]
    assert [command for command in typed if re.search(r"(^|\s)#", command)] == []
    assert re.findall(r"pip install (?!['\"])[^`\n]*\w\[.*", text) == []


def test_errors_quote_what_is_to_be_installed() -> None:
    source = (REPOSITORY / "src").rglob("*.py")
    texts = "\n".join(file.read_text(encoding="utf-8") for file in source)
    assert re.findall(r"pip install [^'\n]*\[.*", texts) == []


def test_every_relative_link_leads_to_a_file_of_the_repository() -> None:
    """Pages that only `make docs` makes are named in words: in a clone their links are dead."""
    files = [*REPOSITORY.glob("*.md"), *DOCS.rglob("*.md")]
    dead = [
        f"{file.relative_to(REPOSITORY)}: {link}"
        for file in files
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", file.read_text(encoding="utf-8"))
        if not (file.parent / link).exists()
    ]
    assert dead == []

"""Does what a page tells, in its order: writes the files that it shows, and types its commands."""

import json
import random
import re
import signal
import socket
import subprocess
from contextlib import suppress
from types import TracebackType

from tests.test_documentation import FILE, ID, Shell, Step, steps, without_chance

SECRET = re.compile(r"whsec_[A-Za-z0-9+/=]+")
BLOCK = re.compile(r"^```(python|toml|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SERVED = re.compile(r"127\.0\.0\.1:80[08]0")
RECEIVES = "9000"


def free_port() -> int:
    """One that no client is given by the system: those begin at 32768."""
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


class Walkthrough:
    """A reader at two terminals: one for commands, one for what keeps running beside them."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.ids: dict[str, str] = {}
        self.shown: list[tuple[Step, str]] = []
        self.port = str(free_port())
        self.beside: subprocess.Popen[str] | None = None
        self.is_serving = False

    def __enter__(self) -> "Walkthrough":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop_what_runs_beside()

    def follow(self, text: str) -> None:
        for language, block in BLOCK.findall(text):
            if language != "console":
                self.write(block)
            else:
                for step in steps(f"```console\n{block}```"):
                    self.shown.append((step, self.do(step)))

    def write(self, block: str) -> None:
        named = FILE.match(block)
        assert named, f"in which file is this? {block}"
        file = self.shell.folder / named[1]
        assert file.exists() == bool(named[2]), named[0]
        with file.open("a") as opened:
            opened.write("\n\n" + block.replace(RECEIVES, self.port))

    def do(self, step: Step) -> str:
        command = step.command
        for told, real in self.ids.items():
            command = command.replace(told, real)
        command = SERVED.sub(f"127.0.0.1:{self.port}", command)
        command = command.replace(f":{RECEIVES}/", f":{self.port}/")
        if command.startswith("export "):
            return self.export(command.removeprefix("export "))
        if command == "gantline dev":
            self.run_beside(f"{command} --no-reload --port {self.port}", "the API is at")
            self.is_serving = True
            return ""
        if command == "uvicorn web:app":
            self.run_beside(f"{command} --port {self.port}", "running on")
            self.is_serving = True
            return ""
        if command == "python receiver.py":
            return self.run_beside(command, "receiving")
        if command.startswith("curl "):
            return self.ask(command, step.shown)
        if command == "gantline worker":
            self.stop_the_api()
            shown = self.shell.work(command, runs=step.shown.count(" gantline.worker "))
        else:
            self.stop_the_api()
            shown = self.shell.run(command)
            self.ids |= zip(ID.findall(step.shown), ID.findall(shown), strict=False)
        if command.startswith("python -m pytest"):
            assert shown.splitlines()[-1].startswith(step.shown)
        elif step.shown:
            assert without_chance(shown) == without_chance(step.shown), command
        return shown

    def export(self, assignment: str) -> str:
        name, _, value = assignment.partition("=")
        if made := re.search(r"\$\((.*)\)", value):
            value = value.replace(made[0], self.shell.run(made[1]))
        if value.startswith("whsec_"):
            value = SECRET.findall(self.shown[-1][1])[0]
        self.shell.environment[name] = value
        return ""

    def ask(self, command: str, expected: str) -> str:
        """Answers have ids and times in them: the status and the names of the fields count."""
        shown = self.shell.run(command)
        self.ids |= zip(ID.findall(expected), ID.findall(shown), strict=False)
        if expected:
            assert fields(shown) == fields(expected), shown
            assert (
                shown.splitlines()[0].partition("{")[0]
                == expected.splitlines()[0].partition("{")[0]
            )
        return shown

    def run_beside(self, command: str, until: str) -> str:
        self.stop_what_runs_beside()
        self.beside = subprocess.Popen(
            command.split(),
            cwd=self.shell.folder,
            env=self.shell.environment | {"PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.beside.stdout is not None
        assert any(until in line for line in self.beside.stdout)
        return ""

    def stop_the_api(self) -> None:
        if self.is_serving:
            self.stop_what_runs_beside()

    def heard(self) -> str:
        """What the program beside says next."""
        assert self.beside is not None
        assert self.beside.stdout is not None
        return self.beside.stdout.readline().strip()

    def stop_what_runs_beside(self) -> None:
        if self.beside is not None:
            self.beside.send_signal(signal.SIGINT)
            self.beside.communicate(timeout=60)
            self.beside, self.is_serving = None, False


def fields(answer: str) -> set[str]:
    """The names in the JSON of an answer."""
    return set(json.loads(answer[answer.index("{") :].splitlines()[0]))

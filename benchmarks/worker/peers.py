"""Other job systems on SQLite to measure beside."""

import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.contest.children import ROOT
from benchmarks.contest.environment import is_installed, python_of
from benchmarks.report import Report

_REQUIREMENTS: Final = {"huey": ("huey==3.5.4",), "flexiq": ("flexiq==2.1.0",)}


class Peer(NamedTuple):
    """A system with one of its settings."""

    name: str
    package: str
    threads: int = 0
    options: tuple[str, ...] = ()
    is_goal: bool = True

    def fill(self, path: Path, jobs: int) -> None:
        subprocess.run(self._command(path, "fill", jobs), cwd=ROOT, check=True)

    def drain_command(self, path: Path) -> list[str]:
        return self._command(path, "drain", self.threads)

    def _command(self, path: Path, what: str, number: int) -> list[str]:
        module = f"benchmarks.worker.{self.package}_child"
        return [
            str(python_of(self.package)),
            "-m",
            module,
            str(path),
            what,
            str(number),
            *self.options,
        ]


# Its users run huey with several threads; here a single one drains faster.
_PEERS: Final = (
    Peer("huey (2 threads, unsynced)", "huey", 2, ("unsynced",)),
    Peer("huey (1 thread, unsynced)", "huey", 1, ("unsynced",)),
    Peer("huey (1 thread, synced)", "huey", 1, ("synced",), is_goal=False),
    Peer("FlexiQ (tuned)", "flexiq"),
)


def available_peers(report: Report) -> list[Peer]:
    """Leave out, with a line that says why, what cannot be had."""
    there = {name for name, some in _REQUIREMENTS.items() if is_installed(name, some, report)}
    return [peer for peer in _PEERS if peer.package in there]

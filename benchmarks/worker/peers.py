"""Other job systems to measure beside: installed into an environment of their own."""

import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.report import Report
from benchmarks.worker.children import ROOT

_ENVIRONMENT: Final = ROOT / ".venvs" / "peers"
_PYTHON: Final = _ENVIRONMENT / "bin" / "python"
_REQUIREMENTS: Final = {"huey": "huey==3.5.4", "flexiq": "flexiq==2.1.0"}
_INSTALL_SECONDS: Final = 180


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
        return [str(_PYTHON), "-m", module, str(path), what, str(number), *self.options]


# Its users run huey with several threads; here a single one drains faster.
_PEERS: Final = (
    Peer("huey (2 threads, unsynced)", "huey", 2, ("unsynced",)),
    Peer("huey (1 thread, unsynced)", "huey", 1, ("unsynced",)),
    Peer("huey (1 thread, synced)", "huey", 1, ("synced",), is_goal=False),
    Peer("FlexiQ (tuned)", "flexiq"),
)


def available_peers(report: Report) -> list[Peer]:
    """Install what is missing; leave out, with a line that says why, what cannot be had."""
    missing = {package for package in _REQUIREMENTS if not _is_there(package, report)}
    return [peer for peer in _PEERS if peer.package not in missing]


def _is_there(package: str, report: Report) -> bool:
    requirement = _REQUIREMENTS[package]
    try:
        if not _PYTHON.exists():
            _run([sys.executable, "-m", "venv", str(_ENVIRONMENT)])
        if not _has(requirement):
            report.say(f"  installing {requirement} into {_ENVIRONMENT.relative_to(ROOT)}")
            _run([str(_PYTHON), "-m", "pip", "install", "--quiet", requirement])
    except subprocess.SubprocessError as error:
        report.say(f"  without {package}: {_reason(error)}")
        return False
    return True


def _has(requirement: str) -> bool:
    name, _, version = requirement.partition("==")
    check = f"from importlib.metadata import version; assert version({name!r}) == {version!r}"
    command = [str(_PYTHON), "-c", check]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _run(command: list[str]) -> None:
    subprocess.run(command, capture_output=True, text=True, check=True, timeout=_INSTALL_SECONDS)


def _reason(error: subprocess.SubprocessError) -> str:
    said = getattr(error, "stderr", None) or getattr(error, "stdout", None)
    lines = said.strip().splitlines() if isinstance(said, str) else []
    return lines[-1] if lines else str(error)

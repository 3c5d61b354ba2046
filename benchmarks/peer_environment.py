"""Where other job systems are installed: a virtual environment of their own."""

import subprocess
import sys
from typing import Final

from benchmarks.report import Report
from benchmarks.worker.children import ROOT

_ENVIRONMENT: Final = ROOT / ".venvs" / "peers"
PEER_PYTHON: Final = _ENVIRONMENT / "bin" / "python"
_INSTALL_SECONDS: Final = 180


def is_installed(requirement: str, report: Report) -> bool:
    """Install what is missing; where it cannot be had, say why."""
    try:
        if not PEER_PYTHON.exists():
            _run([sys.executable, "-m", "venv", str(_ENVIRONMENT)])
        if not _has(requirement):
            report.say(f"  installing {requirement} into {_ENVIRONMENT.relative_to(ROOT)}")
            _run([str(PEER_PYTHON), "-m", "pip", "install", "--quiet", requirement])
    except subprocess.SubprocessError as error:
        report.say(f"  without {requirement}: {_reason(error)}")
        return False
    return True


def _has(requirement: str) -> bool:
    name, _, version = requirement.partition("==")
    name = name.partition("[")[0]
    check = f"from importlib.metadata import version; assert version({name!r}) == {version!r}"
    command = [str(PEER_PYTHON), "-c", check]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _run(command: list[str]) -> None:
    subprocess.run(command, capture_output=True, text=True, check=True, timeout=_INSTALL_SECONDS)


def _reason(error: subprocess.SubprocessError) -> str:
    said = getattr(error, "stderr", None) or getattr(error, "stdout", None)
    lines = said.strip().splitlines() if isinstance(said, str) else []
    return lines[-1] if lines else str(error)

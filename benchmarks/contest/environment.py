"""Where other job systems are installed: each in a virtual environment of its own.

They do not go together: one wants redis-py below 6, another one from 8 on.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

from benchmarks.contest.children import ROOT
from benchmarks.report import Report

_ENVIRONMENTS: Final = ROOT / ".venvs"
_INSTALL_SECONDS: Final = 180
_CHECK: Final = """
import sys
from importlib.metadata import version
for requirement in sys.argv[1:]:
    name, _, wanted = requirement.partition("==")
    assert version(name.partition("[")[0]) == wanted
"""


def python_of(name: str) -> Path:
    """The interpreter of a peer's environment."""
    return _ENVIRONMENTS / name / "bin" / "python"


def is_installed(name: str, requirements: tuple[str, ...], report: Report) -> bool:
    """Install what is missing; where it cannot be had, say why."""
    python = str(python_of(name))
    try:
        if not python_of(name).exists():
            _run([sys.executable, "-m", "venv", str(_ENVIRONMENTS / name)])
        if subprocess.run([python, "-c", _CHECK, *requirements], capture_output=True).returncode:
            report.say(f"  installing {' '.join(requirements)}")
            _run([python, "-m", "pip", "install", "--quiet", *requirements])
    except subprocess.SubprocessError as error:
        report.leave_out(name, reason=_reason(error))
        return False
    return True


def _run(command: list[str]) -> None:
    subprocess.run(command, capture_output=True, text=True, check=True, timeout=_INSTALL_SECONDS)


def _reason(error: subprocess.SubprocessError) -> str:
    said = getattr(error, "stderr", None) or getattr(error, "stdout", None)
    lines = said.strip().splitlines() if isinstance(said, str) else []
    return lines[-1] if lines else str(error)

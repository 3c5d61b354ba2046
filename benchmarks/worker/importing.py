"""How long `import gantline` takes in a fresh interpreter."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from benchmarks.bench import Bench
from benchmarks.report import GANTLINE, Goal

_PROGRAM: Final = """
import time
start = time.perf_counter()
import gantline
print(time.perf_counter() - start)
"""
_TIMES: Final = 10


def run(bench: Bench) -> None:
    bytecode = bench.folder / "bytecode"
    _seconds(bytecode)  # compiles, as an installer does
    bench.report.add(
        engine="-",
        system=GANTLINE,
        metric="import gantline",
        unit="ms",
        values=[_seconds(bytecode) * 1000 for _ in range(_TIMES)],
        goal=Goal(most=80),
    )


def _seconds(bytecode: Path) -> float:
    command = [sys.executable, "-c", _PROGRAM]
    environment = os.environ | {"PYTHONPYCACHEPREFIX": str(bytecode)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)

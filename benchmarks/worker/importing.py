"""How long `import windlass` takes in a fresh interpreter."""

import subprocess
import sys
from typing import Final

from benchmarks.bench import Bench
from benchmarks.report import WINDLASS, Goal

_PROGRAM: Final = """
import time
start = time.perf_counter()
import windlass
print(time.perf_counter() - start)
"""
_TIMES: Final = 10


def run(bench: Bench) -> None:
    _seconds()  # compiles
    bench.report.add(
        engine="-",
        system=WINDLASS,
        metric="import windlass",
        unit="ms",
        values=[_seconds() * 1000 for _ in range(_TIMES)],
        goal=Goal(most=80),
    )


def _seconds() -> float:
    command = [sys.executable, "-c", _PROGRAM]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

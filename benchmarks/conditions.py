"""Under which conditions was measured: a figure means nothing without them."""

import os
import platform
import sqlite3
import statistics
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile

import msgspec

from benchmarks.postgres.server import server_version
from gantline.stores.sqlite.location import file_system_of


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """The machine, the versions and the disk. `fsync_ms` is what one durable page costs."""

    date: str
    commit: str
    benchmarks: tuple[str, ...]
    quick: bool
    python: str
    sqlite: str
    sqlite_sync: str
    postgres: str
    cores: int
    machine: str
    kernel: str
    load_before: float
    file_system: str
    fsync_ms: float


def read_conditions(folder: Path, *, benchmarks: tuple[str, ...], quick: bool) -> Conditions:
    """Look at the machine before the load begins."""
    return Conditions(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=_commit(),
        benchmarks=benchmarks,
        quick=quick,
        python=platform.python_version(),
        sqlite=sqlite3.sqlite_version,
        sqlite_sync="full",
        postgres=server_version(),
        cores=os.cpu_count() or 0,
        machine=_processor(),
        kernel=platform.release(),
        load_before=round(os.getloadavg()[0], 2),
        file_system=file_system_of(folder, _text_of(Path("/proc/self/mounts"))) or "unknown",
        fsync_ms=round(_sync_seconds(folder) * 1000, 3),
    )


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.stdout.strip() or "unknown"


def _processor() -> str:
    for line in _text_of(Path("/proc/cpuinfo")).splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # not Linux


def _sync_seconds(folder: Path) -> float:
    spans = []
    with TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(100):
            file.write(bytes(4096))
            start = time.perf_counter()
            os.fsync(file.fileno())
            spans.append(time.perf_counter() - start)
    return statistics.median(spans)

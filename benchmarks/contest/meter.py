"""The meter inside a process that drains jobs. Peers use it too: nothing of ours is imported."""

import json
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Final, NamedTuple

_LOOK_SECONDS: Final = 0.002
_QUIET_SECONDS: Final = 2.0  # a busy disk can hold a process up for more than half a second
_FIRST_JOB_SECONDS: Final = 10.0

INVOICE: Final = {
    "invoice": 123_456,
    "customer": "c-000001",
    "lines": [1, 2, 3],
    "note": "x" * 130,
}


class Reading(NamedTuple):
    """From the first done job that was seen to the last. Wall time compares across processes."""

    jobs: int
    jobs_at_first: int
    first_ns: int
    last_ns: int
    cpu_seconds: float
    resident_bytes: int


def wait_for_go() -> None:
    """Say that everything is imported, and wait for the others."""
    print("ready", flush=True)
    sys.stdin.readline()


def watch(done: Callable[[], int], *, quiet_seconds: float = _QUIET_SECONDS) -> None:
    """Watch a count grow; when it stands still, print the reading and end this process."""
    Thread(target=_watch, args=(done, quiet_seconds), daemon=True).start()


def _watch(done: Callable[[], int], quiet_seconds: float) -> None:
    print(json.dumps(read(done, quiet_seconds=quiet_seconds)), flush=True)
    # Stopping would not be measured, and not every peer can be stopped from a thread.
    os._exit(0)


def read(
    done: Callable[[], int],
    *,
    most_jobs: float = math.inf,
    most_seconds: float = math.inf,
    quiet_seconds: float = _FIRST_JOB_SECONDS,
) -> Reading:
    """Watch a count grow until this much has been seen, or until it has stood still so long."""
    cpu_before = time.process_time()
    first = reading = Reading(0, 0, 0, 0, 0.0, 0)
    give_up_at = time.monotonic() + _FIRST_JOB_SECONDS  # the others may have taken everything
    end_at = math.inf
    while time.monotonic() < min(give_up_at, end_at) and reading.jobs < most_jobs:
        jobs, now = done(), time.time_ns()
        if jobs != reading.jobs:
            if not first.jobs:
                first = Reading(jobs, jobs, now, now, 0.0, 0)
                end_at = time.monotonic() + most_seconds
            cpu = time.process_time() - cpu_before
            reading = Reading(jobs, first.jobs, first.first_ns, now, cpu, 0)
            give_up_at = time.monotonic() + quiet_seconds
        time.sleep(_LOOK_SECONDS)
    return reading._replace(resident_bytes=_resident_bytes())


def _resident_bytes() -> int:
    """What is resident now; the greatest so far would be inherited from the parent process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")

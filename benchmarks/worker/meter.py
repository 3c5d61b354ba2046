"""The meter inside a process that drains jobs. Peers use it too: nothing of ours is imported."""

import json
import os
import sys
import time
from collections.abc import Callable
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


def wait_for_go() -> None:
    """Say that everything is imported, and wait for the others."""
    print("ready", flush=True)
    sys.stdin.readline()


def watch(done: Callable[[], int]) -> None:
    """Watch a count grow; when it stands still, print the reading and end this process."""
    Thread(target=_watch, args=(done,), daemon=True).start()


def _watch(done: Callable[[], int]) -> None:
    cpu_before = time.process_time()
    first = reading = Reading(0, 0, 0, 0, 0.0)
    give_up_at = time.monotonic() + _FIRST_JOB_SECONDS  # the others may have taken everything
    while time.monotonic() < give_up_at:
        jobs, now = done(), time.time_ns()
        if jobs != reading.jobs:
            if not first.jobs:
                first = Reading(jobs, jobs, now, now, 0.0)
            cpu = time.process_time() - cpu_before
            reading = Reading(jobs, first.jobs, first.first_ns, now, cpu)
            give_up_at = time.monotonic() + _QUIET_SECONDS
        time.sleep(_LOOK_SECONDS)
    print(json.dumps(reading), flush=True)
    # Stopping would not be measured, and not every peer can be stopped from a thread.
    os._exit(0)

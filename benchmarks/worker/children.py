"""Child processes that are measured: started together, read when they have ended."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.worker.meter import Reading

ROOT: Final = Path(__file__).parents[2]
_LONGEST_SECONDS: Final = 120.0

Command = Sequence[str]
Child = subprocess.Popen[str]


class Drained(NamedTuple):
    """How fast processes were together, the CPU of each job, the memory of the largest process."""

    jobs: int
    rate: float
    cpu_micros: float
    resident_bytes: int


def drained_by(
    command: Command, processes: int, *, longest_seconds: float = _LONGEST_SECONDS
) -> Drained:
    """Let processes drain what is there, all from the same moment on."""
    with _started(command, processes) as children:
        readings = [Reading(*ended(child, longest_seconds=longest_seconds)) for child in children]
    jobs = sum(reading.jobs for reading in readings)
    counted = jobs - sum(reading.jobs_at_first for reading in readings)
    first = min(reading.first_ns for reading in readings if reading.jobs)
    last = max(reading.last_ns for reading in readings)
    cpu = sum(reading.cpu_seconds for reading in readings)
    resident = max(reading.resident_bytes for reading in readings)
    return Drained(jobs, counted / ((last - first) / 1e9), cpu / jobs * 1e6, resident)


@contextmanager
def started(command: Command) -> Iterator[Child]:
    """One child, which has been told to go."""
    with _started(command, 1) as children:
        yield children[0]


def ended(child: Child, *, longest_seconds: float = _LONGEST_SECONDS) -> Any:
    """Ask a child to stop; the last line that it prints is its answer, in JSON."""
    output, _ = child.communicate(timeout=longest_seconds)
    assert child.returncode == 0, f"{child.args!r} ended with {child.returncode}"
    return json.loads(output.splitlines()[-1])


@contextmanager
def _started(command: Command, processes: int) -> Iterator[list[Child]]:
    children = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(processes)
    ]
    try:
        for child in children:
            _wait_until_ready(child)
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        yield children
    finally:
        for child in children:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                assert pipe is not None
                pipe.close()


def _wait_until_ready(child: Child) -> None:
    assert child.stdout is not None
    for line in child.stdout:
        if line == "ready\n":
            return
    raise RuntimeError(f"{child.args!r} did not start")

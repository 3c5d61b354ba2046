"""Child processes that are measured: started together, read when they have ended."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from threading import Timer
from typing import IO, Any, Final, NamedTuple

from benchmarks.contest.meter import Reading

ROOT: Final = Path(__file__).parents[2]
_START_SECONDS: Final = 30.0
_LONGEST_SECONDS: Final = 120.0

Command = Sequence[str]


class ChildFailed(RuntimeError):
    """A process that was measured did not do what it was asked to."""


class Drained(NamedTuple):
    """How fast processes were together, the CPU of each job, the memory of the largest process."""

    jobs: int
    rate: float
    cpu_micros: float
    resident_bytes: int


class Child(NamedTuple):
    """A process, and what it says on its error output."""

    process: subprocess.Popen[str]
    errors: IO[str]

    def failure(self, how: str) -> ChildFailed:
        """Say how it failed, with its last words."""
        self.errors.seek(0)
        lines = self.errors.read().strip().splitlines()
        return ChildFailed(f"{how}: {lines[-1]}" if lines else how)


def answer_of(command: Command, *, longest_seconds: float = _LONGEST_SECONDS) -> Any:
    """Let a process do something that it needs no word for; its answer, or None."""
    with _spawned(command) as child:
        return ended(child, longest_seconds=longest_seconds)


def drained_by(
    command: Command, processes: int, *, longest_seconds: float = _LONGEST_SECONDS
) -> Drained:
    """Let processes drain what is there, all from the same moment on."""
    with started_together(command, processes) as children:
        readings = [Reading(*ended(child, longest_seconds=longest_seconds)) for child in children]
    jobs = sum(reading.jobs for reading in readings)
    counted = jobs - sum(reading.jobs_at_first for reading in readings)
    if not counted:
        raise ChildFailed(f"{jobs} jobs were run, too few to measure")
    first = min(reading.first_ns for reading in readings if reading.jobs)
    last = max(reading.last_ns for reading in readings)
    cpu = sum(reading.cpu_seconds for reading in readings)
    resident = max(reading.resident_bytes for reading in readings)
    return Drained(jobs, counted / ((last - first) / 1e9), cpu / jobs * 1e6, resident)


@contextmanager
def started(command: Command) -> Iterator[Child]:
    """One child, which has been told to go."""
    with started_together(command, 1) as children:
        yield children[0]


def ended(child: Child, *, longest_seconds: float = _LONGEST_SECONDS) -> Any:
    """Ask a child to stop; the last line that it prints is its answer, in JSON."""
    try:
        output, _ = child.process.communicate(timeout=longest_seconds)
    except subprocess.TimeoutExpired:
        raise child.failure(f"it has not ended within {longest_seconds:g} s") from None
    if child.process.returncode:
        raise child.failure(f"it ended with {child.process.returncode}")
    try:
        return json.loads(output.splitlines()[-1]) if output else None
    except json.JSONDecodeError:
        raise child.failure("it ended without an answer") from None


@contextmanager
def started_together(command: Command, processes: int) -> Iterator[list[Child]]:
    """Children that have all been told to go at the same moment."""
    with ExitStack() as stack:
        children = [stack.enter_context(_spawned(command)) for _ in range(processes)]
        for child in children:
            _wait_until_ready(child)
        for child in children:
            assert child.process.stdin is not None
            child.process.stdin.write("go\n")
            child.process.stdin.flush()
        yield children


@contextmanager
def _spawned(command: Command) -> Iterator[Child]:
    with TemporaryFile("w+", errors="replace") as errors:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            yield Child(process, errors)
        finally:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()


def _wait_until_ready(child: Child) -> None:
    assert child.process.stdout is not None
    patience = Timer(_START_SECONDS, child.process.kill)
    patience.start()
    try:
        if "ready\n" not in child.process.stdout:
            raise child.failure("it did not start")
    finally:
        patience.cancel()

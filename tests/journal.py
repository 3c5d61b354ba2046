"""A journal that handlers keep themselves: when each run began and ended, whatever the store says.

Times are those of the host's monotonic clock, which all its processes share.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from gantline import Context

FILE_VARIABLE = "TEST_JOURNAL"
WORKER_VARIABLE = "TEST_WORKER"


class JournalledRun(NamedTuple):
    """A run as its handler saw it; without an end where the process was killed."""

    job_id: UUID
    fence: int
    worker: str
    began: float
    ended: float | None


@contextmanager
def noted(ctx: Context) -> Iterator[None]:
    """Note that a run begins, and that it ends, in whatever way."""
    _note("began", ctx)
    try:
        yield
    finally:
        _note("ended", ctx)


def _note(what: str, ctx: Context) -> None:
    worker = os.environ[WORKER_VARIABLE]
    line = f"{what} {ctx.job_id} {ctx.fence} {worker} {time.monotonic()}\n"
    descriptor = os.open(os.environ[FILE_VARIABLE], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


class Journal:
    """The file, as the test reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def variables(self, worker: str) -> dict[str, str]:
        return {FILE_VARIABLE: str(self.path), WORKER_VARIABLE: worker}

    def runs(self) -> list[JournalledRun]:
        """In the order in which they began."""
        began: dict[tuple[UUID, int], JournalledRun] = {}
        # A line that is being written may be seen in part, where it crosses a page of the file.
        whole, _, _ = self.path.read_text().rpartition("\n")
        for line in whole.splitlines():
            what, job_id, fence, worker, at = line.split()
            key = UUID(job_id), int(fence)
            if what == "began":
                began[key] = JournalledRun(*key, worker, float(at), None)
            else:
                began[key] = began[key]._replace(ended=float(at))
        return sorted(began.values(), key=lambda run: run.began)

    def of(self, job_id: UUID) -> list[JournalledRun]:
        """The runs of one job, by their fence."""
        found = [run for run in self.runs() if run.job_id == job_id]
        return sorted(found, key=lambda run: run.fence)

    def overlaps(self) -> list[tuple[JournalledRun, JournalledRun]]:
        """Two runs of one job of which the later began before the earlier had ended."""
        jobs = {run.job_id for run in self.runs()}
        return [
            (earlier, later)
            for runs in map(self.of, jobs)
            for earlier, later in pairwise(runs)
            if earlier.ended is None or later.began < earlier.ended
        ]

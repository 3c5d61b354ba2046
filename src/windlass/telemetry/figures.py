"""Figures: what this process has counted and timed, as plain numbers.

Fed a batch at a time on the way of every job: 0.5 µs a job, where counters of a metrics library
would cost some 5 µs. What monitoring systems see of them is made when they ask.
"""

import threading
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from windlass.contract.outcome import LeaseLost
from windlass.contract.results import Applied, InsertResult
from windlass.contract.snapshot import JobSnapshot, Run
from windlass.contract.status import Event, JobStatus
from windlass.contract.submission import NewJob
from windlass.manager.manager import Ending, Settled
from windlass.telemetry.names import BOUNDS, OTHER


class Histogram:
    """How often a time fell between two bounds, and all times together."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0

    def cumulative(self) -> list[int]:
        """How many were at most each bound; the last is all of them."""
        total, sums = 0, []
        for count in self.counts:
            total += count
            sums.append(total)
        return sums


class TypeFigures:
    """The figures of one type of job."""

    __slots__ = ("finished", "leases_lost", "retried", "run", "submitted", "wait")

    def __init__(self) -> None:
        self.submitted = 0
        self.retried = 0
        self.leases_lost = 0
        self.finished = {status.value: 0 for status in JobStatus if status.is_terminal}
        self.wait = Histogram()
        self.run = Histogram()


class Figures:
    """The observer that counts. Types that are not known are counted together."""

    def __init__(self, job_types: Iterable[str]) -> None:
        self._lock = threading.Lock()
        self._other = TypeFigures()
        self._known = {name: TypeFigures() for name in job_types}

    def know(self, job_types: Iterable[str]) -> None:
        """Count these types by their own names from now on."""
        with self._lock:
            for name in job_types:
                self._known.setdefault(name, TypeFigures())

    @property
    def by_type(self) -> dict[str, TypeFigures]:
        """As they stand; to be read at once."""
        with self._lock:
            return {**self._known, OTHER: self._other}

    def _of(self, job_type: str) -> TypeFigures:
        return self._known.get(job_type) or self._other

    def submitted(self, jobs: Sequence[NewJob], answers: Sequence[InsertResult]) -> None:
        with self._lock:
            for new, answer in zip(jobs, answers, strict=True):
                if type(answer) is Applied:
                    self._of(new.job.job_type).submitted += 1

    def claimed(self, runs: Sequence[Run]) -> None:
        with self._lock:
            for run in runs:
                if (seconds := run.waited_seconds) is not None:
                    histogram = self._of(run.job.job_type).wait
                    histogram.counts[bisect_left(BOUNDS, seconds)] += 1
                    histogram.seconds += seconds

    def settled(self, endings: Sequence[Ending], answers: Sequence[Settled]) -> None:
        with self._lock:
            for ending, answer in zip(endings, answers, strict=True):
                if type(answer.result) is not Applied:
                    continue
                figures = self._of(ending.run.job.job_type)
                if (seconds := ending.seconds) is not None:
                    histogram = figures.run
                    histogram.counts[bisect_left(BOUNDS, seconds)] += 1
                    histogram.seconds += seconds
                transition = answer.transition
                if transition.event is Event.COMPLETED:
                    figures.finished["Completed"] += 1
                    for new in transition.follow_ups:
                        self._of(new.job.job_type).submitted += 1
                else:
                    self._ended_otherwise(figures, ending, answer)

    def _ended_otherwise(self, figures: TypeFigures, ending: Ending, answer: Settled) -> None:
        transition = answer.transition
        if transition.event is Event.RETRIED:
            figures.retried += 1
        if isinstance(ending.outcome, LeaseLost):
            figures.leases_lost += 1
        if transition.to.is_terminal:
            figures.finished[transition.to.value] += 1

    def acted(self, jobs: Sequence[JobSnapshot], answers: Sequence[Settled]) -> None:
        with self._lock:
            for job, answer in zip(jobs, answers, strict=True):
                to = answer.transition.to
                if type(answer.result) is Applied and to.is_terminal:
                    self._of(job.job.job_type).finished[to.value] += 1

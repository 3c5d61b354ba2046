"""Figures: what this process has counted and timed, as plain numbers.

Fed a batch at a time on the way of every job: 0.5 µs a job, where counters of a metrics library
would cost some 5 µs. What monitoring systems see of them is made when they ask.
"""

import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final

from gantline.contract.outcome import LeaseLost
from gantline.contract.results import Applied, InsertResult
from gantline.contract.snapshot import JobSnapshot, Run
from gantline.contract.status import Event, JobStatus
from gantline.contract.submission import NewJob
from gantline.contract.transition import Transition
from gantline.manager.manager import Ending, Settled
from gantline.manager.observer import Observer
from gantline.telemetry.names import BOUNDS, OTHER


class Histogram:
    """How often a time fell between two bounds, and all times together."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0

    def cumulative(self) -> list[int]:
        """How many were at most each bound; the last is all of them."""
        return list(accumulate(self.counts))


class TypeFigures:
    """The figures of one type of job."""

    __slots__ = (
        "completed",
        "finished",
        "lateness",
        "leases_lost",
        "retried",
        "run",
        "submitted",
        "wait",
    )

    def __init__(self) -> None:
        self.submitted = 0
        self.retried = 0
        self.leases_lost = 0
        self.completed = 0
        self.finished = dict.fromkeys(_ENDS, 0)
        """How many ended otherwise, by status."""
        self.wait = Histogram()
        self.run = Histogram()
        self.lateness = Histogram()
        """How late the schedules of this type were fired."""


_ENDS: Final = (JobStatus.FAILED, JobStatus.POISONED, JobStatus.CANCELLED)


class _ByType(dict[str, TypeFigures]):
    """Whatever is not known is other."""

    def __missing__(self, job_type: str) -> TypeFigures:
        return self[OTHER]


class Figures(Observer):
    """The observer that counts. Types that are not known are counted together."""

    def __init__(self, job_types: Iterable[str]) -> None:
        self._lock = threading.Lock()
        self._types = _ByType({OTHER: TypeFigures()})
        self.know(job_types)

    def know(self, job_types: Iterable[str]) -> None:
        """Count these types by their own names from now on."""
        with self._lock:
            for name in job_types:
                self._types.setdefault(name, TypeFigures())

    @property
    def by_type(self) -> Mapping[str, TypeFigures]:
        """As they stand; to be read at once."""
        with self._lock:
            return dict(self._types)

    def submitted(self, jobs: Sequence[NewJob], answers: Sequence[InsertResult]) -> None:
        with self._lock:
            for new, answer in zip(jobs, answers, strict=True):
                if isinstance(answer, Applied):
                    self._types[new.job.job_type].submitted += 1

    def claimed(self, runs: Sequence[Run]) -> None:
        types = self._types
        with self._lock:
            for run in runs:
                if (seconds := run.waited_seconds) is not None:
                    wait = types[run.job.job_type].wait
                    wait.counts[bisect_left(BOUNDS, seconds)] += 1
                    wait.seconds += seconds

    def settled(self, endings: Sequence[Ending], answers: Sequence[Settled]) -> None:
        types = self._types
        with self._lock:
            for ending, answer in zip(endings, answers, strict=True):
                if not isinstance(answer.result, Applied):
                    continue
                figures = types[ending.run.job.job_type]
                if (seconds := ending.seconds) is not None:
                    run = figures.run
                    run.counts[bisect_left(BOUNDS, seconds)] += 1
                    run.seconds += seconds
                transition = answer.transition
                if transition.event is not Event.COMPLETED:
                    _count_other_end(figures, ending, transition)
                    continue
                figures.completed += 1
                if transition.follow_ups:
                    for new in transition.follow_ups:
                        types[new.job.job_type].submitted += 1

    def acted(self, jobs: Sequence[JobSnapshot], answers: Sequence[Settled]) -> None:
        with self._lock:
            for job, answer in zip(jobs, answers, strict=True):
                to = answer.transition.to
                if isinstance(answer.result, Applied) and to.is_terminal:
                    self._types[job.job.job_type].finished[to] += 1

    def fired(self, lateness: Sequence[tuple[str, float]]) -> None:
        with self._lock:
            for job_type, seconds in lateness:
                late = self._types[job_type].lateness
                late.counts[bisect_left(BOUNDS, seconds)] += 1
                late.seconds += seconds


def _count_other_end(figures: TypeFigures, ending: Ending, transition: Transition) -> None:
    if transition.event is Event.RETRIED:
        figures.retried += 1
    if isinstance(ending.outcome, LeaseLost):
        figures.leases_lost += 1
    if transition.to.is_terminal:
        figures.finished[transition.to] += 1

"""Metrics: the name, labels and meaning of each, and what this process counts for them.

Counting is fed a batch at a time on the way of every job: 0.5 µs a job, where counters of a metrics
library would cost some 5 µs. What monitoring systems see is made when they ask.
"""

import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final, Literal, NamedTuple

from gantline.contract.outcome import LeaseLost
from gantline.contract.results import Applied, Duplicate, InsertResult
from gantline.contract.snapshot import JobSnapshot, Run
from gantline.contract.status import Event, JobStatus
from gantline.contract.submission import NewJob
from gantline.contract.transition import Transition
from gantline.manager.manager import Ending, Settled
from gantline.manager.observer import Observer

OTHER: Final = "other"
"""The label of all types and queues that this process does not know, so that labels stay few."""

BOUNDS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *(30.0, 60.0, 300.0, 900.0, 3600.0),
)
"""The upper bounds of the histograms' buckets, in seconds."""


class Metric(NamedTuple):
    """A family of time series."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str


# By hand, since it is a table: name, kind and labels; what it means.
# fmt: off
SUBMITTED: Final = Metric("gantline_jobs_submitted_total", "counter", ("job_type",),
    "Jobs that this process has stored; duplicates are not counted.")
DUPLICATES: Final = Metric("gantline_jobs_duplicates_total", "counter", ("job_type",),
    "Submits that this process answered with a job that was there already.")
FINISHED: Final = Metric("gantline_jobs_finished_total", "counter", ("job_type", "status"),
    "Jobs that this process has brought to their end, by final status.")
RETRIES: Final = Metric("gantline_retries_total", "counter", ("job_type",),
    "Failed runs after which the job was queued again.")
LEASES_LOST: Final = Metric("gantline_leases_lost_total", "counter", ("job_type",),
    "Runs that were taken away from a worker that had stopped renewing its lease.")
WEBHOOK_DELIVERIES: Final = Metric("gantline_webhook_deliveries_total", "counter", ("outcome",),
    "Attempts of this process to deliver webhooks: delivered, retried (to come again), failed.")
WAIT: Final = Metric("gantline_job_wait_seconds", "histogram", ("job_type",),
    "How long jobs had been due when this process claimed them, by the store's clock.")
RUN: Final = Metric("gantline_job_run_seconds", "histogram", ("job_type",),
    "How long the handlers of this process ran.")
SCHEDULE_LATENESS: Final = Metric("gantline_schedule_lateness_seconds", "histogram", ("job_type",),
    "How long after they were due this process has submitted the jobs of schedules.")
BRIDGED: Final = Metric("gantline_bridge_messages_total", "counter", ("outcome",),
    "Messages that this process's bridge has taken: accepted, duplicate or rejected.")
SLOTS: Final = Metric("gantline_worker_slots", "gauge", ("queue", "state"),
    "Runs that this process may have at once: busy and free.")
LOOP_LAG: Final = Metric("gantline_loop_lag_seconds", "gauge", (),
    "How long the event loop of this process took to answer when last asked.")
LOOP_BLOCKED: Final = Metric("gantline_loop_blocked_seconds_total", "counter", ("job_type",),
    "How long handlers have blocked the event loop of this process, where it was over a second.")
STORE_UP: Final = Metric("gantline_store_up", "gauge", (),
    "Whether the store could be counted: 1 or 0.")
DEPTH: Final = Metric("gantline_queue_depth", "gauge", ("queue", "job_type"),
    "Queued jobs, those that are not due yet included.")
SCHEDULED: Final = Metric("gantline_queue_scheduled", "gauge", ("queue", "job_type"),
    "Queued jobs that are not due yet.")
RUNNING: Final = Metric("gantline_queue_running", "gauge", ("queue", "job_type"),
    "Running jobs.")
OLDEST: Final = Metric("gantline_queue_oldest_age_seconds", "gauge", ("queue", "job_type"),
    "How long the job that has waited longest has been due; 0 where none is due.")
DEAD: Final = Metric("gantline_dead_letters", "gauge", ("queue", "job_type", "status"),
    "Failed and Poisoned jobs that are still kept.")
CONSUMER_LAG: Final = Metric("gantline_consumer_lag_events", "gauge", ("consumer",),
    "Events that a durable consumer has still to read; they hold back retention.")
CONSUMER_LAG_SECONDS: Final = Metric("gantline_consumer_lag_seconds", "gauge", ("consumer",),
    "How long the oldest event has waited that a durable consumer has still to read.")
RETENTION_LAG: Final = Metric("gantline_retention_lag_seconds", "gauge", (),
    "How long the oldest ended job has been past its retention; 0 where none is.")
GATE_CLOSED: Final = Metric("gantline_gate_closed", "gauge", ("gate",),
    "Whether a gate lets nothing through: 1 or 0.")
GATE_OPENS: Final = Metric("gantline_gate_opens_in_seconds", "gauge", ("gate",),
    "How long until a gate has room again; 0 where it has.")
GROUPS_WAITING: Final = Metric("gantline_groups_waiting", "gauge", ("job_type",),
    "Groups of which due jobs wait, of types that limit the runs of each group; up to 1,000.")
HELD_BACK: Final = Metric("gantline_jobs_held_back", "gauge", ("job_type", "limit"),
    "Due jobs that a limit holds back: of their group, of their type, or of a gate.")
PROCESS_UP: Final = Metric("gantline_process_up", "gauge", ("process",),
    "Whether a worker process of this supervisor answers: 1 or 0.")
# fmt: on

OF_THE_STORE: Final = (
    STORE_UP,
    DEPTH,
    SCHEDULED,
    RUNNING,
    OLDEST,
    DEAD,
    CONSUMER_LAG,
    CONSUMER_LAG_SECONDS,
    RETENTION_LAG,
    *(GATE_CLOSED, GATE_OPENS, GROUPS_WAITING, HELD_BACK),
)
"""The same in every process that uses the store: take the maximum, never the sum."""
OF_A_PROCESS: Final = (
    *(SUBMITTED, DUPLICATES, FINISHED, RETRIES, LEASES_LOST, WEBHOOK_DELIVERIES, WAIT, RUN),
    *(SCHEDULE_LATENESS, BRIDGED, SLOTS, LOOP_LAG, LOOP_BLOCKED, PROCESS_UP),
)
METRICS: Final = OF_A_PROCESS + OF_THE_STORE


class Histogram:
    """How often a time fell between two bounds, and the sum of all times."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0

    def cumulative(self) -> list[int]:
        """Count how many were at most each bound; the last is the total."""
        return list(accumulate(self.counts))


class TypeFigures:
    """The figures of one job type."""

    __slots__ = (
        "completed",
        "duplicates",
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
        self.duplicates = 0
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
    """Counts unknown types as `other`."""

    def __missing__(self, job_type: str) -> TypeFigures:
        return self[OTHER]


class Figures(Observer):
    """The observer that counts. Unknown job types are counted together."""

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
        """The present figures; the objects go on counting."""
        with self._lock:
            return dict(self._types)

    def submitted(self, jobs: Sequence[NewJob], results: Sequence[InsertResult]) -> None:
        with self._lock:
            for new, result in zip(jobs, results, strict=True):
                if isinstance(result, Applied):
                    self._types[new.job.job_type].submitted += 1
                elif isinstance(result, Duplicate):
                    self._types[new.job.job_type].duplicates += 1

    def claimed(self, runs: Sequence[Run]) -> None:
        types = self._types
        with self._lock:
            for run in runs:
                if (seconds := run.waited_seconds) is not None:
                    wait = types[run.job.job_type].wait
                    wait.counts[bisect_left(BOUNDS, seconds)] += 1
                    wait.seconds += seconds

    def settled(self, endings: Sequence[Ending], settled: Sequence[Settled]) -> None:
        types = self._types
        with self._lock:
            for ending, one in zip(endings, settled, strict=True):
                if not isinstance(one.result, Applied):
                    continue
                figures = types[ending.run.job.job_type]
                if (seconds := ending.seconds) is not None:
                    run = figures.run
                    run.counts[bisect_left(BOUNDS, seconds)] += 1
                    run.seconds += seconds
                transition = one.transition
                if transition.event is not Event.COMPLETED:
                    _count_other_end(figures, ending, transition)
                    continue
                figures.completed += 1
                if transition.follow_ups:
                    for new in transition.follow_ups:
                        types[new.job.job_type].submitted += 1

    def acted(self, jobs: Sequence[JobSnapshot], settled: Sequence[Settled]) -> None:
        with self._lock:
            for job, one in zip(jobs, settled, strict=True):
                to = one.transition.to
                if isinstance(one.result, Applied) and to.is_terminal:
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

"""The rules that hold for a type of job; every limit with its default."""

from collections.abc import Callable, Set
from datetime import timedelta
from typing import NamedTuple

import msgspec

from gantline.contract.bounds import check_count, check_span
from gantline.contract.classify import ErrorClassifier
from gantline.contract.job import Job
from gantline.contract.retry import Backoff, RetryStrategy
from gantline.contract.status import Event


class Placement(NamedTuple):
    """Where a job goes in its queue: how long from now, and with which priority."""

    delay: timedelta
    priority: int


SchedulingStrategy = Callable[[Job, Placement], Placement]
"""Given a job and where it would go, say where it goes."""


def as_asked(job: Job, placement: Placement) -> Placement:
    """The default: exactly what the submitter or the retry strategy asked for."""
    return placement


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How failures, crashes and snoozes of a job are treated."""

    retry: RetryStrategy = Backoff()
    crash_retry: RetryStrategy = Backoff(cap_seconds=2)
    """After a crash of a suspect; never the handler's own strategy, which the reaper may not have.
    Short, since how fast workers can crash is bounded by how fast they are started."""
    schedule: SchedulingStrategy = as_asked
    max_crashes: int = 3
    """So many crashes in which it was the only run of its worker poison the job."""
    max_snoozes: int = 1000
    """A job that snoozes once more is poisoned."""
    hold_key: timedelta = timedelta(days=7)
    """How long a completed job keeps its idempotency key."""
    classify: ErrorClassifier | None = None
    """Says what an exception of the handler counts as; None: as `classify` knows it."""
    events: Set[Event] = frozenset()
    """Those of ON_REQUEST that are to be logged."""

    def __post_init__(self) -> None:
        check_count("max_crashes", self.max_crashes)
        check_count("max_snoozes", self.max_snoozes, least=0)
        check_span("hold_key", self.hold_key)


DEFAULT_POLICY = Policy()

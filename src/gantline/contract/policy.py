"""The rules that hold for a type of job; every limit with its default."""

from collections.abc import Set
from datetime import timedelta

import msgspec

from gantline.contract.bounds import check_count, check_span
from gantline.contract.classify import ErrorClassifier
from gantline.contract.retry import Backoff, RetryStrategy
from gantline.contract.scheduling import SchedulingStrategy, as_asked
from gantline.contract.status import Event


class JobRules(msgspec.Struct, frozen=True, kw_only=True):
    """What an application says for all of its jobs, and a declaration for those of its type."""

    retry: RetryStrategy = Backoff()
    """How often a job is attempted, and how long it waits after a failure."""
    classify: ErrorClassifier | None = None
    """Given what a handler raised, returns what that counts as: `Permanent`, `Retry`, `Snooze` or
    another exception; None leaves it to the rules of Gantline. With `run_in="process"` it must be a
    function at the top level of a module."""
    max_crashes: int = 3
    """A job is poisoned after so many crashes in which it was the only run of its worker."""
    max_snoozes: int = 1000
    """A job that snoozes more often is poisoned."""
    hold_key: timedelta = timedelta(days=7)
    """How long a completed job keeps its idempotency key."""

    def __post_init__(self) -> None:
        check_count("max_crashes", self.max_crashes)
        check_count("max_snoozes", self.max_snoozes, least=0)
        check_span("hold_key", self.hold_key)


class Policy(JobRules, frozen=True, kw_only=True):
    """How failures, crashes and snoozes of a job are treated."""

    crash_retry: RetryStrategy = Backoff(cap_seconds=2)
    """After a crash of a suspect; never the handler's own strategy, which the reaper may not have.
    Short, since how fast workers can crash is bounded by how fast they are started."""
    schedule: SchedulingStrategy = as_asked
    events: Set[Event] = frozenset()
    """Those of ON_REQUEST that are to be logged."""


DEFAULT_POLICY = Policy()

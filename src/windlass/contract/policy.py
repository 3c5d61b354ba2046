"""The rules that hold for a type of job; every limit with its default."""

from collections.abc import Set
from datetime import timedelta

import msgspec

from windlass.contract.retry import Backoff, RetryStrategy
from windlass.contract.scheduling import SchedulingStrategy, as_asked
from windlass.contract.status import Event


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How failures, crashes and snoozes of a job are treated."""

    retry: RetryStrategy = Backoff()
    crash_retry: RetryStrategy = Backoff()
    """After a crash; never the handler's own strategy, which the reaper may not have."""
    schedule: SchedulingStrategy = as_asked
    max_crashes: int = 3
    """The crash that reaches this number poisons the job."""
    max_snoozes: int = 1000
    hold_key: timedelta = timedelta(days=7)
    """How long a completed job keeps its idempotency key."""
    events: Set[Event] = frozenset()
    """Those of ON_REQUEST that are to be logged."""


DEFAULT_POLICY = Policy()

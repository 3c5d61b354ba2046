"""The rules that hold for a type of job; every limit with its default."""

from collections.abc import Set
from datetime import timedelta

import msgspec

from gantline.contract.retry import Backoff, RetryStrategy
from gantline.contract.scheduling import SchedulingStrategy, as_asked
from gantline.contract.status import Event


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
    hold_key: timedelta = timedelta(days=7)
    """How long a completed job keeps its idempotency key."""
    events: Set[Event] = frozenset()
    """Those of ON_REQUEST that are to be logged."""


DEFAULT_POLICY = Policy()

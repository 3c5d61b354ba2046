"""The rules that hold for a type of job; every limit with its default."""

from collections.abc import Callable, Set
from datetime import timedelta
from typing import Literal, NamedTuple

import msgspec

from gantline.contract.bounds import CheckedStruct, Count, CountOrZero
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


class JobRules(CheckedStruct, frozen=True, kw_only=True):
    """What an application says for all of its jobs, and a declaration for those of its type."""

    retry: RetryStrategy = Backoff()
    """How often a job is attempted, and how long it waits after a failure. A number is so many
    attempts with the default waits."""
    classify: ErrorClassifier | None = None
    """Given what a handler raised, returns what that counts as: `Permanent`, `Retry`, `Snooze` or
    another exception; None leaves it to the rules of Gantline. With `run_in="process"` it must be a
    function at the top level of a module."""
    max_crashes: Count = 3
    """A job is poisoned after so many crashes in which it was the only run of its worker."""
    max_snoozes: CountOrZero = 1000
    """A job that snoozes more often is poisoned."""
    hold_key: timedelta = timedelta(days=7)
    """How long a completed job keeps its idempotency key."""
    key_scope: Literal["tenant", "owner"] = "tenant"
    """Within what an idempotency key of a type is unique. With `owner` nobody can take a key before
    another: the key of a job then begins with its owner, `user:7/…`."""

    def __post_init__(self) -> None:
        if isinstance(self.retry, int):
            msgspec.structs.force_setattr(self, "retry", Backoff(attempts=self.retry))
        super().__post_init__()


class Policy(JobRules, frozen=True, kw_only=True):
    """How failures, crashes and snoozes of a job are treated."""

    crash_retry: RetryStrategy = Backoff(cap_seconds=2)
    """After a crash of a suspect; never the handler's own strategy, which the reaper may not have.
    Short, since how fast workers can crash is bounded by how fast they are started."""
    schedule: SchedulingStrategy = as_asked
    events: Set[Event] = frozenset()
    """Those of ON_REQUEST that are to be logged."""


DEFAULT_POLICY = Policy()

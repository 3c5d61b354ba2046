"""Retry strategies: how long a job waits after a failed attempt. Pure; the jitter is handed in."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Protocol

import msgspec

from gantline.contract.bounds import CheckedStruct
from gantline.contract.job import DEFAULT_MAX_ATTEMPTS, MAX_DELAY, Job
from gantline.contract.outcome import ErrorInfo


class RetryStrategy(Protocol):
    """Say how long to wait after failed attempt number `attempt` (1-based).

    None refuses the retry: the job is poisoned though attempts are left. `jitter` is a random
    number from 0 to 1, so that the strategy stays a pure function.
    """

    @property
    def attempts(self) -> int:
        """The default `maxAttempts` of jobs that use this strategy."""
        ...

    def delay(
        self, attempt: int, *, jitter: float, job: Job, error: ErrorInfo
    ) -> timedelta | None: ...


class _Strategy(CheckedStruct, frozen=True, kw_only=True):
    attempts: Annotated[int, msgspec.Meta(ge=1, le=1000)] = DEFAULT_MAX_ATTEMPTS
    jitter: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.25

    def seconds(self, attempt: int) -> float:
        """How long to wait after failed attempt number `attempt`, before jitter."""
        return 0.0

    def delay(self, attempt: int, *, jitter: float, job: Job, error: ErrorInfo) -> timedelta | None:
        seconds = min(self.seconds(max(1, attempt)), MAX_DELAY.total_seconds())
        return min(timedelta(seconds=seconds * (1 + self.jitter * jitter)), MAX_DELAY)


class Backoff(_Strategy, frozen=True, kw_only=True):
    """Exponential: base, base², base³ … seconds up to the cap. The default: 2, 4, 8 … 1024 s."""

    base: Annotated[float, msgspec.Meta(gt=0)] = 2.0
    cap_seconds: Annotated[float, msgspec.Meta(ge=0)] = 1024.0

    def seconds(self, attempt: int) -> float:
        try:
            return min(self.base**attempt, self.cap_seconds)
        except OverflowError:
            return self.cap_seconds


class Fixed(_Strategy, frozen=True, kw_only=True):
    """Always the same wait."""

    every: timedelta

    def seconds(self, attempt: int) -> float:
        return self.every.total_seconds()


class Linear(_Strategy, frozen=True, kw_only=True):
    """One step more each time, up to the cap."""

    step: timedelta
    cap: timedelta = timedelta(seconds=1024)

    def seconds(self, attempt: int) -> float:
        return min(self.cap.total_seconds(), self.step.total_seconds() * attempt)


class RetryTable(_Strategy, frozen=True, kw_only=True):
    """The waits one by one; the last of them repeats."""

    waits: Annotated[Sequence[timedelta], msgspec.Meta(min_length=1, max_length=1000)]

    def seconds(self, attempt: int) -> float:
        return self.waits[min(attempt, len(self.waits)) - 1].total_seconds()

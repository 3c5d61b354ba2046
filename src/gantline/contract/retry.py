"""Retry strategies: how long a job waits after a failed attempt. Pure; the jitter is handed in."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

import msgspec

from gantline.contract.errors import InvalidInput
from gantline.contract.job import DEFAULT_MAX_ATTEMPTS, Job
from gantline.contract.outcome import ErrorInfo

MAX_DELAY = timedelta(days=3650)


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


class _Strategy(msgspec.Struct, frozen=True, kw_only=True):
    attempts: int = DEFAULT_MAX_ATTEMPTS
    jitter: float = 0.25

    def __post_init__(self) -> None:
        if self.attempts < 1 or not 0 <= self.jitter <= 1:
            raise InvalidInput(
                f"{type(self).__name__} needs attempts of 1 or more and a jitter from 0 to 1."
            )
        waits = [self.seconds(attempt) for attempt in (1, 2, 1000)]
        if not all(wait >= 0 for wait in waits):
            raise InvalidInput(f"{type(self).__name__} would give waits of {waits} s.")

    def seconds(self, attempt: int) -> float:
        """How long to wait after failed attempt number `attempt`, before jitter."""
        return 0.0

    def delay(self, attempt: int, *, jitter: float, job: Job, error: ErrorInfo) -> timedelta | None:
        seconds = min(self.seconds(max(1, attempt)), MAX_DELAY.total_seconds())
        return min(timedelta(seconds=seconds * (1 + self.jitter * jitter)), MAX_DELAY)


class Backoff(_Strategy, frozen=True, kw_only=True):
    """Exponential: base, base², base³ … seconds up to the cap. The default: 2, 4, 8 … 1024 s."""

    base: float = 2.0
    cap_seconds: float = 1024.0

    def __post_init__(self) -> None:
        if not (self.base > 0 and self.cap_seconds >= 0):
            raise InvalidInput("Backoff needs a base above 0 and a cap of 0 s or more.")
        super().__post_init__()

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

    waits: Sequence[timedelta]

    def __post_init__(self) -> None:
        if not self.waits:
            raise InvalidInput("A RetryTable needs at least one wait.")
        if min(self.waits) < timedelta(0):
            raise InvalidInput("A RetryTable cannot have a negative wait.")
        super().__post_init__()

    def seconds(self, attempt: int) -> float:
        return self.waits[min(attempt, len(self.waits)) - 1].total_seconds()

"""Retry strategies: how long a job waits, to the microsecond."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gantline.contract.errors import InvalidInput
from gantline.contract.job import MAX_DELAY, Job
from gantline.contract.outcome import ErrorInfo
from gantline.contract.retry import Backoff, Fixed, Linear, RetryStrategy, RetryTable
from gantline.testing.factories import make_job

# Other work on the machine is no failure.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

JOB = make_job()
ERROR = ErrorInfo("BROKEN", "It is broken.")
SECOND = timedelta(seconds=1)


def wait(strategy: RetryStrategy, attempt: int, jitter: float = 0.0) -> timedelta:
    delay = strategy.delay(attempt, jitter=jitter, job=JOB, error=ERROR)
    assert delay is not None
    return delay


def waits(strategy: RetryStrategy, attempts: Sequence[int], jitter: float = 0.0) -> list[float]:
    return [wait(strategy, attempt, jitter).total_seconds() for attempt in attempts]


# -- backoff ------------------------------------------------------------------------------------


def test_backoff_doubles_from_two_seconds_up_to_the_cap() -> None:
    doubling = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024, 1024]
    assert waits(Backoff(), range(1, 13)) == doubling


def test_the_jitter_adds_a_quarter_at_most() -> None:
    assert waits(Backoff(), range(1, 5), jitter=1.0) == [2.5, 5, 10, 20]
    assert waits(Backoff(), [10, 11], jitter=1.0) == [1280, 1280]
    assert waits(Backoff(), range(1, 5), jitter=0.5) == [2.25, 4.5, 9, 18]


@unhurried
@given(st.integers(1, 10**12), st.floats(0, 1))
def test_the_wait_stays_in_its_window_whatever_the_attempt(attempt: int, jitter: float) -> None:
    base = timedelta(seconds=min(1024, 2 ** min(attempt, 11)))
    assert base <= wait(Backoff(), attempt, jitter) <= base * 1.25


@unhurried
@given(st.integers(1, 100), st.floats(0, 1), st.floats(0, 1))
def test_more_jitter_never_waits_less(attempt: int, one: float, other: float) -> None:
    less, more = sorted((one, other))
    assert wait(Backoff(), attempt, less) <= wait(Backoff(), attempt, more)


def test_backoff_takes_another_base_cap_and_jitter() -> None:
    strategy = Backoff(base=3, cap_seconds=50, jitter=1.0)
    assert waits(strategy, range(1, 6)) == [3, 9, 27, 50, 50]
    assert waits(strategy, range(1, 6), jitter=1.0) == [6, 18, 54, 100, 100]
    assert waits(Backoff(jitter=0), [1, 2], jitter=1.0) == [2, 4]


@pytest.mark.parametrize("attempt", [0, -1, -(10**9)])
def test_an_attempt_below_one_waits_like_the_first(attempt: int) -> None:
    """A crash returns its attempt, so a strategy may be asked about attempt 0."""
    assert wait(Backoff(), attempt) == 2 * SECOND
    assert wait(Linear(step=SECOND), attempt) == SECOND
    assert wait(RetryTable(waits=[3 * SECOND, 5 * SECOND]), attempt) == 3 * SECOND


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Backoff, {}),
        (Backoff, {"base": 1e10}),
        (Backoff, {"cap_seconds": 1e300}),
        (Fixed, {"every": timedelta(days=36_500)}),
        (Linear, {"step": timedelta(days=36_500)}),
        (Linear, {"step": timedelta(days=1), "cap": timedelta(days=36_500)}),
        (RetryTable, {"waits": [timedelta(days=36_500)]}),
    ],
)
@pytest.mark.parametrize("attempt", [1, 10**9])
def test_no_setting_and_no_attempt_overflows(
    kind: Any, fields: dict[str, Any], attempt: int
) -> None:
    assert timedelta(0) <= wait(kind(**fields), attempt, jitter=1.0) <= MAX_DELAY


# -- the others ---------------------------------------------------------------------------------


def test_fixed_always_waits_the_same() -> None:
    strategy = Fixed(every=30 * SECOND)
    assert waits(strategy, [1, 2, 1000]) == [30, 30, 30]
    assert waits(strategy, [1, 2, 1000], jitter=1.0) == [37.5, 37.5, 37.5]


def test_linear_waits_one_step_more_each_time_up_to_the_cap() -> None:
    strategy = Linear(step=10 * SECOND, cap=35 * SECOND)
    assert waits(strategy, [1, 2, 3, 4, 10**9]) == [10, 20, 30, 35, 35]
    assert waits(Linear(step=1000 * SECOND), [1, 2]) == [1000, 1024]


def test_a_table_names_its_waits_and_repeats_the_last() -> None:
    strategy = RetryTable(waits=[SECOND, 5 * SECOND, 60 * SECOND], jitter=0)
    assert waits(strategy, [1, 2, 3, 4, 10**9], jitter=1.0) == [1, 5, 60, 60, 60]


def test_a_strategy_says_how_many_attempts_its_jobs_have() -> None:
    assert Backoff().attempts == 3
    assert RetryTable(waits=[SECOND], attempts=5).attempts == 5


@dataclass(frozen=True)
class ByPriority:
    """A stranger's strategy: no base class, only the protocol."""

    attempts: int = 7

    def delay(self, attempt: int, *, jitter: float, job: Job, error: ErrorInfo) -> timedelta | None:
        if error.code == "HOPELESS":
            return None
        return timedelta(seconds=attempt * (job.priority + 1))


def test_anything_with_the_right_shape_is_a_strategy() -> None:
    strategy: RetryStrategy = ByPriority()
    assert strategy.attempts == 7
    assert wait(strategy, 2) == 6 * SECOND
    hopeless = ErrorInfo("HOPELESS", "")
    assert strategy.delay(1, jitter=0, job=JOB, error=hopeless) is None


# -- settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Backoff, {"attempts": 0}),
        (Backoff, {"attempts": -1}),
        (Backoff, {"jitter": -0.1}),
        (Backoff, {"jitter": 1.1}),
        (Backoff, {"jitter": float("nan")}),
        (Fixed, {"every": SECOND, "attempts": 0}),
        (Linear, {"step": SECOND, "jitter": 2}),
        (RetryTable, {"waits": []}),
        (RetryTable, {"waits": [SECOND], "attempts": 0}),
        (Backoff, {"base": -2}),
        (Backoff, {"base": float("nan")}),
        (Backoff, {"cap_seconds": -1}),
        (Backoff, {"cap_seconds": float("nan")}),
        (Fixed, {"every": -SECOND}),
        (Linear, {"step": -SECOND}),
        (Linear, {"step": SECOND, "cap": -SECOND}),
        (RetryTable, {"waits": [SECOND, -SECOND]}),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(kind: Any, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        kind(**fields)


@pytest.mark.parametrize("fields", [{"attempts": 1}, {"jitter": 0}, {"jitter": 1}])
def test_the_bounds_of_the_settings_are_allowed(fields: dict[str, Any]) -> None:
    assert isinstance(Backoff(**fields), Backoff)

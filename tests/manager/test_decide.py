"""The lifecycle, row by row and as properties; the retry windows on a clock that we move."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gantline.contract.errors import Code, IllegalTransition
from gantline.contract.flow import LONGEST_CLOSED
from gantline.contract.job import MAX_DELAY, Job
from gantline.contract.outcome import (
    LEASE_EXPIRED,
    ErrorInfo,
    Failure,
    LeaseLost,
    Outcome,
    Released,
    Snoozed,
    Stopped,
    Success,
    TypeDisabled,
    Unreadable,
)
from gantline.contract.policy import DEFAULT_POLICY, Placement, Policy
from gantline.contract.retry import Backoff, Fixed, RetryStrategy
from gantline.contract.snapshot import CurrentRun, JobSnapshot, Run
from gantline.contract.status import REDRIVABLE, TRANSITIONS, Event, JobStatus, Reason
from gantline.contract.submission import DedupeKey, KeyKind
from gantline.contract.text import LABEL_LIMIT, REPLACEMENT
from gantline.contract.transition import RunGuard, StateGuard, Transition
from gantline.manager.decide import (
    decide,
    decide_cancel,
    decide_expiry,
    decide_no_handler,
    decide_redrive,
)
from gantline.manager.manager import Ending, JobManager, Submitted
from gantline.manager.submitter import Submission
from gantline.stores.memory import MemoryStore
from gantline.testing.clock import FakeClock
from gantline.testing.factories import (
    CREATED_AT,
    lane_requests,
    make_job,
    make_new,
    number,
    register_sessions,
)

# Other work on the machine is no failure.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

SECOND = timedelta(seconds=1)
TOKEN = number(77)
ERROR = ErrorInfo("BROKEN", "It is broken.")
RETRYABLE = Failure(ERROR)
PERMANENT = Failure(ERROR, retryable=False)


class Refusing:
    """A strategy that never retries."""

    attempts = 3

    def delay(self, attempt: int, *, jitter: float, job: Job, error: ErrorInfo) -> timedelta | None:
        return None


def make_run(*, max_attempts: int = 3, **fields: Any) -> Run:
    known: dict[str, Any] = {
        "job": make_job(max_attempts=max_attempts, job_id=number(1)),
        "token": TOKEN,
        "fence": 1,
        "session": "worker-1",
        "version": 2,
        "attempt": 1,
        "crashes": 0,
        "snoozes": 0,
        "priority": 2,
        "started_at": CREATED_AT,
        "lease_until": CREATED_AT + 60 * SECOND,
    }
    return Run(**(known | fields))


def make_snapshot(status: JobStatus, **fields: Any) -> JobSnapshot:
    known = {"version": 5, "attempt": 3, "crashes": 2, "snoozes": 1, "fence": 6, "priority": 1}
    return JobSnapshot(job=make_job(job_id=number(1)), status=status, **(known | fields))


def decided(outcome: Outcome, policy: Policy = DEFAULT_POLICY, **fields: Any) -> Transition:
    return decide(make_run(**fields), outcome, policy, jitter=0.0)


# -- row by row ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "run", "event", "to", "reason"),
    [
        (Success(), {}, "completed", "Completed", "Succeeded"),
        (Success(), {"attempt": 3}, "completed", "Completed", "Succeeded"),
        (PERMANENT, {}, "failed", "Failed", "PermanentError"),
        (PERMANENT, {"attempt": 3}, "failed", "Failed", "PermanentError"),
        (RETRYABLE, {}, "retried", "Queued", "RetryableError"),
        (RETRYABLE, {"attempt": 2}, "retried", "Queued", "RetryableError"),
        (RETRYABLE, {"attempt": 3}, "poisoned", "Poisoned", "AttemptsExhausted"),
        (RETRYABLE, {"max_attempts": 1}, "poisoned", "Poisoned", "AttemptsExhausted"),
        (Unreadable("bad"), {}, "poisoned", "Poisoned", "InvalidFormat"),
        (Snoozed(SECOND), {}, "snoozed", "Queued", "Snoozed"),
        (Snoozed(SECOND), {"attempt": 3}, "snoozed", "Queued", "Snoozed"),
        (Snoozed(SECOND), {"snoozes": 999}, "snoozed", "Queued", "Snoozed"),
        (Snoozed(SECOND), {"snoozes": 1000}, "poisoned", "Poisoned", "SnoozedTooOften"),
        (Snoozed(SECOND, "api"), {"attempt": 3}, "snoozed", "Queued", "Throttled"),
        (Snoozed(SECOND, ""), {"snoozes": 1000}, "poisoned", "Poisoned", "SnoozedTooOften"),
        (Released(), {}, "released", "Queued", "Shutdown"),
        (Released(), {"attempt": 3}, "released", "Queued", "Shutdown"),
        (LeaseLost(), {}, "crashed", "Queued", "LeaseExpired"),
        (LeaseLost(), {"attempt": 3}, "crashed", "Queued", "LeaseExpired"),
        (LeaseLost(), {"crashes": 1}, "crashed", "Queued", "LeaseExpired"),
        (LeaseLost(), {"crashes": 9}, "crashed", "Queued", "LeaseExpired"),
        (LeaseLost(times_alone=1), {"crashes": 9}, "crashed", "Queued", "CrashedAlone"),
        (LeaseLost(times_alone=3), {"crashes": 2}, "poisoned", "Poisoned", "LeaseExpired"),
        (TypeDisabled(), {}, "failed", "Failed", "TypeDisabled"),
        (Stopped(), {"cancel_requested": True}, "cancelled", "Cancelled", "CancelRequested"),
    ],
)
def test_what_follows_from_how_a_run_ended(
    outcome: Outcome, run: dict[str, Any], event: str, to: str, reason: str
) -> None:
    transition = decided(outcome, **run)
    assert (transition.event, transition.to, transition.reason) == (event, to, reason)


EXPIRED = make_job(job_id=number(1), expires_at=CREATED_AT)


@pytest.mark.parametrize(
    "outcome", [Released(), LeaseLost(), LeaseLost(times_alone=3), RETRYABLE, TypeDisabled()]
)
def test_a_run_that_was_claimed_too_late_is_cancelled_whatever_became_of_it(
    outcome: Outcome,
) -> None:
    transition = decided(outcome, job=EXPIRED)
    assert (transition.event, transition.to) == ("cancelled", "Cancelled")
    assert (transition.reason, transition.error) == ("Expired", None)
    assert (transition.attempt, transition.crashes) == (0, 0)
    is_lost = isinstance(outcome, LeaseLost)
    assert transition.guard == RunGuard(TOKEN, only_expired=is_lost)


@pytest.mark.parametrize(
    "known",
    [
        {"started_at": CREATED_AT - timedelta(microseconds=1)},  # in time
        {"version": 4},  # not the first run, or after a redrive
    ],
)
def test_a_run_of_a_job_that_has_begun_or_was_redriven_has_not_expired(
    known: dict[str, Any],
) -> None:
    assert decided(Released(), job=EXPIRED, **known).event == "released"


def test_a_cancel_of_what_has_expired_is_a_cancel() -> None:
    cancelled = decided(Released(), job=EXPIRED, cancel_requested=True)
    assert cancelled.reason == "CancelRequested"


def test_what_has_expired_is_cancelled_only_while_it_is_new() -> None:
    new = make_snapshot(JobStatus.QUEUED, version=1)
    transition = decide_expiry(new)
    assert transition is not None
    assert (transition.to, transition.reason) == ("Cancelled", "Expired")
    assert isinstance(transition.guard, StateGuard)
    assert (transition.guard.status, transition.guard.version) == (JobStatus.QUEUED, 1)
    for other in (make_snapshot(JobStatus.QUEUED), make_snapshot(JobStatus.CANCELLED, version=1)):
        assert decide_expiry(other) is None


@pytest.mark.parametrize(
    ("outcome", "run", "to"),
    [
        (Success(), {}, "Completed"),
        (PERMANENT, {}, "Failed"),
        (RETRYABLE, {}, "Cancelled"),
        (RETRYABLE, {"attempt": 3}, "Cancelled"),
        (Snoozed(SECOND), {}, "Cancelled"),
        (Snoozed(SECOND), {"snoozes": 1000}, "Cancelled"),
        (Released(), {}, "Cancelled"),
        (LeaseLost(), {}, "Cancelled"),
        (LeaseLost(), {"crashes": 2}, "Cancelled"),
        (Unreadable(), {}, "Poisoned"),
        (TypeDisabled(), {}, "Failed"),
        (Stopped(), {}, "Cancelled"),
    ],
)
def test_a_requested_cancel_wins_over_running_again_and_giving_up(
    outcome: Outcome, run: dict[str, Any], to: str
) -> None:
    transition = decided(outcome, cancel_requested=True, **run)
    assert transition.to == to
    if to == "Cancelled":
        assert transition.reason is Reason.CANCEL_REQUESTED


@pytest.mark.parametrize(
    ("outcome", "counters"),
    [
        (Success(), (2, 1, 5)),
        (PERMANENT, (2, 1, 5)),
        (RETRYABLE, (2, 1, 5)),
        (Snoozed(SECOND), (1, 1, 6)),
        (Snoozed(SECOND, "api"), (1, 1, 6)),
        (Released(), (1, 1, 5)),
        (LeaseLost(), (1, 2, 5)),
        (Unreadable(), (2, 1, 5)),
        (TypeDisabled(), (2, 1, 5)),
        (Stopped(), (2, 1, 5)),
    ],
)
def test_only_a_failed_run_costs_an_attempt(
    outcome: Outcome, counters: tuple[int, int, int]
) -> None:
    """(attempt, crashes, snoozes): a snooze, a shutdown and a crash give the attempt back."""
    transition = decided(outcome, attempt=2, crashes=1, snoozes=5)
    assert (transition.attempt, transition.crashes, transition.snoozes) == counters


def test_the_last_crash_is_counted_too() -> None:
    poisoned = decided(LeaseLost(times_alone=3), crashes=2, attempt=2)
    assert (poisoned.crashes, poisoned.attempt) == (3, 1)
    cancelled = decided(LeaseLost(), crashes=2, attempt=2, cancel_requested=True)
    assert (cancelled.crashes, cancelled.attempt) == (3, 1)


@pytest.mark.parametrize(
    ("outcome", "run", "code"),
    [
        (PERMANENT, {}, "BROKEN"),
        (RETRYABLE, {}, "BROKEN"),
        (RETRYABLE, {"attempt": 3}, "BROKEN"),
        (RETRYABLE, {"cancel_requested": True}, "BROKEN"),
        (Unreadable("why"), {}, Code.INVALID_FORMAT),
        (Snoozed(SECOND), {"snoozes": 1000}, Code.SNOOZED_TOO_OFTEN),
        (LeaseLost(), {}, Code.LEASE_EXPIRED),
        (LeaseLost(), {"crashes": 2}, Code.LEASE_EXPIRED),
        (LeaseLost(times_alone=3), {"crashes": 2}, Code.LEASE_EXPIRED),
        (LeaseLost(), {"cancel_requested": True}, Code.LEASE_EXPIRED),
        (TypeDisabled(), {}, Code.JOB_TYPE_DISABLED),
    ],
)
def test_what_went_wrong_is_written_with_the_change(
    outcome: Outcome, run: dict[str, Any], code: str
) -> None:
    error = decided(outcome, **run).error
    assert error is not None
    assert error.code == code


@pytest.mark.parametrize("outcome", [Success(), Snoozed(SECOND), Released(), Stopped()])
def test_where_nothing_went_wrong_there_is_no_error(outcome: Outcome) -> None:
    assert decided(outcome).error is None


def test_what_a_client_reads_about_an_unreadable_job_is_not_its_content() -> None:
    error = decided(Unreadable("secret byte 0x41")).error
    assert error is not None
    assert "cannot be read" in error.message
    assert "secret" not in error.message
    assert "secret" in error.detail


def test_a_success_carries_all_that_is_written_with_it() -> None:
    once = DedupeKey(KeyKind.ONCE, "default", "test", "k")
    follow_up = make_new("next")
    success = Success(b"1", None, (follow_up,), (once,))
    transition = decided(success, Policy(hold_key=timedelta(days=2)))
    assert (transition.result, transition.result_omitted) == (b"1", None)
    assert (transition.follow_ups, transition.once) == ((follow_up,), (once,))
    assert transition.hold_key == timedelta(days=2)
    assert decided(Success(None, "larger than 5 bytes")).result_omitted == "larger than 5 bytes"


def test_a_completed_job_keeps_its_key_for_a_week() -> None:
    assert decided(Success()).hold_key == timedelta(days=7)


# -- waits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("attempt", [1, 2, 3, 4])
@pytest.mark.parametrize("jitter", [0.0, 1.0])
def test_a_failed_attempt_waits_two_four_eight_sixteen(attempt: int, jitter: float) -> None:
    run = make_run(attempt=attempt, max_attempts=5)
    transition = decide(run, RETRYABLE, DEFAULT_POLICY, jitter=jitter)
    assert transition.delay == 2**attempt * SECOND * (1 + jitter / 4)


def test_the_wish_of_the_cause_replaces_the_backoff() -> None:
    assert decided(Failure(ERROR, retry_after=90 * SECOND)).delay == 90 * SECOND
    assert decided(Failure(ERROR, retry_after=timedelta(0))).delay == timedelta(0)


@pytest.mark.parametrize("retry_after", [None, timedelta(0), SECOND, timedelta.max])
def test_the_wish_of_the_cause_gives_no_further_attempt(retry_after: timedelta | None) -> None:
    transition = decided(Failure(ERROR, retry_after=retry_after), attempt=3)
    assert (transition.to, transition.reason) == (JobStatus.POISONED, Reason.ATTEMPTS_EXHAUSTED)


def test_a_strategy_may_refuse_the_retry() -> None:
    transition = decided(RETRYABLE, Policy(retry=Refusing()))
    assert (transition.to, transition.reason) == (JobStatus.POISONED, Reason.RETRY_REFUSED)
    assert transition.error == ERROR


def test_a_first_crash_costs_no_time_and_a_suspect_waits_shortly() -> None:
    assert decided(LeaseLost(), attempt=3).delay == timedelta(0)
    assert decided(LeaseLost(), attempt=3, crashes=1).delay == 2 * SECOND
    assert decided(LeaseLost(), attempt=3, crashes=8).delay == 2 * SECOND


def test_where_workers_end_together_nothing_is_counted() -> None:
    forgiven = decided(LeaseLost(counts=False), attempt=3, crashes=1)
    assert (forgiven.event, forgiven.crashes, forgiven.delay) == (Event.CRASHED, 1, timedelta(0))


def test_a_crash_never_asks_the_handlers_own_strategy() -> None:
    assert decided(LeaseLost(), Policy(retry=Refusing())).to is JobStatus.QUEUED
    refused = decided(LeaseLost(), Policy(crash_retry=Refusing()), crashes=1)
    assert (refused.to, refused.reason) == (JobStatus.POISONED, Reason.LEASE_EXPIRED)
    assert refused.error == LEASE_EXPIRED


def test_a_strategy_is_given_the_job_and_its_error() -> None:
    seen: list[tuple[int, Job, ErrorInfo | None]] = []

    class Watching:
        attempts = 3

        def delay(self, attempt: int, *, jitter: float, job: Job, error: ErrorInfo) -> timedelta:
            seen.append((attempt, job, error))
            return SECOND

    def place(job: Job, placement: Placement) -> Placement:
        seen.append((0, job, None))
        return placement

    policy = Policy(retry=Watching(), crash_retry=Watching(), schedule=place)
    run = make_run(crashes=1)
    for outcome in (RETRYABLE, LeaseLost()):
        decide(run, outcome, policy, jitter=0.0)
    assert seen == [(1, run.job, ERROR), (0, run.job, None), (2, run.job, LEASE_EXPIRED)]


@pytest.mark.parametrize("gate", ["api", ""])
def test_a_throttled_run_closes_its_gate_for_as_long_as_it_waits_and_a_day_at_most(
    gate: str,
) -> None:
    throttled = decided(Snoozed(90 * SECOND, gate))
    assert (throttled.delay, throttled.closes) == (90 * SECOND, gate)
    assert decided(Snoozed(timedelta(days=9999), gate)).delay == LONGEST_CLOSED
    assert decided(Snoozed(SECOND)).closes == ""


def test_a_snooze_waits_as_long_as_it_asks() -> None:
    assert decided(Snoozed(90 * SECOND)).delay == 90 * SECOND


def test_a_released_run_may_start_again_at_once() -> None:
    assert decided(Released()).delay == timedelta(0)


@pytest.mark.parametrize(
    ("wanted", "kept"), [(timedelta.min, timedelta(0)), (timedelta.max, MAX_DELAY)]
)
def test_no_wish_is_too_strange_to_be_stored(wanted: timedelta, kept: timedelta) -> None:
    placing = Policy(schedule=lambda job, asked: Placement(wanted, asked.priority))
    assert decided(Failure(ERROR, retry_after=wanted)).delay == kept
    assert decided(RETRYABLE, placing).delay == kept
    assert decided(Snoozed(wanted)).delay == kept


def test_the_scheduling_strategy_places_a_retry() -> None:
    def later_and_last(job: Job, placement: Placement) -> Placement:
        return Placement(placement.delay * 10, placement.priority + 1)

    transition = decided(RETRYABLE, Policy(schedule=later_and_last), priority=1)
    assert (transition.delay, transition.priority) == (20 * SECOND, 2)


@pytest.mark.parametrize(("wanted", "kept"), [(-5, 0), (0, 0), (3, 3), (99, 3)])
def test_a_retry_keeps_a_priority_that_exists(wanted: int, kept: int) -> None:
    policy = Policy(schedule=lambda job, placement: Placement(placement.delay, wanted))
    assert decided(RETRYABLE, policy).priority == kept


# -- guards -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "run", "guard"),
    [
        (Success(), {}, RunGuard(TOKEN)),
        (PERMANENT, {}, RunGuard(TOKEN)),
        (Unreadable(), {}, RunGuard(TOKEN)),
        (TypeDisabled(), {}, RunGuard(TOKEN)),
        (Stopped(), {}, RunGuard(TOKEN)),
        (RETRYABLE, {}, RunGuard(TOKEN, unless_cancelled=True)),
        (RETRYABLE, {"attempt": 3}, RunGuard(TOKEN, unless_cancelled=True)),
        (Snoozed(SECOND), {}, RunGuard(TOKEN, unless_cancelled=True)),
        (Snoozed(SECOND), {"snoozes": 1000}, RunGuard(TOKEN, unless_cancelled=True)),
        (Released(), {}, RunGuard(TOKEN, unless_cancelled=True)),
        (LeaseLost(), {}, RunGuard(TOKEN, unless_cancelled=True, only_expired=True)),
        (LeaseLost(), {"crashes": 2}, RunGuard(TOKEN, unless_cancelled=True, only_expired=True)),
        (LeaseLost(times_alone=3), {}, RunGuard(TOKEN, unless_cancelled=True, only_expired=True)),
        (LeaseLost(), {"cancel_requested": True}, RunGuard(TOKEN, only_expired=True)),
        (RETRYABLE, {"cancel_requested": True}, RunGuard(TOKEN)),
    ],
)
def test_the_guard_holds_all_that_the_decision_rests_on(
    outcome: Outcome, run: dict[str, Any], guard: RunGuard
) -> None:
    assert decided(outcome, **run).guard == guard


# -- properties ---------------------------------------------------------------------------------


@st.composite
def runs(draw: st.DrawFn) -> Run:
    max_attempts = draw(st.integers(1, 1000))
    return make_run(
        max_attempts=max_attempts,
        attempt=draw(st.integers(1, max_attempts)),
        crashes=draw(st.integers(0, 5)),
        snoozes=draw(st.integers(0, 1001)),
        priority=draw(st.integers(0, 3)),
        token=draw(st.uuids()),
        cancel_requested=draw(st.booleans()),
    )


def failures() -> st.SearchStrategy[Failure]:
    return st.builds(
        Failure, st.just(ERROR), retryable=st.booleans(), retry_after=st.none() | st.timedeltas()
    )


def outcomes() -> st.SearchStrategy[Outcome]:
    plain: list[Outcome] = [Success(), Released(), Stopped(), TypeDisabled()]
    return (
        failures()
        | st.builds(Snoozed, st.timedeltas())
        | st.builds(Unreadable, st.text())
        | st.sampled_from(plain)
        | st.builds(LeaseLost, st.booleans(), st.integers(0, 6))
    )


strategies = st.sampled_from(
    list[RetryStrategy]([Backoff(), Fixed(every=SECOND), Refusing()]),
)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    placement = Placement(draw(st.timedeltas()), draw(st.integers(-9, 9)))
    return Policy(
        retry=draw(strategies),
        crash_retry=draw(strategies),
        max_crashes=draw(st.integers(1, 5)),
        max_snoozes=draw(st.integers(0, 1000)),
        schedule=draw(st.sampled_from([DEFAULT_POLICY.schedule, lambda job, asked: placement])),
    )


jitters = st.floats(0, 1)


@unhurried
@given(runs(), outcomes(), policies(), jitters)
def test_every_decision_is_a_move_of_this_very_run(
    run: Run, outcome: Outcome, policy: Policy, jitter: float
) -> None:
    transition = decide(run, outcome, policy, jitter=jitter)
    assert (JobStatus.RUNNING, transition.event, transition.to) in TRANSITIONS
    assert isinstance(transition.guard, RunGuard)
    assert transition.guard.token == run.token
    assert transition.job_id == run.job.job_id
    assert transition.to is not JobStatus.RUNNING


@unhurried
@given(runs(), outcomes(), policies(), jitters)
def test_every_decision_can_be_stored(
    run: Run, outcome: Outcome, policy: Policy, jitter: float
) -> None:
    transition = decide(run, outcome, policy, jitter=jitter)
    assert timedelta(0) <= transition.delay <= MAX_DELAY
    assert 0 <= transition.priority <= 3
    assert 0 <= transition.attempt <= run.job.max_attempts
    assert transition.crashes in (run.crashes, run.crashes + 1)
    assert transition.snoozes in (run.snoozes, run.snoozes + 1)


@unhurried
@given(runs(), outcomes(), policies(), jitters)
def test_a_job_goes_back_to_the_queue_only_where_a_budget_pays_for_it(
    run: Run, outcome: Outcome, policy: Policy, jitter: float
) -> None:
    transition = decide(run, outcome, policy, jitter=jitter)
    if transition.to is not JobStatus.QUEUED:
        return
    assert not run.cancel_requested
    assert isinstance(transition.guard, RunGuard)
    assert transition.guard.unless_cancelled
    assert transition.attempt < run.job.max_attempts
    assert transition.snoozes <= max(run.snoozes, policy.max_snoozes)
    if isinstance(outcome, LeaseLost):
        assert outcome.times_alone < policy.max_crashes


@unhurried
@given(runs(), failures(), policies(), jitters)
def test_a_permanent_error_is_failed_and_never_poisoned(
    run: Run, outcome: Failure, policy: Policy, jitter: float
) -> None:
    transition = decide(run, outcome, policy, jitter=jitter)
    assert (transition.to is JobStatus.FAILED) == (not outcome.retryable)


@unhurried
@given(runs(), outcomes(), policies(), jitters)
def test_deciding_twice_decides_the_same(
    run: Run, outcome: Outcome, policy: Policy, jitter: float
) -> None:
    first = decide(run, outcome, policy, jitter=jitter)
    assert decide(run, outcome, policy, jitter=jitter) == first


@unhurried
@given(runs(), jitters)
def test_the_default_wait_stays_in_its_window(run: Run, jitter: float) -> None:
    transition = decide(run, RETRYABLE, DEFAULT_POLICY, jitter=jitter)
    if transition.to is JobStatus.QUEUED:
        base = min(1024, 2 ** min(run.attempt, 10)) * SECOND
        assert base <= transition.delay <= base * 1.25


def next_run(run: Run, ended: Transition) -> Run:
    """Claim again what a decision has put back."""
    return msgspec.structs.replace(
        run,
        attempt=ended.attempt + 1,
        crashes=ended.crashes,
        snoozes=ended.snoozes,
        priority=ended.priority,
    )


def drive(run: Run, outcomes: list[Outcome]) -> list[Transition]:
    """End run after run, until the job has ended or the outcomes have."""
    decisions: list[Transition] = []
    for outcome in outcomes:
        decisions.append(decide(run, outcome, DEFAULT_POLICY, jitter=0.5))
        if decisions[-1].to.is_terminal:
            break
        run = next_run(run, decisions[-1])
    return decisions


@unhurried
@given(st.integers(1, 50), st.none() | st.timedeltas())
def test_a_job_that_always_fails_runs_exactly_max_attempts_times(
    max_attempts: int, retry_after: timedelta | None
) -> None:
    always = Failure(ERROR, retry_after=retry_after)
    *retried, last = drive(make_run(max_attempts=max_attempts), [always] * 100)
    assert len(retried) == max_attempts - 1
    assert all(decision.event is Event.RETRIED for decision in retried)
    assert (last.to, last.reason) == (JobStatus.POISONED, Reason.ATTEMPTS_EXHAUSTED)
    assert last.attempt == max_attempts


def test_an_envelope_that_has_used_attempts_elsewhere_has_fewer_left() -> None:
    assert len(drive(make_run(max_attempts=5, attempt=4), [RETRYABLE] * 100)) == 2


def test_a_job_that_crashes_alone_is_poisoned_by_the_third_crash() -> None:
    crashes: list[Outcome] = [LeaseLost(times_alone=times) for times in (1, 2, 3, 4)]
    decisions = drive(make_run(max_attempts=1), crashes)
    assert [decision.to for decision in decisions] == ["Queued", "Queued", "Poisoned"]
    assert decisions[-1].reason is Reason.LEASE_EXPIRED


def test_a_job_that_always_snoozes_is_poisoned_after_a_thousand() -> None:
    *snoozed, last = drive(make_run(max_attempts=1), [Snoozed(SECOND)] * 2000)
    assert len(snoozed) == 1000
    assert (last.to, last.reason) == (JobStatus.POISONED, Reason.SNOOZED_TOO_OFTEN)


def test_a_job_may_be_released_for_ever() -> None:
    decisions = drive(make_run(max_attempts=1), [Released()] * 2000)
    assert {decision.to for decision in decisions} == {JobStatus.QUEUED}
    assert len(decisions) == 2000


mixed = st.lists(
    st.sampled_from([RETRYABLE, Failure(ERROR, retry_after=SECOND), Snoozed(SECOND), Released()])
    | st.builds(LeaseLost, st.booleans(), st.just(0)),
    max_size=60,
)


@unhurried
@given(mixed, st.integers(1, 10))
def test_no_mixture_of_endings_gives_more_failed_runs_than_allowed(
    endings: list[Outcome], max_attempts: int
) -> None:
    decisions = drive(make_run(max_attempts=max_attempts), endings)
    failed = [end for end in endings[: len(decisions)] if isinstance(end, Failure)]
    assert len(failed) <= max_attempts
    ended = bool(decisions) and decisions[-1].to.is_terminal
    assert ended == (len(failed) == max_attempts)


# -- operators ----------------------------------------------------------------------------------


def running(*, cancel_requested: bool) -> JobSnapshot:
    run = CurrentRun(
        session="worker-1",
        started_at=CREATED_AT,
        lease_until=CREATED_AT,
        cancel_requested=cancel_requested,
    )
    return make_snapshot(JobStatus.RUNNING, run=run)


def test_a_queued_job_is_cancelled_at_once() -> None:
    transition = decide_cancel(make_snapshot(JobStatus.QUEUED), actor="me", version=None)
    assert transition is not None
    assert (transition.event, transition.to) == (Event.CANCELLED, JobStatus.CANCELLED)
    assert (transition.reason, transition.actor) == (Reason.CANCEL_REQUESTED, "me")


def test_a_running_job_is_asked_to_stop() -> None:
    transition = decide_cancel(running(cancel_requested=False), actor="me", version=None)
    assert transition is not None
    assert (transition.event, transition.to) == (Event.CANCEL_REQUESTED, JobStatus.RUNNING)
    assert (transition.reason, transition.actor) == (Reason.CANCEL_REQUESTED, "me")


def test_a_job_is_not_asked_to_stop_twice() -> None:
    assert decide_cancel(running(cancel_requested=True), actor="me", version=None) is None
    assert decide_cancel(make_snapshot(JobStatus.CANCELLED), actor="me", version=None) is None


@pytest.mark.parametrize("status", ["Completed", "Failed", "Poisoned"])
def test_a_job_that_ended_otherwise_cannot_be_cancelled(status: str) -> None:
    with pytest.raises(IllegalTransition, match=f"{status} cannot be cancelled"):
        decide_cancel(make_snapshot(JobStatus(status)), actor="me", version=None)


@pytest.mark.parametrize("version", [None, 5])
@pytest.mark.parametrize("status", [JobStatus.QUEUED, JobStatus.RUNNING])
def test_a_cancel_is_guarded_by_the_status_and_the_version_asked_for(
    status: JobStatus, version: int | None
) -> None:
    transition = decide_cancel(make_snapshot(status), actor="me", version=version)
    assert transition is not None
    assert isinstance(transition.guard, StateGuard)
    assert (transition.guard.status, transition.guard.version) == (status, version)


@pytest.mark.parametrize("status", sorted(REDRIVABLE))
def test_a_redriven_job_has_all_its_budgets_again(status: JobStatus) -> None:
    transition = decide_redrive(make_snapshot(status), actor="me")
    assert (transition.event, transition.to) == (Event.REDRIVEN, JobStatus.QUEUED)
    assert transition.reason is Reason.REDRIVEN
    assert (transition.attempt, transition.crashes, transition.snoozes) == (0, 0, 0)
    assert (transition.priority, transition.delay) == (1, timedelta(0))
    assert transition.actor == "me"
    assert isinstance(transition.guard, StateGuard)
    assert (transition.guard.status, transition.guard.version) == (status, 5)


@pytest.mark.parametrize("status", sorted(set(JobStatus) - REDRIVABLE))
def test_other_jobs_cannot_be_redriven(status: JobStatus) -> None:
    with pytest.raises(IllegalTransition, match="Only Cancelled, Failed, Poisoned jobs can") as it:
        decide_redrive(make_snapshot(status), actor="me")
    assert f"A job that is {status} cannot be redriven" in str(it.value)


def test_a_run_that_is_taken_away_is_guarded_by_all_that_was_read() -> None:
    transition = Transition.taken_away(running(cancel_requested=False), actor="me")
    assert (transition.event, transition.to) == (Event.RELEASED, JobStatus.QUEUED)
    assert (transition.reason, transition.actor) == (Reason.TAKEN_AWAY, "me")
    assert isinstance(transition.guard, StateGuard)
    assert (transition.guard.status, transition.guard.version) == (JobStatus.RUNNING, 5)


def test_an_actor_is_a_text_that_can_be_stored() -> None:
    queued = make_snapshot(JobStatus.QUEUED)
    cancelled = Transition.cancelled(queued, actor="\x00" + "x" * 999, version=None)
    assert len(cancelled.actor) == LABEL_LIMIT
    assert cancelled.actor.startswith(f"{REPLACEMENT}x")


def test_a_move_that_does_not_exist_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="no such move: Completed cancelled Cancelled"):
        Transition.cancelled(make_snapshot(JobStatus.COMPLETED), actor="me", version=None)


def test_a_queued_job_without_a_handler_is_poisoned() -> None:
    transition = decide_no_handler(make_snapshot(JobStatus.QUEUED))
    assert (transition.to, transition.reason) == (JobStatus.POISONED, Reason.NO_HANDLER)
    assert transition.error is not None
    assert transition.error.code == Code.NO_HANDLER
    assert isinstance(transition.guard, StateGuard)
    assert transition.guard.version == 5


# -- through a store ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("jitter", "windows"), [(0.0, [2, 4, 8, 16]), (1.0, [2.5, 5, 10, 20])], ids=["least", "most"]
)
async def test_a_job_can_be_claimed_exactly_when_its_window_is_over(
    jitter: float, windows: list[float]
) -> None:
    clock = FakeClock()
    manager = JobManager(MemoryStore(clock=clock), jitter=lambda: jitter)
    job = make_job(max_attempts=5)
    assert await manager.submit([Submission(job)]) == [Submitted(job.job_id)]

    async def claim() -> list[Run]:
        await register_sessions(manager._store, "worker-1")
        return await manager.claim("worker-1", uuid4(), lane_requests(), lease=60 * SECOND)

    for window in windows:
        (run,) = await claim()
        await manager.settle([Ending(run, RETRYABLE)])
        clock.advance(window * SECOND - timedelta(microseconds=1))
        assert await claim() == []
        clock.advance(timedelta(microseconds=1))
    (run,) = await claim()
    assert run.attempt == 5
    (settled,) = await manager.settle([Ending(run, RETRYABLE)])
    assert settled.transition.to is JobStatus.POISONED
    clock.advance(timedelta(days=1))
    assert await claim() == []

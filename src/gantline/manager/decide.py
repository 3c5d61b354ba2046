"""The lifecycle as pure functions: a run and its outcome in, a guarded transition out."""

from datetime import timedelta
from typing import Final, assert_never

from gantline.contract.errors import Code, IllegalTransition
from gantline.contract.flow import LONGEST_CLOSED
from gantline.contract.job import MAX_DELAY, Job
from gantline.contract.outcome import (
    LEASE_EXPIRED,
    NO_HANDLER,
    SNOOZED_TOO_OFTEN,
    TYPE_DISABLED,
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
from gantline.contract.policy import Placement, Policy, as_asked
from gantline.contract.snapshot import SUSPECT_AFTER_CRASHES, JobSnapshot, Run
from gantline.contract.status import REDRIVABLE, JobStatus, Reason
from gantline.contract.transition import RunGuard, Transition

_NO_DELAY: Final = timedelta(0)


def decide(run: Run, outcome: Outcome, policy: Policy, *, jitter: float) -> Transition:
    """Say what follows from how a run ended. `jitter` is a random number from 0 to 1."""
    match outcome:
        case Success():
            # Its handler returned, and saw no stop: the work is done, cancel or not.
            return Transition.completed(run, outcome, hold_key=policy.hold_key)
        case _ if run.has_expired and not run.cancel_requested:
            # Whoever had it, and however it comes back: it was not to be started any more.
            return Transition.expired_at_start(run, only_expired=isinstance(outcome, LeaseLost))
        case Failure():
            return _after_failure(run, outcome, policy, jitter)
        case Snoozed():
            return _after_snooze(run, outcome, policy)
        case Released():
            return Transition.stopped(run) if run.cancel_requested else Transition.released(run)
        case LeaseLost():
            return _after_crash(run, outcome, policy, jitter)
        case Stopped():
            return Transition.stopped(run)
        case Unreadable():
            error = ErrorInfo(Code.INVALID_FORMAT, "The job cannot be read.", outcome.detail)
            return Transition.poisoned(run, error, Reason.INVALID_FORMAT)
        case TypeDisabled():
            return Transition.failed(run, TYPE_DISABLED, Reason.TYPE_DISABLED)
        case _:
            assert_never(outcome)


def decide_cancel(job: JobSnapshot, *, actor: str, version: int | None) -> Transition | None:
    """Cancel at once while Queued, ask the run while Running; None when nothing is left to do."""
    match job.status:
        case JobStatus.QUEUED:
            return Transition.cancelled(job, actor=actor, version=version)
        case JobStatus.RUNNING if job.run and job.run.cancel_requested:
            return None
        case JobStatus.RUNNING:
            return Transition.cancel_requested(job, actor=actor, version=version)
        case JobStatus.CANCELLED:
            return None
        case JobStatus.COMPLETED | JobStatus.FAILED | JobStatus.POISONED:
            raise IllegalTransition(f"A job that is {job.status} cannot be cancelled.")
        case _:
            assert_never(job.status)


def decide_redrive(job: JobSnapshot, *, actor: str) -> Transition:
    """Queue an ended job again under its own id, with all its budgets fresh."""
    if job.status in REDRIVABLE:
        return Transition.redriven(job, actor=actor)
    raise IllegalTransition(
        f"A job that is {job.status} cannot be redriven.",
        next_step=f"Only {', '.join(sorted(REDRIVABLE))} jobs can.",
    )


def decide_expiry(job: JobSnapshot) -> Transition | None:
    """Cancel a job that its store has found to be expired; None where it has begun meanwhile."""
    return Transition.expired(job) if job.is_new else None


def decide_no_handler(job: JobSnapshot) -> Transition:
    """Give up on a Queued job that no live worker has a handler for."""
    return Transition.unhandled(job, NO_HANDLER)


def _after_failure(run: Run, failure: Failure, policy: Policy, jitter: float) -> Transition:
    error = failure.error
    # Classification comes before counting: a permanent error on the last attempt is Failed.
    if not failure.retryable:
        return Transition.failed(run, error, Reason.PERMANENT_ERROR)
    if run.cancel_requested:
        return Transition.stopped(run, error)
    if run.attempt >= run.job.max_attempts:
        return _poisoned_unless_cancelled(run, error, Reason.ATTEMPTS_EXHAUSTED)
    delay = failure.retry_after
    if delay is None:
        delay = policy.retry.delay(run.attempt, jitter=jitter, job=run.job, error=error)
    if delay is None:
        return _poisoned_unless_cancelled(run, error, Reason.RETRY_REFUSED)
    delay, priority = placement_of(policy, run.job, Placement(bounded(delay), run.priority))
    return Transition.retried(run, error, delay=delay, priority=priority)


def _after_snooze(run: Run, snooze: Snoozed, policy: Policy) -> Transition:
    if run.cancel_requested:
        return Transition.stopped(run)
    if run.snoozes + 1 > policy.max_snoozes:
        return _poisoned_unless_cancelled(run, SNOOZED_TOO_OFTEN, Reason.SNOOZED_TOO_OFTEN)
    if snooze.closes is not None:
        # What another service says may be wrong, and the gate is that of many jobs.
        delay = min(bounded(snooze.delay), LONGEST_CLOSED)
        return Transition.throttled(run, delay=delay, closes=snooze.closes)
    return Transition.snoozed(run, delay=bounded(snooze.delay))


def _after_crash(run: Run, lost: LeaseLost, policy: Policy, jitter: float) -> Transition:
    """A crash costs its budget only where the run was alone; then it was its own."""
    crashes = run.crashes + lost.counts
    guard = RunGuard(run.token, unless_cancelled=not run.cancel_requested, only_expired=True)
    counted = {"guard": guard, "crashes": crashes, "attempt": run.attempt - 1}
    if run.cancel_requested:
        return Transition.stopped(run, LEASE_EXPIRED, **counted)
    if lost.times_alone >= policy.max_crashes:
        return Transition.poisoned(run, LEASE_EXPIRED, Reason.LEASE_EXPIRED, **counted)
    delay: timedelta | None = _NO_DELAY
    if crashes >= SUSPECT_AFTER_CRASHES:
        delay = policy.crash_retry.delay(crashes, jitter=jitter, job=run.job, error=LEASE_EXPIRED)
    if delay is None:  # not an answer of our own strategies; a user's is taken as "no more"
        return Transition.poisoned(run, LEASE_EXPIRED, Reason.LEASE_EXPIRED, **counted)
    reason = Reason.CRASHED_ALONE if lost.times_alone else Reason.LEASE_EXPIRED
    return Transition.crashed(
        run, LEASE_EXPIRED, delay=bounded(delay), counts=lost.counts, reason=reason
    )


def _poisoned_unless_cancelled(run: Run, error: ErrorInfo, reason: Reason) -> Transition:
    """A cancel that arrives meanwhile wins over giving up."""
    return Transition.poisoned(run, error, reason, guard=RunGuard(run.token, unless_cancelled=True))


def placement_of(policy: Policy, job: Job, asked: Placement) -> Placement:
    """Ask the scheduling strategy, and keep its answer within what a store can hold."""
    if policy.schedule is as_asked and _NO_DELAY <= asked.delay <= MAX_DELAY:
        return asked  # its priority was checked with the envelope
    placement = policy.schedule(job, asked)
    return Placement(bounded(placement.delay), min(3, max(0, placement.priority)))


def bounded(delay: timedelta) -> timedelta:
    if not delay:
        return delay  # as that of most jobs
    return min(max(delay, _NO_DELAY), MAX_DELAY)

"""What a verb has to answer and to change, given the state before it: the protocol once more, small
enough to be checked by reading, and independent of any store."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never
from uuid import UUID

from gantline.contract.outcome import LEASE_EXPIRED
from gantline.contract.query import LaneRequest
from gantline.contract.results import (
    Applied,
    ApplyResult,
    CancelPending,
    Conflict,
    DeleteResult,
    Duplicate,
    InsertResult,
    NotFound,
    Renewal,
    Stale,
)
from gantline.contract.snapshot import JobSnapshot, Run, RunRef
from gantline.contract.status import Event, JobStatus
from gantline.contract.submission import KeyKind, NewJob
from gantline.contract.transition import Guard, RunGuard, StateGuard, Transition
from gantline.testing.model.invariants import check
from gantline.testing.model.state import State


@dataclass(frozen=True)
class Call:
    """One call of a verb, with its answer."""

    verb: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    answer: Any


@dataclass
class Hidden:
    """What a store keeps and does not show: tokens, the ids of claims and of changes."""

    tokens: dict[UUID, UUID] = field(default_factory=dict)
    """Of the newest run of each job."""
    claims: dict[UUID, UUID] = field(default_factory=dict)
    """By which claim that run was started."""
    changes: set[tuple[UUID, UUID, Event]] = field(default_factory=set)

    def learn(self, call: Call) -> None:
        """Keep what a call shows of it."""
        match call.verb:
            case "claim":
                for run in call.answer:
                    self.tokens[run.job.job_id] = run.token
                    self.claims[run.job.job_id] = call.args[1]
            case "apply":
                for transition, answer in zip(call.args[0], call.answer, strict=True):
                    if isinstance(answer, Applied):
                        self.changes.add(_change(transition))
            case "delete":
                for (job_id, _), answer in zip(call.args[0], call.answer, strict=True):
                    if isinstance(answer, Applied):
                        self.changes = {one for one in self.changes if one[0] != job_id}


def check_call(call: Call, before: State, after: State, hidden: Hidden) -> None:
    """Raise Broken where the answer or the change is not what the protocol says."""
    match call.verb:
        case "insert":
            (new,) = call.args[0]
            _same(call, [_insert(new, before)])
            _moved(before, after, [new.job.job_id] if _is_applied(call) else [])
            holder = new.job.job_id if _is_applied(call) else before.holder
        case "claim":
            started = _claim(call, before, hidden)
            _moved(before, after, started)
            for run in call.answer:
                _check_run(run, after.jobs[run.job.job_id])
            holder = before.holder
        case "renew":
            _same(call, _renew(call.args[0], call.args[1], before, hidden))
            held = [run.job_id for run in call.args[1] if run.token not in call.answer.lost]
            _moved(before, after, held)
            for job_id in held:
                _check_lease(after.jobs[job_id], after.now + call.kwargs["lease"])
            holder = before.holder
        case "apply":
            (transition,) = call.args[0]
            answer = _apply(transition, before, hidden)
            _same(call, [answer])
            is_new = isinstance(answer, Applied) and _change(transition) not in hidden.changes
            _moved(before, after, [transition.job_id] if is_new else [])
            holder = before.holder
            if is_new:
                _check_applied(transition, before, after)
                holder = _holder_after(transition, before)
        case "delete":
            ((job_id, guard),) = call.args[0]
            _same(call, [_delete(job_id, guard, before)])
            _moved(before, after, [job_id] if _is_applied(call) else [])
            is_owner = _is_applied(call) and before.holder == job_id
            holder = None if is_owner else before.holder
        case "expired":
            late = [
                job_id
                for job_id, job in sorted(before.jobs.items())
                if job.run and job.run.lease_until <= before.now
                if call.kwargs["after"] is None or job_id > call.kwargs["after"]
            ]
            check([run.job.job_id for run in call.answer] == late, f"expired are {late}")
            _moved(before, after, [])
            holder = before.holder
        case _:  # a read
            _moved(before, after, [])
            holder = before.holder
    check(after.holder == holder, f"the key belongs to {after.holder}, not to {holder}")


def _same(call: Call, expected: Any) -> None:
    check(call.answer == expected, f"{call.verb} answered {call.answer}, not {expected}")


def _is_applied(call: Call) -> bool:
    return isinstance(call.answer[0], Applied)


def _moved(before: State, after: State, moved: Sequence[UUID]) -> None:
    """Nothing but these jobs has changed."""
    for job_id in before.history:
        if job_id not in moved:
            same = before.jobs.get(job_id) == after.jobs.get(job_id)
            check(same, f"{job_id} has changed, and nobody asked for that")


def _insert(new: NewJob, before: State) -> InsertResult:
    known = before.jobs.get(new.job.job_id)
    if known is not None:
        return Duplicate(new.job.job_id) if _is_same(new, known) else Conflict()
    if before.holder is None:
        return Applied(1)
    holder = before.jobs.get(before.holder)
    # A key that outlives its job is not part of a model.
    check(holder is not None, "the key belongs to a job that is gone")
    if holder is not None and _is_same(new, holder):
        return Duplicate(before.holder, by=KeyKind.JOB)
    return Conflict(by=KeyKind.JOB)


def _is_same(new: NewJob, known: JobSnapshot) -> bool:
    return new.fingerprint == known.job.fingerprint


def _claim(call: Call, before: State, hidden: Hidden) -> list[UUID]:
    """Check which runs a claim gives; return the jobs that it started."""
    _, claim_id, requests = call.args
    current = [
        job_id
        for job_id, job in before.jobs.items()
        if job.status is JobStatus.RUNNING and hidden.claims.get(job_id) == claim_id
    ]
    given = [run.job.job_id for run in call.answer]
    if current:
        check(sorted(given) == sorted(current), f"a repeated claim gave {given}, not {current}")
        for run in call.answer:
            check(hidden.tokens[run.job.job_id] == run.token, "a repeated claim: another token")
        return []
    due = [job_id for request in requests for job_id in _due(request, before)]
    check(given == due, f"a claim gave {given}; due are {due}")
    for run in call.answer:
        is_new = run.token not in hidden.tokens.values()
        check(is_new, "a token was handed out for the second time")
    return due


def _due(request: LaneRequest, before: State) -> list[UUID]:
    due = [
        (job.priority, job.run_at, job_id)
        for job_id, job in before.jobs.items()
        if job.run_at is not None and job.run_at <= before.now
        if (job.crashes >= 2) == bool(request.suspects)
    ]
    return [job_id for _, _, job_id in sorted(due)][: request.limit]


def _check_run(run: Run, job: JobSnapshot) -> None:
    seen = (run.fence, run.attempt, run.version, run.session, run.cancel_requested)
    current = job.run
    check(current is not None, "a claim gave a run of a job that does not run")
    if current is not None:
        stands = (job.fence, job.attempt, job.version, current.session, current.cancel_requested)
        check(seen == stands, f"a claim gave {seen}, the job says {stands}")


def _renew(session: str, runs: Sequence[RunRef], before: State, hidden: Hidden) -> Renewal:
    lost, stopping = set(), set()
    for run in runs:
        job = before.jobs.get(run.job_id)
        is_ours = job and job.run and hidden.tokens[run.job_id] == run.token
        if not (job and job.run and is_ours and job.run.session == session):
            lost.add(run.token)
        elif job.run.cancel_requested:
            stopping.add(run.token)
    return Renewal(frozenset(lost), frozenset(stopping))


def _check_lease(job: JobSnapshot, until: Any) -> None:
    check(
        job.run is not None and job.run.lease_until == until, "a renewal did not extend the lease"
    )


def _apply(transition: Transition, before: State, hidden: Hidden) -> ApplyResult:
    job = before.jobs.get(transition.job_id)
    if job is None:
        return NotFound()
    refused = _refuse(transition.guard, job, before, hidden)
    was_made = _change(transition) in hidden.changes
    if was_made and not isinstance(refused, NotFound | CancelPending):
        return Applied(job.version)
    if refused is not None:
        return refused
    is_taken = before.holder not in (None, transition.job_id)
    if transition.event is Event.REDRIVEN and is_taken:
        return Conflict(by=KeyKind.JOB)
    return Applied(job.version + 1)


def _refuse(
    guard: Guard, job: JobSnapshot, before: State, hidden: Hidden
) -> Stale | CancelPending | NotFound | None:
    match guard:
        case RunGuard():
            run = job.run
            if run is None or hidden.tokens[job.job.job_id] != guard.token:
                return Stale()
            if guard.only_expired and run.lease_until > before.now:
                return Stale()
            return CancelPending() if guard.unless_cancelled and run.cancel_requested else None
        case StateGuard():
            if job.job.tenant_id != guard.tenant_id:
                return NotFound()
            is_same = job.status is guard.status and guard.version in (None, job.version)
            return None if is_same else Stale()
        case _:
            assert_never(guard)


def _check_applied(transition: Transition, before: State, after: State) -> None:
    """The decision is written as it was made, no more and no less."""
    old, job = before.jobs[transition.job_id], after.jobs[transition.job_id]
    check(job.status is transition.to, f"{transition.event} left the job {job.status}")
    source: Transition | JobSnapshot = transition if transition.sets_counters else old
    expected = (source.attempt, source.crashes, source.snoozes, source.priority, old.fence)
    stands = (job.attempt, job.crashes, job.snoozes, job.priority, job.fence)
    check(stands == expected, f"counters are {stands}, decided was {expected}")
    if job.run_at is not None:
        check(job.run_at == after.now + transition.delay, f"due at {job.run_at}")
    is_asked = transition.event is Event.CANCEL_REQUESTED
    check(not is_asked or bool(job.run and job.run.cancel_requested), "a cancel was not noted")
    if old.run is not None:
        is_late = old.run.lease_until <= before.now
        check(is_late or transition.error != LEASE_EXPIRED, "a run was taken from a live worker")
        is_again = job.status is JobStatus.QUEUED
        check(not (is_again and old.run.cancel_requested), "a cancel was forgotten")


def _holder_after(transition: Transition, before: State) -> UUID | None:
    if transition.event is Event.REDRIVEN:
        return transition.job_id
    ends = transition.to.is_terminal and transition.to is not JobStatus.COMPLETED
    return None if ends and before.holder == transition.job_id else before.holder


def _delete(job_id: UUID, guard: StateGuard, before: State) -> DeleteResult:
    job = before.jobs.get(job_id)
    if job is None or job.job.tenant_id != guard.tenant_id:
        return NotFound()
    is_same = job.status is guard.status and guard.version in (None, job.version)
    return Applied(job.version) if is_same and job.status.is_terminal else Stale()


def _change(transition: Transition) -> tuple[UUID, UUID, Event]:
    return (transition.job_id, transition.change_id, transition.event)

"""Every state with every verb: what a job allows in it, and that all else changes nothing."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import NamedTuple

import msgspec

from gantline.contract.outcome import LEASE_EXPIRED, ErrorInfo, Success
from gantline.contract.policy import DEFAULT_POLICY
from gantline.contract.results import Applied, NotFound, Renewal, Stale
from gantline.contract.snapshot import JobSnapshot, LogEntry, Progress, Run
from gantline.contract.status import JobStatus, Reason
from gantline.contract.transition import RunGuard, StateGuard, Transition
from gantline.testing.conformance.bench import LEASE, Bench
from gantline.testing.conformance.rule import rule, rule_for

_ERROR = ErrorInfo("CODE", "message")

Maker = Callable[[JobSnapshot, Run], Transition]


class Verb(NamedTuple):
    """A way to change a job, and the statuses in which it may."""

    name: str
    allowed: frozenset[JobStatus]
    make: Maker


def _in(*statuses: JobStatus) -> frozenset[JobStatus]:
    return frozenset(statuses)


def _as(status: JobStatus, make: Callable[[JobSnapshot], Transition]) -> Maker:
    """Pretend that the job was read in `status`, whatever it is in: the guard must notice."""
    return lambda job, run: make(msgspec.structs.replace(job, status=status))


RUN_VERBS = (
    Verb(
        "complete",
        _in(JobStatus.RUNNING),
        lambda job, run: Transition.completed(run, Success(), hold_key=DEFAULT_POLICY.hold_key),
    ),
    Verb(
        "fail",
        _in(JobStatus.RUNNING),
        lambda job, run: Transition.failed(run, _ERROR, Reason.PERMANENT_ERROR),
    ),
    Verb(
        "poison",
        _in(JobStatus.RUNNING),
        lambda job, run: Transition.poisoned(run, _ERROR, Reason.ATTEMPTS_EXHAUSTED),
    ),
    Verb("stop", _in(JobStatus.RUNNING), lambda job, run: Transition.stopped(run)),
    Verb(
        "retry",
        _in(JobStatus.RUNNING),
        lambda job, run: Transition.retried(run, _ERROR, delay=timedelta(0), priority=2),
    ),
    Verb(
        "snooze",
        _in(JobStatus.RUNNING),
        lambda job, run: Transition.snoozed(run, delay=timedelta(0)),
    ),
    Verb("release", _in(JobStatus.RUNNING), lambda job, run: Transition.released(run)),
    Verb(
        "reap",
        _in(),  # its lease has not expired, so not even while it runs
        lambda job, run: Transition.crashed(run, LEASE_EXPIRED, delay=timedelta(0)),
    ),
)
OPERATOR_VERBS = (
    Verb(
        "cancel",
        _in(JobStatus.QUEUED),
        _as(
            JobStatus.QUEUED,
            lambda job: Transition.cancelled(job, actor="op", version=None),
        ),
    ),
    Verb(
        "ask to stop",
        _in(JobStatus.RUNNING),
        _as(
            JobStatus.RUNNING,
            lambda job: Transition.cancel_requested(job, actor="op", version=None),
        ),
    ),
    Verb(
        "give up unhandled",
        _in(JobStatus.QUEUED),
        _as(JobStatus.QUEUED, lambda job: Transition.unhandled(job, _ERROR)),
    ),
    *(
        Verb(
            f"redrive as {status}",
            _in(status),
            _as(status, lambda job: Transition.redriven(job, actor="op")),
        )
        for status in (JobStatus.FAILED, JobStatus.POISONED, JobStatus.CANCELLED)
    ),
)


class Pair(NamedTuple):
    status: JobStatus
    verb: Verb

    def __str__(self) -> str:
        return f"{self.verb.name}, {self.status}"


@rule_for(Pair(status, verb) for status in JobStatus for verb in (*RUN_VERBS, *OPERATOR_VERBS))
async def a_verb_works_in_its_statuses_only(bench: Bench, pair: Pair) -> None:
    job_id, run = await bench.bring_to(pair.status)
    before = await bench.snapshot(job_id)
    rows = await bench.store.history(job_id, tenant_id=None)
    transition = pair.verb.make(before, run)
    answer = (await bench.store.apply([transition]))[0]
    after = await bench.snapshot(job_id)
    if pair.status in pair.verb.allowed:
        assert isinstance(answer, Applied)
        assert after.status is transition.to
        assert after.version == before.version + 1 == answer.version
    elif has_ended_run(rows, run, transition):
        assert isinstance(answer, Applied)
        assert after == before
    else:
        assert isinstance(answer, Stale)
        assert after == before


def has_ended_run(rows: Sequence[LogEntry], run: Run, transition: Transition) -> bool:
    """The very write that ended the run, repeated, is answered as it was, and not done again."""
    return isinstance(transition.guard, RunGuard) and any(
        (row.event, row.fence, row.session) == (transition.event, run.fence, run.session)
        for row in rows
        if not row.actor
    )


@rule_for(Pair(status, verb) for verb in OPERATOR_VERBS for status in verb.allowed)
async def an_operator_s_write_stays_in_its_tenant(bench: Bench, pair: Pair) -> None:
    """Between reading and writing, a job may be deleted and its id taken by another tenant."""
    theirs, run = await bench.bring_to(pair.status, tenant_id="theirs")
    await bench.submit(tenant_id="mine")
    before = await bench.snapshot(theirs)
    rows = await bench.store.history(theirs, tenant_id=None)
    as_read = msgspec.structs.replace(
        before, job=msgspec.structs.replace(before.job, tenant_id="mine")
    )
    assert await bench.store.apply([pair.verb.make(as_read, run)]) == [NotFound()]
    assert await bench.snapshot(theirs) == before
    assert await bench.store.history(theirs, tenant_id=None) == rows


@rule
async def a_repeated_change_stays_in_its_tenant(bench: Bench) -> None:
    """A caller that names another's change learns nothing by it, not even that it was made."""
    theirs = await bench.submit(tenant_id="theirs")
    job = await bench.snapshot(theirs)
    cancelled = Transition.cancelled(job, actor="op", version=None)
    (made,) = await bench.store.apply([cancelled])
    assert isinstance(made, Applied)
    assert await bench.store.apply([cancelled]) == [made]
    assert isinstance(cancelled.guard, StateGuard)
    mine = msgspec.structs.replace(cancelled.guard, tenant_id="mine")
    assert await bench.store.apply([msgspec.structs.replace(cancelled, guard=mine)]) == [NotFound()]


@rule_for(status for status in JobStatus if status.is_terminal)
async def a_deletion_stays_in_its_tenant(bench: Bench, status: JobStatus) -> None:
    theirs, _ = await bench.bring_to(status, tenant_id="theirs")
    await bench.submit(tenant_id="mine")
    before = await bench.snapshot(theirs)
    for version in (None, before.version):
        guard = StateGuard(status, "mine", version)
        assert await bench.store.delete([(theirs, guard)]) == [NotFound()]
    assert await bench.snapshot(theirs) == before


@rule_for(JobStatus)
async def only_an_ended_job_can_be_deleted(bench: Bench, status: JobStatus) -> None:
    job_id, _ = await bench.bring_to(status)
    job = await bench.snapshot(job_id)
    guard = StateGuard(status, job.job.tenant_id, job.version)
    answer = (await bench.store.delete([(job_id, guard)]))[0]
    if status.is_terminal:
        assert isinstance(answer, Applied)
        assert await bench.store.get([job_id], tenant_id=None) == [None]
        assert await bench.store.history(job_id, tenant_id=None) == []
        assert sum((await bench.recount()).values()) == 0
        assert await bench.store.delete([(job_id, guard)]) == [NotFound()]
    else:
        assert answer == Stale()
        assert await bench.snapshot(job_id) == job


@rule_for(JobStatus)
async def only_a_running_job_can_be_renewed_or_progress(bench: Bench, status: JobStatus) -> None:
    job_id, run = await bench.bring_to(status)
    before = await bench.snapshot(job_id)
    renewal = await bench.store.renew(run.session, [run.ref], lease=LEASE)
    progress = (await bench.store.progress([Progress(run.ref, 50.0)]))[0]
    if status is JobStatus.RUNNING:
        assert renewal == Renewal()
        assert isinstance(progress, Applied)
    else:
        assert renewal.lost == {run.token}
        assert progress == Stale()
        assert await bench.snapshot(job_id) == before


@rule_for(JobStatus)
async def only_a_queued_job_can_be_claimed(bench: Bench, status: JobStatus) -> None:
    job_id, _ = await bench.bring_to(status)
    claimed = [run.job.job_id for run in await bench.claim()]
    assert claimed == ([job_id] if status is JobStatus.QUEUED else [])

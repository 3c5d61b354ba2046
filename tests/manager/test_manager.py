"""The manager over the memory store: what callers are answered, and what is written."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from gantline.contract.errors import (
    Code,
    GantlineError,
    IllegalTransition,
    InvalidEnvelope,
    InvalidInput,
    JobIdConflict,
    JobNotFound,
    KeyTaken,
    PayloadTooLarge,
    SubmitConflict,
    VersionMismatch,
)
from gantline.contract.job import Job
from gantline.contract.outcome import ErrorInfo, Failure, Snoozed, Success
from gantline.contract.policy import DEFAULT_POLICY, Placement, Policy
from gantline.contract.query import JobFilter
from gantline.contract.records import RecordWrite
from gantline.contract.results import Applied, Stale
from gantline.contract.retry import Fixed
from gantline.contract.snapshot import JobSnapshot, Progress, Run
from gantline.contract.status import REDRIVABLE, TERMINAL, Event, JobStatus, Reason
from gantline.contract.submission import DedupeKey, KeyKind
from gantline.contract.text import LABEL_LIMIT, storable
from gantline.manager.manager import Acted, Ending, JobManager, Settled, Submitted
from gantline.manager.submitter import Submission
from gantline.stores.memory import MemoryStore
from gantline.testing.clock import FakeClock
from gantline.testing.factories import lane_requests, make_job, number, register_sessions
from gantline.testing.faults import Call, intercepted

LEASE = timedelta(seconds=60)
HOUR = timedelta(hours=1)
TENANT = "default"
RETRYABLE = Failure(ErrorInfo("BROKEN", "It is broken."))
PERMANENT = Failure(ErrorInfo("BROKEN", "It is broken."), retryable=False)
NOBODY = number(404)


class Desk:
    """A manager, its store and its clock, and short words for common steps."""

    def __init__(self, **settings: Any) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(clock=self.clock)
        self.manager = JobManager(self.store, **({"jitter": lambda: 0.0} | settings))

    async def submit(self, *jobs: Job) -> list[Submitted | GantlineError]:
        return await self.manager.submit([Submission(job) for job in jobs])

    async def start(self, job: Job) -> Run:
        assert await self.submit(job) == [Submitted(job.job_id)]
        return await self.claim(job.job_type)

    async def claim(self, *job_types: str) -> Run:
        await register_sessions(self.store, "worker-1")
        (run,) = await self.manager.claim(
            "worker-1", uuid4(), lane_requests(*job_types), lease=LEASE
        )
        return run

    async def settle(self, run: Run, outcome: Any) -> Settled:
        (settled,) = await self.manager.settle([Ending(run, outcome)])
        return settled

    async def snapshot(self, job_id: UUID) -> JobSnapshot:
        (job,) = await self.store.get([job_id], tenant_id=None)
        assert job is not None
        return job

    async def bring_to(self, status: JobStatus, **fields: Any) -> UUID:
        job = make_job(max_attempts=1, **fields)
        await self.submit(job)
        if status is JobStatus.CANCELLED:
            await self.manager.cancel([job.job_id], tenant_id=None, actor="op")
        elif status is not JobStatus.QUEUED:
            endings = {
                JobStatus.COMPLETED: Success(),
                JobStatus.FAILED: PERMANENT,
                JobStatus.POISONED: RETRYABLE,
            }
            run = await self.claim()
            if status in endings:
                await self.settle(run, endings[status])
        assert (await self.snapshot(job.job_id)).status is status
        return job.job_id


@pytest.fixture
def desk() -> Desk:
    return Desk()


# -- submitting ---------------------------------------------------------------------------------


async def test_a_job_that_is_refused_harms_no_other(desk: Desk) -> None:
    good, also_good = make_job(1), make_job(2)
    answers = await desk.submit(
        good,
        make_job(job_type=""),
        make_job(3, priority=9),
        also_good,
    )
    assert answers[0] == Submitted(good.job_id)
    assert isinstance(answers[1], InvalidEnvelope)
    assert isinstance(answers[2], InvalidEnvelope)
    assert answers[3] == Submitted(also_good.job_id)
    found = await desk.store.find(JobFilter(), limit=10)
    assert {job.job.job_id for job in found.items} == {good.job_id, also_good.job_id}


@pytest.mark.parametrize(
    "fields",
    [
        {"created_at": datetime(2026, 1, 1)},  # noqa: DTZ001 – this is the case
        {"scheduled_at": datetime(2026, 1, 1)},  # noqa: DTZ001
        {"trace_context": {"a": "\ud800"}},
    ],
    ids=["created_at without a zone", "scheduled_at without a zone", "surrogate in the trace"],
)
async def test_not_even_a_strange_envelope_harms_the_others(
    desk: Desk, fields: dict[str, Any]
) -> None:
    good = make_job()
    first, strange = await desk.submit(good, make_job(**fields))
    assert first == Submitted(good.job_id)
    assert isinstance(strange, Submitted | InvalidInput)
    assert len((await desk.store.find(JobFilter(), limit=10)).items) >= 1


async def test_nothing_submitted_is_nothing_answered(desk: Desk) -> None:
    assert await desk.manager.submit([]) == []
    assert await desk.manager.settle([]) == []
    assert await desk.manager.cancel([], tenant_id=TENANT, actor="op") == []
    assert await desk.manager.delete([], tenant_id=TENANT) == []


async def test_the_payload_limit_is_the_managers() -> None:
    desk = Desk(payload_limit=10)
    small, large = await desk.submit(make_job("x" * 8), make_job("x" * 9))
    assert isinstance(small, Submitted)
    assert isinstance(large, PayloadTooLarge)


def refuse_mail_addresses(job_type: str, payload: Any) -> str | None:
    if job_type == "mail" or not isinstance(payload, dict):
        return None
    return "it names a person" if "@" in str(payload.get("who")) else None


async def test_the_payload_hook_refuses_with_its_reason() -> None:
    desk = Desk(payload_check=refuse_mail_addresses)
    personal, allowed, other = await desk.submit(
        make_job({"who": "a@b.org"}),
        make_job({"who": "a@b.org"}, job_type="mail"),
        make_job({"who": 7}),
    )
    assert isinstance(personal, InvalidInput)
    assert personal.code == Code.VALIDATION_ERROR
    assert str(personal) == "The payload was refused: it names a person."
    assert isinstance(allowed, Submitted)
    assert isinstance(other, Submitted)


async def test_the_payload_hook_sees_follow_ups_too() -> None:
    desk = Desk(payload_check=refuse_mail_addresses)
    with pytest.raises(InvalidInput, match="names a person"):
        desk.manager.submitter.prepare(Submission(make_job({"who": "a@b.org"})))


async def test_a_job_can_be_delayed(desk: Desk) -> None:
    job = make_job()
    await desk.manager.submit([Submission(job, delay=HOUR)])
    later = await desk.snapshot(job.job_id)
    assert later.run_at == desk.clock.now() + HOUR
    assert later.job.scheduled_at == later.run_at


async def test_a_job_runs_at_the_instant_it_names(desk: Desk) -> None:
    at = desk.clock.now() + HOUR
    job = make_job(scheduled_at=at)
    await desk.submit(job)
    assert (await desk.snapshot(job.job_id)).run_at == at


async def test_an_instant_in_the_past_is_due_now(desk: Desk) -> None:
    job = make_job(scheduled_at=desk.clock.now() - HOUR)
    await desk.submit(job)
    assert (await desk.claim()).job.job_id == job.job_id


@pytest.mark.parametrize("delay", [-HOUR, timedelta.max, timedelta.min])
async def test_no_delay_is_too_strange_to_be_stored(desk: Desk, delay: timedelta) -> None:
    job = make_job()
    (answer,) = await desk.manager.submit([Submission(job, delay=delay)])
    assert answer == Submitted(job.job_id)


# -- duplicates and conflicts -------------------------------------------------------------------


async def test_the_same_key_and_payload_gives_the_existing_job(desk: Desk) -> None:
    first = make_job({"a": 1}, idempotency_key="k")
    await desk.submit(first)
    (again,) = await desk.submit(make_job({"a": 1}, idempotency_key="k"))
    assert again == Submitted(first.job_id, duplicate=True)


async def test_the_same_id_and_payload_gives_the_existing_job(desk: Desk) -> None:
    job = make_job(1)
    assert await desk.submit(job, job) == [
        Submitted(job.job_id),
        Submitted(job.job_id, duplicate=True),
    ]


async def test_of_duplicates_in_one_call_the_first_is_stored(desk: Desk) -> None:
    first, same, other = (make_job(n, idempotency_key="k") for n in (1, 1, 2))
    answers = await desk.submit(first, same, other)
    assert answers[:2] == [Submitted(first.job_id), Submitted(first.job_id, duplicate=True)]
    assert isinstance(answers[2], SubmitConflict)
    assert len((await desk.store.find(JobFilter(), limit=10)).items) == 1


async def test_a_request_key_tells_a_repeated_request(desk: Desk) -> None:
    def submission(payload: int) -> Submission:
        key = DedupeKey(KeyKind.REQUEST, TENANT, "test", "r-1", b"%d" % payload, HOUR)
        return Submission(make_job(payload), request_key=key)

    first, again, other = await desk.manager.submit([submission(n) for n in (1, 1, 2)])
    assert isinstance(first, Submitted)
    assert again == Submitted(first.job_id, duplicate=True)
    assert isinstance(other, SubmitConflict)


# Constant to the letter, so that no detail of somebody else's job can be in them.
CONFLICTS = {
    Code.IDEMPOTENCY_CONFLICT: "The idempotency key was used before with another payload."
    " Send the same payload again, or use a new key.",
    Code.JOB_ID_CONFLICT: "The job id is taken by another job. Use a new id.",
}


@pytest.mark.parametrize(
    ("taken", "wanted", "kind", "code"),
    [
        (
            {"idempotency_key": "k"},
            {"idempotency_key": "k", "payload": "mine"},
            SubmitConflict,
            Code.IDEMPOTENCY_CONFLICT,
        ),
        (
            {"job_id": number(5), "tenant_id": "other"},
            {"job_id": number(5)},
            JobIdConflict,
            Code.JOB_ID_CONFLICT,
        ),
        (
            {"job_id": number(5)},
            {"job_id": number(5), "payload": "mine"},
            JobIdConflict,
            Code.JOB_ID_CONFLICT,
        ),
    ],
    ids=["key", "id of another tenant", "id"],
)
async def test_a_conflict_tells_nothing_about_the_other_job(
    desk: Desk, taken: dict[str, Any], wanted: dict[str, Any], kind: type, code: Code
) -> None:
    other = make_job("secret", subject_id="secret-subject", **taken)
    await desk.submit(other)
    (answer,) = await desk.submit(make_job(**wanted))
    assert type(answer) is kind
    assert isinstance(answer, GantlineError)
    assert answer.code == code
    assert answer.next_step
    assert str(answer) == CONFLICTS[code]


# -- policies and placement ---------------------------------------------------------------------


def placed_at(placement: Placement) -> Policy:
    return Policy(schedule=lambda job, asked: placement)


async def test_the_scheduling_strategy_places_a_job_at_submit() -> None:
    asked: list[Placement] = []

    def first_in_line(job: Job, placement: Placement) -> Placement:
        asked.append(placement)
        return Placement(placement.delay + HOUR, 0)

    desk = Desk(policy_for=lambda job_type: Policy(schedule=first_in_line))
    job = make_job(priority=3)
    await desk.manager.submit([Submission(job, delay=HOUR)])
    assert asked == [Placement(HOUR, 3)]
    placed = await desk.snapshot(job.job_id)
    assert (placed.run_at, placed.priority) == (desk.clock.now() + 2 * HOUR, 0)


async def test_the_scheduling_strategy_is_told_the_wait_that_an_instant_means() -> None:
    asked: list[Placement] = []

    def note(job: Job, placement: Placement) -> Placement:
        asked.append(placement)
        return placement

    desk = Desk(policy_for=lambda job_type: Policy(schedule=note))
    await desk.submit(make_job(scheduled_at=desk.clock.now() + HOUR, priority=1))
    assert asked == [Placement(HOUR, 1)]


async def test_the_scheduling_strategy_may_change_the_priority_alone() -> None:
    policy = Policy(schedule=lambda job, asked: Placement(asked.delay, 0))
    desk = Desk(policy_for=lambda job_type: policy)
    job = make_job(priority=3)
    await desk.submit(job)
    placed = await desk.snapshot(job.job_id)
    assert (placed.priority, placed.run_at) == (0, desk.clock.now())


async def test_the_scheduling_strategy_has_the_last_word_over_an_instant() -> None:
    desk = Desk(policy_for=lambda job_type: placed_at(Placement(HOUR, 1)))
    job = make_job(scheduled_at=desk.clock.now() + 9 * HOUR)
    await desk.submit(job)
    assert (await desk.snapshot(job.job_id)).run_at == desk.clock.now() + HOUR


async def test_a_strategy_that_changes_only_the_priority_keeps_the_instant() -> None:
    """The envelope may be older than its submit: its delay is no longer what is left to wait."""
    policy = Policy(schedule=lambda job, asked: Placement(asked.delay, 0))
    desk = Desk(policy_for=lambda job_type: policy)
    at = desk.clock.now() + 2 * HOUR
    job = make_job(scheduled_at=at, created_at=desk.clock.now() - HOUR)
    await desk.submit(job)
    placed = await desk.snapshot(job.job_id)
    assert (placed.priority, placed.run_at) == (0, at)


@pytest.mark.parametrize(("wanted", "kept"), [(-5, 0), (99, 3)])
async def test_a_strategy_cannot_place_a_job_outside_the_priorities(wanted: int, kept: int) -> None:
    desk = Desk(policy_for=lambda job_type: placed_at(Placement(timedelta(0), wanted)))
    job = make_job()
    await desk.submit(job)
    placed = await desk.snapshot(job.job_id)
    assert placed.priority == kept
    assert (await desk.claim()).job.job_id == job.job_id


@pytest.mark.parametrize("delay", [-HOUR, timedelta.max])
async def test_a_strategy_cannot_place_a_job_outside_of_time(delay: timedelta) -> None:
    desk = Desk(policy_for=lambda job_type: placed_at(Placement(delay, 2)))
    job = make_job()
    assert await desk.submit(job) == [Submitted(job.job_id)]


async def test_the_scheduling_strategy_places_a_retry() -> None:
    desk = Desk(
        policy_for=lambda job_type: Policy(
            schedule=lambda job, asked: Placement(asked.delay * 3, 3)
        )
    )
    run = await desk.start(make_job())
    await desk.settle(run, RETRYABLE)
    again = await desk.snapshot(run.job.job_id)
    assert (again.run_at, again.priority) == (desk.clock.now() + timedelta(seconds=6), 3)


async def test_every_type_has_its_own_policy() -> None:
    policies = {"slow": Policy(retry=Fixed(every=HOUR), hold_key=HOUR)}
    desk = Desk(policy_for=lambda job_type: policies.get(job_type, DEFAULT_POLICY))
    waits = {}
    for job_type in ("slow", "test"):
        run = await desk.start(make_job(job_type=job_type))
        settled = await desk.settle(run, RETRYABLE)
        waits[job_type] = settled.transition.delay
    assert waits == {"slow": HOUR, "test": timedelta(seconds=2)}
    run = await desk.start(make_job(job_type="slow"))
    assert (await desk.settle(run, Success())).transition.hold_key == HOUR


async def test_the_jitter_is_asked_for_every_ending() -> None:
    numbers = iter([0.0, 1.0])
    desk = Desk(jitter=lambda: next(numbers))
    runs = [await desk.start(make_job(n)) for n in range(2)]
    settled = await desk.manager.settle([Ending(run, RETRYABLE) for run in runs])
    assert [one.transition.delay.total_seconds() for one in settled] == [2.0, 2.5]


# -- settling -----------------------------------------------------------------------------------


async def test_runs_are_settled_one_by_one(desk: Desk) -> None:
    runs = [await desk.start(make_job(n)) for n in range(4)]
    stale = runs[0]
    await desk.settle(stale, Success())
    await desk.settle(runs[1], Snoozed(timedelta(0)))
    current = await desk.claim()
    settled = await desk.manager.settle(
        [
            Ending(runs[1], Success()),
            Ending(current, Success(b"1")),
            Ending(runs[2], PERMANENT),
            Ending(runs[3], RETRYABLE),
        ]
    )
    assert settled[0].result == Stale()
    assert [one.accepted for one in settled] == [False, True, True, True]
    assert [(await desk.snapshot(run.job.job_id)).status for run in runs] == [
        "Completed", "Completed", "Failed", "Queued",
    ]  # fmt: skip


class Raising:
    """A stranger's strategy with a bug in it."""

    attempts = 3

    def delay(self, attempt: int, *, jitter: float, job: Job, error: ErrorInfo) -> timedelta | None:
        raise ZeroDivisionError


async def test_a_strategy_that_raises_harms_no_other_run_and_leaves_none_running() -> None:
    policies = {"broken": Policy(retry=Raising())}
    desk = Desk(policy_for=lambda job_type: policies.get(job_type, DEFAULT_POLICY))
    broken, fine = [await desk.start(make_job(job_type=name)) for name in ("broken", "fine")]
    await desk.manager.settle([Ending(broken, RETRYABLE), Ending(fine, Success())])
    assert (await desk.snapshot(fine.job.job_id)).status is JobStatus.COMPLETED
    assert (await desk.snapshot(broken.job.job_id)).status is not JobStatus.RUNNING


@pytest.mark.parametrize("outcome", [RETRYABLE, Snoozed(timedelta(0))], ids=["retry", "snooze"])
async def test_a_cancel_that_the_worker_did_not_know_of_is_decided_anew(
    desk: Desk, outcome: Any
) -> None:
    run = await desk.start(make_job())
    await desk.manager.cancel([run.job.job_id], tenant_id=TENANT, actor="op")
    settled = await desk.settle(run, outcome)
    assert settled.accepted
    assert settled.transition.to is JobStatus.CANCELLED
    assert (await desk.snapshot(run.job.job_id)).status is JobStatus.CANCELLED


async def test_a_handler_that_returns_normally_has_completed_cancel_or_not(desk: Desk) -> None:
    run = await desk.start(make_job())
    await desk.manager.cancel([run.job.job_id], tenant_id=TENANT, actor="op")
    assert (await desk.settle(run, Success())).transition.to is JobStatus.COMPLETED


async def test_a_follow_up_is_stored_with_the_completion(desk: Desk) -> None:
    run = await desk.start(make_job())
    child = make_job("child", parent_job_id=run.job.job_id)
    prepared = desk.manager.submitter.prepare(Submission(child, delay=HOUR))
    assert (await desk.settle(run, Success(follow_ups=(prepared,)))).accepted
    stored = await desk.snapshot(child.job_id)
    assert stored.run_at == desk.clock.now() + HOUR
    assert stored.job.parent_job_id == run.job.job_id


async def test_a_follow_up_is_held_to_the_contract(desk: Desk) -> None:
    with pytest.raises(InvalidEnvelope):
        desk.manager.submitter.prepare(Submission(make_job(priority=7)))


async def test_a_follow_up_is_placed_like_any_job() -> None:
    desk = Desk(policy_for=lambda job_type: placed_at(Placement(HOUR, 1)))
    prepared = desk.manager.submitter.prepare(Submission(make_job()))
    assert (prepared.delay, prepared.job.priority) == (HOUR, 1)
    assert prepared.fingerprint == prepared.job.fingerprint


async def test_a_follow_up_that_clashes_fails_the_job_and_writes_nothing_else(desk: Desk) -> None:
    taken = make_job("secret", job_type="child", idempotency_key="k")
    await desk.submit(taken)
    run = await desk.start(make_job())
    fine = make_job("fine", job_type="child")
    clash = make_job("other", job_type="child", idempotency_key="k")
    follow_ups = tuple(desk.manager.submitter.prepare(Submission(job)) for job in (fine, clash))
    settled = await desk.settle(run, Success(b'"done"', follow_ups=follow_ups))
    assert settled.accepted
    assert (settled.transition.to, settled.transition.reason) == (
        JobStatus.FAILED,
        Reason.PERMANENT_ERROR,
    )
    error = settled.transition.error
    assert error is not None
    assert error.code == Code.FOLLOW_UP_CONFLICT
    assert error.message == "A follow-up job of this job clashes with something that exists."
    assert str(taken.job_id) not in error.message + error.detail
    assert await desk.store.get([fine.job_id, clash.job_id], tenant_id=None) == [None, None]
    last = (await desk.snapshot(run.job.job_id)).last
    assert last is not None
    assert last.result is None


async def test_a_record_that_moved_fails_the_job_too(desk: Desk) -> None:
    await desk.store.write_records([RecordWrite("space", "k", b"1")])
    run = await desk.start(make_job())
    settled = await desk.settle(run, Success(records=(RecordWrite("space", "k", b"2", 0),)))
    assert settled.transition.to is JobStatus.FAILED
    error = settled.transition.error
    assert error is not None
    assert error.code == Code.FOLLOW_UP_CONFLICT
    assert error.message.startswith("A record of this job clashes")
    assert "space/k" in error.detail


@pytest.mark.parametrize(
    ("given", "shown"),
    [(50.0, 50.0), (-1.0, 0.0), (101.0, 100.0), (float("nan"), 0.0), (float("inf"), 100.0)],
)
async def test_progress_is_from_0_to_100(desk: Desk, given: float, shown: float) -> None:
    run = await desk.start(make_job())
    await desk.manager.progress([Progress(run.ref, given, "a\0" + "x" * 1000)])
    current = (await desk.snapshot(run.job.job_id)).run
    assert current is not None
    assert current.percent == shown
    assert len(current.phase) == 256
    assert "\0" not in current.phase


async def test_a_session_may_have_any_name(desk: Desk) -> None:
    await desk.submit(make_job())
    name = "\0\ud800" * 500
    await register_sessions(desk.store, storable(name, LABEL_LIMIT))
    (run,) = await desk.manager.claim(name, uuid4(), lane_requests(), lease=LEASE)
    assert len(run.session) == 256
    renewal = await desk.manager.renew(name, [run.ref], lease=LEASE)
    assert renewal.lost == frozenset()


# -- operating ----------------------------------------------------------------------------------


async def cancel(desk: Desk, *job_ids: UUID, **fields: Any) -> list[Acted | GantlineError]:
    known = {"tenant_id": TENANT, "actor": "op"}
    return await desk.manager.cancel(job_ids, **(known | fields))


async def redrive(desk: Desk, *job_ids: UUID, **fields: Any) -> list[Acted | GantlineError]:
    known = {"tenant_id": TENANT, "actor": "op"}
    return await desk.manager.redrive(job_ids, **(known | fields))


Action = Callable[..., Any]


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        (JobStatus.QUEUED, JobStatus.CANCELLED, True),
        (JobStatus.RUNNING, JobStatus.RUNNING, True),
        (JobStatus.CANCELLED, JobStatus.CANCELLED, False),
    ],
)
async def test_what_a_cancel_answers(
    desk: Desk, before: JobStatus, after: JobStatus, changed: bool
) -> None:
    job_id = await desk.bring_to(before)
    version = (await desk.snapshot(job_id)).version
    (acted,) = await cancel(desk, job_id)
    assert acted == Acted(job_id, after, version + changed, changed)
    now = await desk.snapshot(job_id)
    assert (now.status, now.version) == (after, version + changed)


async def test_a_running_job_is_asked_to_stop_only_once(desk: Desk) -> None:
    job_id = await desk.bring_to(JobStatus.RUNNING)
    (first,), (second,) = await cancel(desk, job_id), await cancel(desk, job_id)
    assert isinstance(first, Acted)
    assert isinstance(second, Acted)
    assert (first.changed, second.changed) == (True, False)
    assert second.version == first.version


@pytest.mark.parametrize("status", sorted(REDRIVABLE))
async def test_a_redrive_queues_the_same_job_again(desk: Desk, status: JobStatus) -> None:
    job_id = await desk.bring_to(status)
    version = (await desk.snapshot(job_id)).version
    (acted,) = await redrive(desk, job_id)
    assert acted == Acted(job_id, JobStatus.QUEUED, version + 1, changed=True)
    assert (await desk.snapshot(job_id)).attempt == 0
    last = (await desk.store.history(job_id, tenant_id=TENANT))[-1]
    assert (last.event, last.actor) == (Event.REDRIVEN, "op")
    assert (await desk.claim()).attempt == 1


@pytest.mark.parametrize(
    ("action", "status"),
    [
        (cancel, JobStatus.COMPLETED),
        (cancel, JobStatus.FAILED),
        (cancel, JobStatus.POISONED),
        (redrive, JobStatus.QUEUED),
        (redrive, JobStatus.RUNNING),
        (redrive, JobStatus.COMPLETED),
    ],
)
async def test_what_a_status_does_not_allow_is_refused_and_changes_nothing(
    desk: Desk, action: Action, status: JobStatus
) -> None:
    job_id = await desk.bring_to(status)
    before = await desk.snapshot(job_id)
    (answer,) = await action(desk, job_id)
    assert isinstance(answer, IllegalTransition)
    assert status.value in str(answer)
    assert await desk.snapshot(job_id) == before


@pytest.mark.parametrize("status", sorted(TERMINAL))
async def test_an_ended_job_can_be_deleted(desk: Desk, status: JobStatus) -> None:
    job_id = await desk.bring_to(status)
    (answer,) = await desk.manager.delete([job_id], tenant_id=TENANT)
    assert isinstance(answer, Applied)
    assert await desk.store.get([job_id], tenant_id=None) == [None]
    assert await desk.store.history(job_id, tenant_id=None) == []


@pytest.mark.parametrize("status", [JobStatus.QUEUED, JobStatus.RUNNING])
async def test_a_live_job_cannot_be_deleted(desk: Desk, status: JobStatus) -> None:
    job_id = await desk.bring_to(status)
    before = await desk.snapshot(job_id)
    (answer,) = await desk.manager.delete([job_id], tenant_id=TENANT)
    assert isinstance(answer, IllegalTransition)
    assert status.value in str(answer)
    assert await desk.snapshot(job_id) == before


async def delete(desk: Desk, *job_ids: UUID, **fields: Any) -> list[Applied | GantlineError]:
    return await desk.manager.delete(job_ids, **({"tenant_id": TENANT} | fields))


@pytest.mark.parametrize("action", [cancel, redrive, delete])
async def test_an_unknown_job_is_not_found(desk: Desk, action: Action) -> None:
    (answer,) = await action(desk, NOBODY)
    assert isinstance(answer, JobNotFound)
    assert answer.job_id == NOBODY


@pytest.mark.parametrize("status", JobStatus)
@pytest.mark.parametrize("action", [cancel, redrive, delete])
async def test_the_job_of_another_tenant_is_not_found_and_not_changed(
    desk: Desk, action: Action, status: JobStatus
) -> None:
    job_id = await desk.bring_to(status)
    before = await desk.snapshot(job_id)
    (answer,) = await action(desk, job_id, tenant_id="other")
    (unknown,) = await action(desk, NOBODY, tenant_id="other")
    assert isinstance(answer, JobNotFound)
    assert str(answer).replace(str(job_id), "") == str(unknown).replace(str(NOBODY), "")
    assert await desk.snapshot(job_id) == before
    assert await desk.store.get([job_id], tenant_id="other") == [None]
    assert await desk.store.history(job_id, tenant_id="other") == []


@pytest.mark.parametrize(
    ("action", "status"), [(cancel, JobStatus.QUEUED), (redrive, JobStatus.FAILED)]
)
async def test_an_action_on_an_older_version_is_refused_and_changes_nothing(
    desk: Desk, action: Action, status: JobStatus
) -> None:
    job_id = await desk.bring_to(status)
    before = await desk.snapshot(job_id)
    (answer,) = await action(desk, job_id, version=before.version + 1)
    assert isinstance(answer, VersionMismatch)
    assert await desk.snapshot(job_id) == before
    (acted,) = await action(desk, job_id, version=before.version)
    assert isinstance(acted, Acted)
    assert acted.changed


async def test_many_are_acted_on_in_one_call_each_with_its_own_answer(desk: Desk) -> None:
    running = await desk.bring_to(JobStatus.RUNNING)
    completed = await desk.bring_to(JobStatus.COMPLETED)
    queued = await desk.bring_to(JobStatus.QUEUED)
    answers = await cancel(desk, completed, queued, NOBODY, running)
    kinds = [type(answer) for answer in answers]
    assert kinds == [IllegalTransition, Acted, JobNotFound, Acted]
    assert [answer.job_id for answer in answers if isinstance(answer, Acted)] == [queued, running]


@pytest.mark.parametrize(
    ("action", "status"),
    [(cancel, JobStatus.QUEUED), (cancel, JobStatus.RUNNING), (redrive, JobStatus.FAILED)],
)
async def test_a_job_named_twice_is_acted_on_once(
    desk: Desk, action: Action, status: JobStatus
) -> None:
    job_id = await desk.bring_to(status)
    rows = len(await desk.store.history(job_id, tenant_id=TENANT))
    first, second = await action(desk, job_id, job_id)
    assert isinstance(first, Acted)
    assert first == second
    assert len(await desk.store.history(job_id, tenant_id=TENANT)) == rows + 1


async def test_a_job_named_twice_is_deleted_and_said_to_be(desk: Desk) -> None:
    job_id = await desk.bring_to(JobStatus.FAILED)
    answers = await delete(desk, job_id, job_id)
    assert isinstance(answers[0], Applied)
    assert await desk.store.get([job_id], tenant_id=None) == [None]


async def test_a_redrive_whose_key_was_taken_meanwhile_is_a_conflict(desk: Desk) -> None:
    job_id = await desk.bring_to(JobStatus.FAILED, idempotency_key="k")
    newer = make_job("newer", idempotency_key="k")
    await desk.submit(newer)
    before = await desk.snapshot(job_id)
    (answer,) = await redrive(desk, job_id)
    assert isinstance(answer, KeyTaken)
    assert answer.code == "IDEMPOTENCY_CONFLICT"
    assert answer.holder == newer.job_id
    assert str(newer.job_id) not in str(answer)
    assert "has the idempotency key of this one by now" in str(answer)
    assert "payload" not in str(answer)
    assert await desk.snapshot(job_id) == before


# -- races --------------------------------------------------------------------------------------


async def test_a_cancel_that_meets_a_claim_asks_the_run(desk: Desk) -> None:
    job_id = await desk.bring_to(JobStatus.QUEUED)
    claimed: list[Run] = []

    async def claim_first(verb: str, call: Call) -> Any:
        if verb == "apply" and not claimed:
            claimed.append(await desk.claim())
        return await call()

    manager = JobManager(intercepted(desk.store, claim_first))
    (acted,) = await manager.cancel([job_id], tenant_id=TENANT, actor="op")
    assert isinstance(acted, Acted)
    assert (acted.status, acted.changed) == (JobStatus.RUNNING, True)
    current = (await desk.snapshot(job_id)).run
    assert current is not None
    assert current.cancel_requested


async def test_an_action_on_a_version_that_is_overtaken_is_refused(desk: Desk) -> None:
    job_id = await desk.bring_to(JobStatus.QUEUED)

    async def claim_first(verb: str, call: Call) -> Any:
        if verb == "apply":
            await desk.claim()
        return await call()

    manager = JobManager(intercepted(desk.store, claim_first))
    (answer,) = await manager.cancel([job_id], tenant_id=TENANT, actor="op", version=1)
    assert isinstance(answer, VersionMismatch)
    current = (await desk.snapshot(job_id)).run
    assert current is not None
    assert not current.cancel_requested


async def test_a_running_job_that_moved_on_is_not_asked_to_stop_by_its_old_version(
    desk: Desk,
) -> None:
    run = await desk.start(make_job())

    async def report_first(verb: str, call: Call) -> Any:
        if verb == "apply":
            await desk.manager.progress([Progress(run.ref, 50.0)])
        return await call()

    manager = JobManager(intercepted(desk.store, report_first))
    (answer,) = await manager.cancel(
        [run.job.job_id], tenant_id=TENANT, actor="op", version=run.version
    )
    assert isinstance(answer, VersionMismatch)
    current = (await desk.snapshot(run.job.job_id)).run
    assert current is not None
    assert not current.cancel_requested


async def test_a_job_that_never_stands_still_is_given_up_in_the_end(desk: Desk) -> None:
    job_id = await desk.bring_to(JobStatus.QUEUED)
    held: list[Run] = []

    async def flip(verb: str, call: Call) -> Any:
        if verb == "apply" and held:
            await desk.settle(held.pop(), Snoozed(timedelta(0)))
        elif verb == "apply":
            held.append(await desk.claim())
        return await call()

    manager = JobManager(intercepted(desk.store, flip))
    (answer,) = await manager.cancel([job_id], tenant_id=TENANT, actor="op")
    assert isinstance(answer, VersionMismatch)
    assert answer.next_step == "Try again."


async def test_a_job_that_is_redriven_while_it_is_deleted_stays(desk: Desk) -> None:
    job_id = await desk.bring_to(JobStatus.FAILED)

    async def redrive_first(verb: str, call: Call) -> Any:
        if verb == "delete":
            await redrive(desk, job_id)
        return await call()

    manager = JobManager(intercepted(desk.store, redrive_first))
    (answer,) = await manager.delete([job_id], tenant_id=TENANT)
    assert isinstance(answer, VersionMismatch)
    assert (await desk.snapshot(job_id)).status is JobStatus.QUEUED


async def test_a_job_that_failed_again_while_it_is_deleted_stays(desk: Desk) -> None:
    job_id = await desk.bring_to(JobStatus.FAILED)

    async def fail_again(verb: str, call: Call) -> Any:
        if verb == "delete":
            await redrive(desk, job_id)
            await desk.settle(await desk.claim(), PERMANENT)
        return await call()

    manager = JobManager(intercepted(desk.store, fail_again))
    (answer,) = await manager.delete([job_id], tenant_id=TENANT)
    assert isinstance(answer, VersionMismatch)
    assert (await desk.snapshot(job_id)).status is JobStatus.FAILED


async def test_a_job_that_is_deleted_while_it_is_acted_on_is_not_found(desk: Desk) -> None:
    job_id = await desk.bring_to(JobStatus.FAILED)

    async def delete_first(verb: str, call: Call) -> Any:
        if verb in ("apply", "delete"):
            await delete(desk, job_id)
        return await call()

    manager = JobManager(intercepted(desk.store, delete_first))
    (answer,) = await manager.redrive([job_id], tenant_id=TENANT, actor="op")
    assert isinstance(answer, JobNotFound)
    (answer,) = await manager.redrive([job_id], tenant_id=TENANT, actor="op")
    assert isinstance(answer, JobNotFound)


async def test_a_cancel_between_the_end_of_a_run_and_its_settlement_is_honoured(
    desk: Desk,
) -> None:
    """The last attempt fails and a cancel arrives meanwhile: Cancelled, not Poisoned."""
    run = await desk.start(make_job(max_attempts=1))

    async def cancel_first(verb: str, call: Call) -> Any:
        if verb == "apply":
            await cancel(desk, run.job.job_id)
        return await call()

    manager = JobManager(intercepted(desk.store, cancel_first))
    (settled,) = await manager.settle([Ending(run, RETRYABLE)])
    assert settled.accepted
    assert (await desk.snapshot(run.job.job_id)).status is JobStatus.CANCELLED


async def test_an_action_never_lands_on_another_tenant_who_took_the_id(desk: Desk) -> None:
    """The job is read, then deleted, and its id used by another tenant: then we write."""
    job_id = await desk.bring_to(JobStatus.QUEUED)

    async def change_hands(verb: str, call: Call) -> Any:
        if verb == "apply":
            await desk.manager.cancel([job_id], tenant_id=TENANT, actor="op")
            await desk.manager.delete([job_id], tenant_id=TENANT)
            await desk.submit(make_job(job_id=job_id, tenant_id="other"))
        return await call()

    manager = JobManager(intercepted(desk.store, change_hands))
    (answer,) = await manager.cancel([job_id], tenant_id=TENANT, actor="op")
    assert isinstance(answer, JobNotFound)
    job = await desk.snapshot(job_id)
    assert (job.job.tenant_id, job.status) == ("other", JobStatus.QUEUED)

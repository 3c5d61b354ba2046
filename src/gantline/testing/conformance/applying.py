"""Rules for apply: a transition is written as a whole, under its guard, once."""

from datetime import timedelta
from uuid import uuid4

import msgspec

from gantline.contract.outcome import (
    LEASE_EXPIRED,
    ErrorInfo,
    Released,
    Snoozed,
    Stopped,
    Success,
    TypeDisabled,
    Unreadable,
)
from gantline.contract.policy import DEFAULT_POLICY
from gantline.contract.query import JobFilter
from gantline.contract.records import RecordWrite
from gantline.contract.results import Applied, CancelPending, Conflict, NotFound, Stale
from gantline.contract.snapshot import Run
from gantline.contract.status import Event, JobStatus, Reason
from gantline.contract.submission import DedupeKey, KeyKind
from gantline.contract.transition import StateGuard, Transition
from gantline.testing.conformance.bench import HOUR, PERMANENT, RETRYABLE, Bench
from gantline.testing.conformance.rule import rule
from gantline.testing.factories import make_new


def completed(run: Run, **cargo: object) -> Transition:
    return Transition.completed(run, Success(**cargo), hold_key=DEFAULT_POLICY.hold_key)  # type: ignore[arg-type]  # cargo is spelt by the rules


@rule
async def success_completes_with_its_result(bench: Bench) -> None:
    run = await bench.start()
    bench.clock.advance(1)
    assert await bench.store.apply([completed(run, result=b'{"pages":3}')]) == [Applied(3)]
    job = await bench.snapshot(run.job.job_id)
    assert (job.status, job.version, job.attempt, job.run) == (JobStatus.COMPLETED, 3, 1, None)
    assert job.last is not None
    assert job.last.result == b'{"pages":3}'
    assert (job.started_at, job.completed_at) == (run.started_at, bench.clock.now())


@rule
async def a_permanent_error_fails_on_any_attempt(bench: Bench) -> None:
    run = await bench.start(max_attempts=1)
    await bench.finish(run, PERMANENT)
    job = await bench.snapshot(run.job.job_id)
    assert job.status is JobStatus.FAILED
    assert job.last is not None
    assert (job.last.reason, job.last.error) == (Reason.PERMANENT_ERROR, PERMANENT.error)


@rule
async def a_retryable_error_waits_and_comes_again(bench: Bench) -> None:
    run = await bench.start()
    await bench.finish(run, RETRYABLE)
    job = await bench.snapshot(run.job.job_id)
    assert (job.status, job.attempt) == (JobStatus.QUEUED, 1)
    assert job.run_at == bench.clock.now() + timedelta(seconds=2)
    assert await bench.claim() == []
    bench.clock.advance(2)
    again = (await bench.claim())[0]
    assert (again.attempt, again.fence) == (2, 2)
    assert again.token != run.token


@rule
async def the_last_retryable_error_poisons(bench: Bench) -> None:
    job_id, _ = await bench.bring_to(JobStatus.POISONED)
    job = await bench.snapshot(job_id)
    assert job.last is not None
    assert (job.last.reason, job.attempt) == (Reason.ATTEMPTS_EXHAUSTED, 3)
    rows = await bench.store.history(job_id, tenant_id=None)
    assert [row.event for row in rows] == [Event.RETRIED, Event.RETRIED, Event.POISONED]


@rule
async def a_snooze_gives_the_attempt_back(bench: Bench) -> None:
    run = await bench.start()
    await bench.finish(run, Snoozed(HOUR))
    job = await bench.snapshot(run.job.job_id)
    assert (job.status, job.attempt, job.snoozes) == (JobStatus.QUEUED, 0, 1)
    assert job.run_at == bench.clock.now() + HOUR


@rule
async def each_snooze_is_counted(bench: Bench) -> None:
    job_id = await bench.submit()
    for snoozes in (1, 2, 3):
        (run,) = await bench.claim()
        await bench.finish(run, Snoozed(timedelta(0)))
        job = await bench.snapshot(job_id)
        assert (job.snoozes, job.attempt) == (snoozes, 0)


@rule
async def a_shutdown_gives_the_attempt_back_at_once(bench: Bench) -> None:
    run = await bench.start()
    await bench.finish(run, Released())
    job = await bench.snapshot(run.job.job_id)
    assert (job.status, job.attempt, job.crashes, job.snoozes) == (JobStatus.QUEUED, 0, 0, 0)
    assert (await bench.claim())[0].attempt == 1


@rule
async def an_unreadable_job_is_poisoned(bench: Bench) -> None:
    run = await bench.start()
    await bench.finish(run, Unreadable("byte 3"))
    job = await bench.snapshot(run.job.job_id)
    assert job.status is JobStatus.POISONED
    assert job.last is not None
    assert job.last.reason == Reason.INVALID_FORMAT


@rule
async def a_disabled_type_fails_and_can_be_redriven(bench: Bench) -> None:
    run = await bench.start()
    await bench.finish(run, TypeDisabled())
    assert await bench.status(run.job.job_id) is JobStatus.FAILED
    assert (await bench.redrive(run.job.job_id)).status is JobStatus.QUEUED


@rule
async def a_job_nobody_handles_is_poisoned_without_a_run(bench: Bench) -> None:
    job = await bench.snapshot(await bench.submit())
    error = ErrorInfo("NO_HANDLER", "none")
    assert await bench.store.apply([Transition.unhandled(job, error)]) == [Applied(2)]
    assert await bench.status(job.job.job_id) is JobStatus.POISONED
    assert await bench.claim() == []


@rule
async def a_queued_job_is_cancelled_at_once(bench: Bench) -> None:
    job_id = await bench.submit()
    assert (await bench.cancel(job_id)).status is JobStatus.CANCELLED
    assert await bench.claim() == []
    rows = await bench.store.history(job_id, tenant_id=None)
    assert [(row.event, row.actor) for row in rows] == [(Event.CANCELLED, "op")]


@rule
async def a_running_job_is_asked_to_stop(bench: Bench) -> None:
    run = await bench.start()
    acted = await bench.cancel(run.job.job_id)
    assert acted.status is JobStatus.RUNNING
    job = await bench.snapshot(run.job.job_id)
    assert job.run is not None
    assert (job.run.cancel_requested, job.version) == (True, 3)
    await bench.finish(run, Stopped())
    assert await bench.status(run.job.job_id) is JobStatus.CANCELLED
    rows = await bench.store.history(run.job.job_id, tenant_id=None)
    assert [row.event for row in rows] == [Event.CANCEL_REQUESTED, Event.CANCELLED]


@rule
async def a_handler_that_returns_in_spite_of_a_cancel_completes(bench: Bench) -> None:
    run = await bench.start()
    await bench.cancel(run.job.job_id)
    await bench.finish(run)
    assert await bench.status(run.job.job_id) is JobStatus.COMPLETED


@rule
async def a_cancel_that_arrives_before_the_retry_wins(bench: Bench) -> None:
    """Decided before the cancel was known; the store must say so instead of queueing again."""
    run = await bench.start()
    await bench.cancel(run.job.job_id)
    retried = Transition.retried(run, RETRYABLE.error, delay=timedelta(0), priority=2)
    assert await bench.store.apply([retried]) == [CancelPending()]
    await bench.finish(run, RETRYABLE)
    assert await bench.status(run.job.job_id) is JobStatus.CANCELLED


@rule
async def a_redrive_starts_afresh_but_keeps_fence_and_history(bench: Bench) -> None:
    job_id, run = await bench.bring_to(JobStatus.POISONED)
    await bench.redrive(job_id)
    job = await bench.snapshot(job_id)
    assert (job.status, job.attempt, job.fence) == (JobStatus.QUEUED, 0, run.fence)
    again = (await bench.claim())[0]
    assert (again.attempt, again.fence) == (1, run.fence + 1)
    assert len(await bench.store.history(job_id, tenant_id=None)) == 4


@rule
async def an_operator_who_read_an_older_version_is_refused(bench: Bench) -> None:
    job_id, _ = await bench.bring_to(JobStatus.FAILED)
    job = await bench.snapshot(job_id)
    older = msgspec.structs.replace(job, version=job.version - 1)
    assert await bench.store.apply([Transition.redriven(older, actor="op")]) == [Stale()]
    assert await bench.status(job_id) is JobStatus.FAILED


@rule
async def an_unknown_job_is_not_found(bench: Bench) -> None:
    run = await bench.start()
    stranger = msgspec.structs.replace(run, job=msgspec.structs.replace(run.job, job_id=uuid4()))
    assert await bench.store.apply([completed(stranger)]) == [NotFound()]
    guard = StateGuard(JobStatus.COMPLETED, run.job.tenant_id)
    assert await bench.store.delete([(uuid4(), guard)]) == [NotFound()]


@rule
async def a_repeated_apply_is_applied_once(bench: Bench) -> None:
    run = await bench.start()
    for _ in range(3):
        assert await bench.store.apply([completed(run, result=b"1")]) == [Applied(3)]
    assert len(await bench.store.history(run.job.job_id, tenant_id=None)) == 1
    assert (await bench.recount())["Completed"] == 1


@rule
async def a_repeat_is_answered_with_the_version_of_the_job(bench: Bench) -> None:
    await bench.finish(await bench.start(), RETRYABLE)
    bench.clock.advance(HOUR)
    (run,) = await bench.claim()
    for _ in range(2):
        assert await bench.store.apply([completed(run)]) == [Applied(5)]


@rule
async def the_same_job_twice_in_one_call_is_applied_once(bench: Bench) -> None:
    run = await bench.start()
    failed = Transition.failed(run, PERMANENT.error, Reason.PERMANENT_ERROR)
    answers = await bench.store.apply([completed(run), completed(run), failed])
    assert answers == [Applied(3), Applied(3), Stale()]
    assert await bench.status(run.job.job_id) is JobStatus.COMPLETED


@rule
async def another_end_of_the_same_run_is_stale(bench: Bench) -> None:
    run = await bench.start()
    await bench.finish(run)
    failed = Transition.failed(run, PERMANENT.error, Reason.PERMANENT_ERROR)
    assert await bench.store.apply([failed]) == [Stale()]
    assert await bench.status(run.job.job_id) is JobStatus.COMPLETED


@rule
async def follow_ups_are_stored_with_the_completion(bench: Bench) -> None:
    run = await bench.start()
    next_jobs = (make_new("a", job_type="next"), make_new("b", job_type="next", delay=HOUR))
    assert await bench.store.apply([completed(run, follow_ups=next_jobs)]) == [Applied(3)]
    started = await bench.claim("next")
    assert [run.job.job_id for run in started] == [next_jobs[0].job.job_id]
    assert (await bench.recount())["Queued"] == 1


@rule
async def a_follow_up_that_exists_counts_as_done(bench: Bench) -> None:
    existing = await bench.submit("x", job_type="next", idempotency_key="k")
    run = await bench.start()
    again = make_new("x", job_type="next", idempotency_key="k")
    assert await bench.store.apply([completed(run, follow_ups=(again,))]) == [Applied(3)]
    assert await bench.store.get([again.job.job_id], tenant_id=None) == [None]
    assert await bench.status(existing) is JobStatus.QUEUED


@rule
async def a_clashing_follow_up_stops_the_whole_transition(bench: Bench) -> None:
    await bench.submit("x", job_type="next", idempotency_key="k")
    run = await bench.start()
    fine = make_new("fine", job_type="next")
    clash = make_new("other", job_type="next", idempotency_key="k")
    answers = await bench.store.apply([completed(run, follow_ups=(fine, clash))])
    assert answers == [Conflict(by=KeyKind.JOB)]
    assert await bench.store.get([fine.job.job_id], tenant_id=None) == [None]
    assert await bench.status(run.job.job_id) is JobStatus.RUNNING
    settled = await bench.settle(run, Success(follow_ups=(fine, clash)))
    assert settled.transition.to is JobStatus.FAILED


@rule
async def two_follow_ups_that_clash_with_each_other_are_a_conflict(bench: Bench) -> None:
    run = await bench.start()
    pair = tuple(make_new(n, job_type="next", idempotency_key="k") for n in (1, 2))
    assert await bench.store.apply([completed(run, follow_ups=pair)]) == [Conflict(by=KeyKind.JOB)]
    assert (await bench.recount())["Queued"] == 0


@rule
async def a_stale_run_brings_no_follow_up(bench: Bench) -> None:
    run = await bench.start()
    await bench.reap_expired()
    new = make_new("late", job_type="next")
    write = RecordWrite("space", "key", b"1")
    once = DedupeKey(KeyKind.ONCE, "default", "test", "done", b"", HOUR)
    late = completed(run, follow_ups=(new,), records=(write,), once=(once,))
    assert await bench.store.apply([late]) == [Stale()]
    assert await bench.store.get([new.job.job_id], tenant_id=None) == [None]
    assert await bench.store.read_records("space") == []
    assert await bench.store.held([once]) == [None]


@rule
async def records_are_written_with_the_completion(bench: Bench) -> None:
    run = await bench.start()
    write = RecordWrite("space", "key", b"1", expected=0)
    assert await bench.store.apply([completed(run, records=(write,))]) == [Applied(3)]
    assert [record.value for record in await bench.store.read_records("space")] == [b"1"]


@rule
async def a_record_that_moved_stops_the_whole_transition(bench: Bench) -> None:
    await bench.store.write_records([RecordWrite("space", "key", b"theirs")])
    run = await bench.start()
    new = make_new("next", job_type="next")
    write = RecordWrite("space", "key", b"ours", expected=7)
    answers = await bench.store.apply([completed(run, records=(write,), follow_ups=(new,))])
    assert answers == [Conflict(by="space/key")]
    assert await bench.store.get([new.job.job_id], tenant_id=None) == [None]
    assert await bench.status(run.job.job_id) is JobStatus.RUNNING


@rule
async def of_several_records_that_moved_the_first_is_named(bench: Bench) -> None:
    """The first of the transition, whatever the order in which a store looks at them."""
    for key in ("a", "b"):
        await bench.store.write_records([RecordWrite("space", key, b"theirs")])
    run = await bench.start()
    writes = (
        RecordWrite("space", "c", b"ours", expected=0),
        RecordWrite("space", "b", b"ours", expected=0),
        RecordWrite("space", "a", b"ours", expected=7),
    )
    answers = await bench.store.apply([completed(run, records=writes)])
    assert answers == [Conflict(by="space/b")]


@rule
async def what_has_expired_does_not_stop_a_transition(bench: Bench) -> None:
    """Neither a record that had a time to live, nor the key of a job that completed long ago."""
    write = RecordWrite("space", "key", b"1", 0, time_to_live=HOUR)
    follow_up = make_new("old", idempotency_key="key")
    await bench.store.apply([completed(await bench.start(), records=(write,))])
    await bench.store.insert([follow_up])
    (run,) = await bench.claim()
    await bench.store.apply([Transition.completed(run, Success(), hold_key=HOUR)])
    again = make_new("new", idempotency_key="key")
    other = make_new("other", idempotency_key="other key")
    run = await bench.start()
    done = completed(run, records=(RecordWrite("space", "key", b"2", 0),))
    assert await bench.store.apply([done]) == [Conflict(by="space/key")]
    followed = completed(run, follow_ups=(other, again))
    assert await bench.store.apply([followed]) == [Conflict(by=KeyKind.JOB)]
    bench.clock.advance(HOUR)
    write = RecordWrite("space", "key", b"2", 0)
    done = completed(run, records=(write,), follow_ups=(other, again))
    assert await bench.store.apply([done]) == [Applied(3)]
    assert None not in await bench.store.get([other.job.job_id, again.job.job_id], tenant_id=None)


@rule
async def a_once_mark_is_held_for_its_time(bench: Bench) -> None:
    run = await bench.start()
    once = DedupeKey(KeyKind.ONCE, "default", "test", "mail-7", b"", HOUR)
    await bench.store.apply([completed(run, once=(once,))])
    assert await bench.store.held([once]) == [run.job.job_id]
    bench.clock.advance(HOUR)
    assert await bench.store.held([once]) == [None]


@rule
async def a_mark_of_another_job_takes_the_place_of_the_first(bench: Bench) -> None:
    await bench.submit_many(2)
    first, second = await bench.claim()
    once = DedupeKey(KeyKind.ONCE, "default", "test", "mail-7", b"", HOUR)
    await bench.store.apply([completed(first, once=(once,))])
    bench.clock.advance(HOUR / 2)
    assert await bench.store.apply([completed(second, once=(once,))]) == [Applied(3)]
    bench.clock.advance(HOUR / 2)
    assert await bench.store.held([once]) == [second.job.job_id]
    bench.clock.advance(HOUR / 2)
    assert await bench.store.held([once]) == [None]


@rule
async def a_crash_and_an_end_in_one_call_are_both_written(bench: Bench) -> None:
    await bench.submit_many(2)
    lost, kept = await bench.claim()
    await bench.let_leases_expire()
    crashed = Transition.crashed(lost, LEASE_EXPIRED, delay=timedelta(0))
    failed = Transition.failed(kept, PERMANENT.error, Reason.PERMANENT_ERROR)
    assert await bench.store.apply([crashed, failed]) == [Applied(3)] * 2


@rule
async def a_retry_may_change_the_priority(bench: Bench) -> None:
    run = await bench.start()
    retried = Transition.retried(run, RETRYABLE.error, delay=timedelta(0), priority=0)
    await bench.store.apply([retried])
    await bench.submit(priority=1)
    again = (await bench.claim(limit=1))[0]
    assert (again.job.job_id, again.priority) == (run.job.job_id, 0)


@rule
async def a_cancel_decided_long_ago_keeps_the_newer_counters(bench: Bench) -> None:
    job_id = await bench.submit()
    old = await bench.snapshot(job_id)
    await bench.claim()
    await bench.reap_expired()
    cancelled = Transition.cancelled(old, actor="op", version=None)
    assert isinstance((await bench.store.apply([cancelled]))[0], Applied)
    job = await bench.snapshot(job_id)
    assert (job.status, job.crashes) == (JobStatus.CANCELLED, 1)


@rule
async def two_follow_ups_of_one_id_and_different_tenants_are_a_conflict(bench: Bench) -> None:
    run = await bench.start()
    pair = tuple(make_new(1, tenant_id=name) for name in ("a", "b"))
    twin = msgspec.structs.replace(
        pair[1], job=msgspec.structs.replace(pair[1].job, job_id=pair[0].job.job_id)
    )
    assert await bench.store.apply([completed(run, follow_ups=(pair[0], twin))]) == [Conflict()]


@rule
async def a_span_beyond_all_time_is_the_end_of_time(bench: Bench) -> None:
    """Whatever a caller asks for, a job must stay readable and must be able to end."""
    ever = timedelta.max
    new = make_new(1, delay=ever)
    assert await bench.store.insert([new]) == [Applied(1)]
    assert (await bench.snapshot(new.job.job_id)).run_at is not None
    run = await bench.start(2, idempotency_key="key")
    await bench.store.renew(run.session, [run.ref], lease=ever)
    write = RecordWrite("space", "key", b"1", time_to_live=ever)
    once = DedupeKey(KeyKind.ONCE, "default", "test", "mark", b"", ever)
    done = Transition.completed(run, Success(records=(write,), once=(once,)), hold_key=ever)
    assert await bench.store.apply([done]) == [Applied(3)]
    assert [record.value for record in await bench.store.read_records("space")] == [b"1"]
    assert (await bench.store.find(JobFilter(), limit=10)).next is None


@rule
async def an_unknown_job_does_not_stop_the_deletion_of_others(bench: Bench) -> None:
    job_id, _ = await bench.bring_to(JobStatus.FAILED)
    job = await bench.snapshot(job_id)
    guard = StateGuard(job.status, job.job.tenant_id)
    answers = await bench.store.delete([(uuid4(), guard), (job_id, guard)])
    assert answers == [NotFound(), Applied(job.version)]


@rule
async def a_job_that_is_named_twice_is_deleted_once(bench: Bench) -> None:
    job_id, _ = await bench.bring_to(JobStatus.FAILED)
    job = await bench.snapshot(job_id)
    twice = [(job_id, StateGuard(job.status, job.job.tenant_id))] * 2
    assert await bench.store.delete(twice) == [Applied(job.version), NotFound()]
    assert sum((await bench.recount()).values()) == 0

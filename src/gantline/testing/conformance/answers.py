"""Lost answers: every verb is called twice, as by a caller who never heard the first answer."""

from datetime import timedelta

from gantline.contract.outcome import Snoozed, Success
from gantline.contract.records import RecordWrite
from gantline.contract.results import Applied, Duplicate
from gantline.contract.snapshot import Progress, Run
from gantline.contract.status import Event, JobStatus
from gantline.contract.transition import Transition
from gantline.manager.maintenance import Maintenance
from gantline.manager.switches import Switches
from gantline.testing.conformance.bench import HOUR, LEASE, PERMANENT, RETRYABLE, Bench
from gantline.testing.conformance.rule import rule
from gantline.testing.factories import lane_requests, make_new
from gantline.testing.faults import losing_answers


@rule
async def an_insert_is_not_done_twice(bench: Bench) -> None:
    new = make_new(1, idempotency_key="key")
    lossy = losing_answers(bench.store)
    assert await lossy.insert([new]) == [Duplicate(new.job.job_id)]
    assert (await bench.recount())["Queued"] == 1


@rule
async def a_claim_is_not_done_twice(bench: Bench) -> None:
    await bench.submit_many(5)
    runs = await bench.over(losing_answers(bench.store)).claim(limit=2)
    assert len(runs) == 2
    assert await bench.recount() | {"Queued": 3, "Running": 2} == await bench.recount()
    for run in runs:
        assert run.attempt == 1
        await bench.finish(run)


@rule
async def a_whole_life_is_the_same_with_every_answer_lost_once(bench: Bench) -> None:
    """Submit, run, retry, snooze, crash, fail, redrive, complete with a follow-up and a cancel."""
    lossy = bench.over(losing_answers(bench.store))
    new = make_new("life", idempotency_key="key")
    await lossy.store.insert([new])
    job_id = new.job.job_id

    run = (await lossy.claim())[0]
    await lossy.store.renew(run.session, [run.ref], lease=LEASE)
    await lossy.store.progress([Progress(run.ref, 50.0, "half")])
    await lossy.finish(run, RETRYABLE)
    bench.clock.advance(HOUR)
    await lossy.finish((await lossy.claim())[0], Snoozed(timedelta(0)))
    await lossy.claim()
    await lossy.let_leases_expire()
    await lossy.reap()
    bench.clock.advance(HOUR)
    await lossy.finish((await lossy.claim())[0], PERMANENT)
    await lossy.redrive(job_id)
    run = (await lossy.claim())[0]
    follow_up = make_new("next", job_type="next")
    write = RecordWrite("space", "key", b"1", expected=0)
    await lossy.finish(run, Success(b"1", follow_ups=(follow_up,), records=(write,)))
    await lossy.cancel(follow_up.job.job_id)

    job = await bench.snapshot(job_id)
    assert (job.status, job.attempt, job.fence) == (JobStatus.COMPLETED, 1, 5)
    rows = await bench.store.history(job_id, tenant_id=None)
    assert [row.event for row in rows] == [
        Event.RETRIED,
        Event.SNOOZED,
        Event.CRASHED,
        Event.FAILED,
        Event.REDRIVEN,
        Event.COMPLETED,
    ]
    assert [row.fence for row in rows] == [1, 2, 3, 4, 4, 5]
    assert await bench.recount() == {
        "Queued": 0,
        "Running": 0,
        "Completed": 1,
        "Failed": 0,
        "Poisoned": 0,
        "Cancelled": 1,
    }


@rule
async def side_data_and_leadership_survive_a_lost_answer(bench: Bench) -> None:
    lossy = losing_answers(bench.store)
    write = RecordWrite("space", "key", b"1", expected=0)
    assert await lossy.write_records([write]) == [Applied(1)]
    leadership = await lossy.lead("role", "a", lease=LEASE)
    assert leadership is not None
    assert leadership.term == 1
    await lossy.resign("role", "a", 1)
    assert await lossy.lead("role", "b", lease=LEASE) is not None


@rule
async def maintenance_survives_lost_answers(bench: Bench) -> None:
    await bench.submit_many(3)
    await bench.claim()
    await bench.let_leases_expire()
    lossy = losing_answers(bench.store)
    report = await Maintenance(lossy, Switches(lossy), "a").run_once()
    assert report is not None
    assert report.reaped.requeued == 3
    assert {run.crashes for run in await _claim_later(bench)} == {1}


async def _claim_later(bench: Bench) -> list[Run]:
    bench.clock.advance(HOUR)
    await bench.register("w")
    return await bench.store.claim("w", make_new().job.job_id, lane_requests(), lease=LEASE)


@rule
async def a_late_repeat_of_a_cancel_does_not_stop_the_redriven_job(bench: Bench) -> None:
    job = await bench.snapshot(await bench.submit())
    cancelled = Transition.cancelled(job, actor="op", version=None)
    assert await bench.store.apply([cancelled]) == [Applied(2)]
    await bench.redrive(job.job.job_id)
    assert await bench.store.apply([cancelled]) == [Applied(3)]  # answered again, not done again
    assert await bench.status(job.job.job_id) is JobStatus.QUEUED


@rule
async def a_repeated_request_to_stop_is_made_once(bench: Bench) -> None:
    run = await bench.start()
    job = await bench.snapshot(run.job.job_id)
    asked = Transition.cancel_requested(job, actor="op", version=None)
    assert await bench.store.apply([asked]) == [Applied(3)]
    assert await bench.store.apply([asked]) == [Applied(3)]
    assert len(await bench.store.history(run.job.job_id, tenant_id=None)) == 1

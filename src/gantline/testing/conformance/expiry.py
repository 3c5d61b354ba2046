"""Rules for jobs that expire: found while nothing has happened to them yet, not afterwards."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final
from uuid import UUID, uuid4

from gantline.contract.outcome import Released, Snoozed, Success
from gantline.contract.query import JobFilter
from gantline.contract.results import Applied, Stale
from gantline.contract.snapshot import Run
from gantline.contract.status import Event, JobStatus, Reason
from gantline.contract.stored import Part, StoredJob
from gantline.contract.submission import DedupeKey, KeyKind
from gantline.contract.transition import Transition
from gantline.testing.conformance.bench import HOUR, LEASE, RETRYABLE, Bench
from gantline.testing.conformance.moving import move
from gantline.testing.conformance.rule import rule, rule_for
from gantline.testing.factories import make_new, number

_INSTANT = timedelta(microseconds=1)


async def _submit(bench: Bench, expires_in: timedelta = HOUR, **fields: Any) -> UUID:
    return await bench.submit(expires_at=bench.clock.now() + expires_in, **fields)


async def _late(bench: Bench, *, limit: int = 100) -> list[UUID]:
    return await bench.store.past_expiry(limit=limit)


# -- what is stored -------------------------------------------------------------------------------


@rule_for(("now", "delayed", "scheduled"))
async def when_a_job_expires_is_read_as_it_was_stored(bench: Bench, timing: str) -> None:
    now = bench.clock.now()
    expires_at = now + 5 * HOUR + _INSTANT
    ways: dict[str, dict[str, Any]] = {
        "now": {},
        "delayed": {"delay": HOUR},
        "scheduled": {"scheduled_at": now + HOUR},
    }
    given = ways[timing]
    keyed = {"idempotency_key": "key", "external_id": uuid4(), "subject_id": "s"}
    job_id = await bench.submit(expires_at=expires_at, **given, **keyed)
    bench.clock.advance(2 * HOUR)
    job = (await bench.snapshot(job_id)).job
    assert (job.expires_at, job.scheduled_at) == (expires_at, now + HOUR if given else None)
    found = await bench.store.find(JobFilter(tenant_id=None), limit=10)
    (stored,) = (await bench.store.dump(Part.JOBS, limit=10)).items
    assert isinstance(stored, StoredJob)
    claim_id = uuid4()
    (run,) = await bench.claim(claim_id=claim_id)
    (again,) = await bench.claim(claim_id=claim_id)
    await bench.let_leases_expire()
    (expired,) = await bench.store.expired(limit=10)
    jobs = [found.items[0].job, stored.job, run.job, again.job, expired.job]
    assert jobs == [job] * 5


@rule
async def most_jobs_never_expire(bench: Bench) -> None:
    job_id = await bench.submit()
    bench.clock.advance(1000 * HOUR)
    assert await _late(bench) == []
    assert (await bench.snapshot(job_id)).job.expires_at is None


# -- what is found --------------------------------------------------------------------------------


@rule
async def a_job_has_expired_from_that_very_instant_on(bench: Bench) -> None:
    job_id = await _submit(bench)
    bench.clock.advance(HOUR - _INSTANT)
    assert await _late(bench) == []
    bench.clock.advance(_INSTANT)
    assert await _late(bench) == [job_id]


@rule
async def what_has_expired_is_found_wherever_it_waits(bench: Bench) -> None:
    """In queues that nobody serves, of types that nobody handles, of any tenant, due or not."""
    jobs = [
        await _submit(bench, queue="other"),
        await _submit(bench, job_type="unknown"),
        await _submit(bench, tenant_id="tenant", priority=0),
        await _submit(bench, delay=9 * HOUR),
    ]
    await bench.submit_many(3)
    bench.clock.advance(HOUR)
    assert sorted(await _late(bench)) == sorted(jobs)


@rule
async def what_expired_first_is_found_first(bench: Bench) -> None:
    second = await _submit(bench, 2 * HOUR, job_id=number(1))
    first = await _submit(bench, HOUR, job_id=number(9))
    third = await _submit(bench, 3 * HOUR, job_id=number(2))
    bench.clock.advance(9 * HOUR)
    assert await _late(bench) == [first, second, third]
    assert await _late(bench, limit=2) == [first, second]
    assert await _late(bench, limit=0) == []
    assert await bench.manager.expire(limit=2) == 2
    assert await _late(bench) == [third]


@rule
async def a_follow_up_expires_like_any_job(bench: Bench) -> None:
    run = await bench.start()
    expires_at = bench.clock.now() + HOUR
    follow_ups = tuple(make_new(delay=delay, expires_at=expires_at) for delay in (0 * HOUR, HOUR))
    await bench.finish(run, Success(follow_ups=follow_ups))
    for new in follow_ups:
        assert (await bench.snapshot(new.job.job_id)).job.expires_at == expires_at
    bench.clock.advance(HOUR)
    assert set(await _late(bench)) == {new.job.job_id for new in follow_ups}


# -- what is not found any more -------------------------------------------------------------------


async def _retry(bench: Bench, run: Run) -> None:
    await bench.finish(run, RETRYABLE)


async def _snooze(bench: Bench, run: Run) -> None:
    await bench.finish(run, Snoozed(HOUR))


async def _release(bench: Bench, run: Run) -> None:
    await bench.finish(run, Released())


async def _crash(bench: Bench, run: Run) -> None:
    await bench.reap_expired()


async def _nothing(bench: Bench, run: Run) -> None:
    pass


_WAYS_BACK: Final[dict[str, Callable[[Bench, Run], Awaitable[None]]]] = {
    "retried": _retry,
    "snoozed": _snooze,
    "released": _release,
    "crashed": _crash,
    "running": _nothing,
}


@rule_for(tuple(_WAYS_BACK))
async def what_has_begun_does_not_expire(bench: Bench, way: str) -> None:
    job_id = await _submit(bench)
    (run,) = await bench.claim()
    assert not run.has_expired
    await _WAYS_BACK[way](bench, run)
    bench.clock.advance(9 * HOUR)
    assert await _late(bench) == []
    if way != "running":
        (run,) = await bench.claim()
        assert not run.has_expired
        await bench.finish(run)
        assert await bench.status(job_id) is JobStatus.COMPLETED


@rule
async def a_move_keeps_what_expires_and_what_does_not_any_more(bench: Bench) -> None:
    begun = await _submit(bench)
    (run,) = await bench.claim()
    await bench.finish(run, Snoozed(HOUR))
    waiting = await _submit(bench)
    await move(bench)
    bench.clock.advance(9 * HOUR)
    assert await _late(bench) == [waiting]
    assert await bench.status(begun) is JobStatus.QUEUED


@rule
async def what_was_cancelled_does_not_expire(bench: Bench) -> None:
    job_id = await _submit(bench)
    await bench.cancel(job_id)
    bench.clock.advance(HOUR)
    assert await _late(bench) == []


@rule
async def a_redrive_asks_for_a_run_however_late(bench: Bench) -> None:
    job_id = await _submit(bench)
    bench.clock.advance(HOUR)
    assert await bench.manager.expire(limit=10) == 1
    await bench.redrive(job_id)
    assert await _late(bench) == []
    (run,) = await bench.claim()
    assert not run.has_expired
    await bench.finish(run)
    assert await bench.status(job_id) is JobStatus.COMPLETED


# -- how it ends ----------------------------------------------------------------------------------


async def _assert_expired(bench: Bench, job_id: UUID, *, fence: int) -> None:
    job = await bench.snapshot(job_id)
    assert (job.status, job.attempt, job.fence) == (JobStatus.CANCELLED, 0, fence)
    (row,) = await bench.store.history(job_id, tenant_id=None)
    assert (row.event, row.reason, row.error) == (Event.CANCELLED, Reason.EXPIRED, None)
    assert await bench.recount() == dict.fromkeys(JobStatus, 0) | {"Cancelled": 1}


@rule
async def what_has_expired_is_cancelled_and_frees_its_key(bench: Bench) -> None:
    job_id = await _submit(bench, idempotency_key="key")
    bench.clock.advance(HOUR)
    assert await bench.manager.expire(limit=10) == 1
    await _assert_expired(bench, job_id, fence=0)
    assert await _late(bench) == []
    key = DedupeKey(KeyKind.JOB, "default", "test", "key")
    assert await bench.store.held([key]) == [None]
    assert await bench.claim() == []


@rule
async def a_claim_that_comes_first_wins(bench: Bench) -> None:
    """And its run is known to be too late, so that nobody calls the handler."""
    job = await bench.snapshot(await _submit(bench, idempotency_key="key"))
    bench.clock.advance(HOUR)
    claim_id = uuid4()
    (run,) = await bench.claim(claim_id=claim_id)
    (again,) = await bench.claim(claim_id=claim_id)
    assert (run.has_expired, again.has_expired) == (True, True)
    assert await _late(bench) == []
    assert await bench.store.apply([Transition.expired(job)]) == [Stale()]
    await bench.finish(run, Released())
    await _assert_expired(bench, job.job.job_id, fence=1)
    key = DedupeKey(KeyKind.JOB, "default", "test", "key")
    assert await bench.store.held([key]) == [None]


@rule
async def a_run_that_began_in_time_has_not_expired(bench: Bench) -> None:
    await _submit(bench)
    bench.clock.advance(HOUR - _INSTANT)
    (run,) = await bench.claim()
    bench.clock.advance(9 * HOUR)
    assert not run.has_expired


@rule
async def a_crash_of_a_worker_does_not_start_what_has_expired(bench: Bench) -> None:
    job_id = await _submit(bench)
    bench.clock.advance(HOUR)
    (run,) = await bench.claim()
    assert (await bench.store.renew("worker-1", [run.ref], lease=LEASE)).lost == frozenset()
    await bench.let_leases_expire()
    assert (await bench.reap()).cancelled == 1
    await _assert_expired(bench, job_id, fence=1)


@rule
async def an_expiry_whose_answer_was_lost_is_made_once(bench: Bench) -> None:
    job = await bench.snapshot(await _submit(bench))
    bench.clock.advance(HOUR)
    expired = Transition.expired(job)
    assert await bench.store.apply([expired]) == [Applied(2)]
    assert await bench.store.apply([expired]) == [Applied(2)]
    await _assert_expired(bench, job.job.job_id, fence=0)


@rule
async def an_expiry_decided_long_ago_does_not_end_a_redriven_job(bench: Bench) -> None:
    job = await bench.snapshot(await _submit(bench))
    bench.clock.advance(HOUR)
    decided = Transition.expired(job)
    assert await bench.manager.expire(limit=10) == 1
    await bench.redrive(job.job.job_id)
    assert await bench.store.apply([decided]) == [Stale()]
    assert await bench.status(job.job.job_id) is JobStatus.QUEUED

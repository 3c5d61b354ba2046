"""Rules for insert: what goes in comes back, once."""

from datetime import timedelta
from uuid import UUID

import msgspec

from gantline.contract.query import JobFilter
from gantline.contract.results import Applied, Conflict, Duplicate
from gantline.contract.status import JobStatus
from gantline.contract.submission import DedupeKey, KeyKind
from gantline.manager.manager import Submitted
from gantline.manager.submitter import Submission
from gantline.testing.conformance.bench import HOUR, Bench
from gantline.testing.conformance.rule import rule
from gantline.testing.factories import make_job, make_new, number


@rule
async def an_inserted_job_is_queued_and_unused(bench: Bench) -> None:
    job = await bench.snapshot(await bench.submit())
    assert job.status is JobStatus.QUEUED
    assert (job.version, job.attempt, job.crashes, job.snoozes, job.fence) == (1, 0, 0, 0, 0)
    assert job.run_at == bench.clock.now()
    assert job.last is None


@rule
async def every_field_of_the_envelope_comes_back(bench: Bench) -> None:
    new = make_new(
        {"z": 1, "a": [True, None, 1.5]},
        job_type="all fields",
        subject_id="subject",
        correlation_id="correlation",
        idempotency_key="key",
        attempt=2,
        max_attempts=7,
        tenant_id="tenant",
        queue="queue",
        priority=0,
        scheduled_at=bench.clock.now() + HOUR,
        payload_version=3,
        created_by="owner",
        parent_job_id=UUID(int=5),
        trace_context={"traceparent": "00-ab-cd-01"},
        external_id=UUID(int=6),
    )
    await bench.store.insert([new])
    job = (await bench.snapshot(new.job.job_id)).job
    assert job == new.job
    assert bytes(job.payload) == bytes(new.job.payload)


@rule
async def an_envelope_with_attempt_n_has_used_n_minus_one(bench: Bench) -> None:
    job_id = await bench.submit(attempt=3, max_attempts=3)
    assert (await bench.snapshot(job_id)).attempt == 2
    assert (await bench.claim())[0].attempt == 3


@rule
async def the_same_job_again_is_a_duplicate(bench: Bench) -> None:
    new = make_new({"a": 1, "b": 2})
    again = msgspec.structs.replace(
        new, job=msgspec.structs.replace(new.job, payload=msgspec.Raw(b'{"b":2,"a":1}'))
    )
    assert await bench.store.insert([new]) == [Applied(1)]
    assert await bench.store.insert([again]) == [Duplicate(new.job.job_id)]
    assert (await bench.recount())["Queued"] == 1


@rule
async def the_same_id_with_other_content_is_a_conflict(bench: Bench) -> None:
    job_id = await bench.submit(1)
    others = [
        make_new(2, job_id=job_id),
        make_new(1, job_id=job_id, job_type="other"),
        make_new(1, job_id=job_id, tenant_id="other"),
        make_new(1, job_id=job_id, payload_version=2),
    ]
    assert await bench.store.insert(others) == [Conflict()] * 4
    assert (await bench.snapshot(job_id)).job.data() == 1


@rule
async def one_bad_item_does_not_harm_the_others(bench: Bench) -> None:
    first = make_new(1)
    clash = make_new(2, job_id=first.job.job_id)
    last = make_new(3)
    answers = await bench.store.insert([first, first, clash, last])
    assert answers == [Applied(1), Duplicate(first.job.job_id), Conflict(), Applied(1)]


@rule
async def a_delay_is_added_to_the_clock_of_the_store(bench: Bench) -> None:
    job_id = await bench.submit(delay=HOUR)
    job = await bench.snapshot(job_id)
    assert job.run_at == job.job.scheduled_at == bench.clock.now() + HOUR


@rule
async def jobs_of_one_call_keep_what_is_their_own(bench: Bench) -> None:
    jobs = [
        make_new(priority=priority, attempt=attempt, delay=delay)
        for priority in (1, 3)
        for attempt in (1, 2)
        for delay in (timedelta(0), HOUR)
    ]
    assert await bench.store.insert(jobs) == [Applied(1)] * len(jobs)
    for new in jobs:
        job = await bench.snapshot(new.job.job_id)
        assert (job.priority, job.attempt) == (new.job.priority, new.job.attempt - 1)
        assert job.run_at == bench.clock.now() + new.delay


@rule
async def a_time_in_the_past_is_now_and_jumps_no_queue(bench: Bench) -> None:
    first = await bench.submit()
    bench.clock.advance(1)
    late = await bench.submit(scheduled_at=bench.clock.now() - timedelta(days=9000))
    assert [run.job.job_id for run in await bench.claim()] == [first, late]


@rule
async def microseconds_survive(bench: Bench) -> None:
    bench.clock.advance(timedelta(microseconds=123_457))
    at = bench.clock.now() + timedelta(days=20_000, microseconds=999_999)
    job = await bench.snapshot(await bench.submit(created_at=at, scheduled_at=at))
    assert (job.job.created_at, job.job.scheduled_at, job.run_at) == (at, at, at)


@rule
async def nothing_is_inserted_by_an_empty_call(bench: Bench) -> None:
    assert await bench.store.insert([]) == []
    assert await bench.store.apply([]) == []
    assert await bench.store.get([], tenant_id=None) == []


@rule
async def what_a_store_cannot_take_is_refused_alone(bench: Bench) -> None:
    bad = DedupeKey(KeyKind.REQUEST, "default", "user", "lone \ud800", b"", HOUR)
    jobs = [Submission(make_job(number)) for number in range(3)]
    jobs[1] = Submission(jobs[1].job, request_key=bad)
    answers = await bench.manager.submit(jobs)
    assert [isinstance(answer, Submitted) for answer in answers[::2]] == [True, True]
    good = [jobs[0].job.job_id, jobs[2].job.job_id]
    assert all(await bench.store.get(good, tenant_id=None))


@rule
async def a_page_of_no_jobs_leads_nowhere(bench: Bench) -> None:
    await bench.submit()
    page = await bench.store.find(JobFilter(), limit=0)
    assert (page.items, page.next) == ((), None)
    assert await bench.store.events(after=0, limit=0) == []


@rule
async def an_id_that_was_refused_is_free_for_the_next_of_the_same_call(bench: Bench) -> None:
    """The items of a call are taken in order, however a store splits it."""
    first, job_id = make_new(1, idempotency_key="key"), number(24)
    repeated = make_new(1, idempotency_key="key", job_id=job_id)
    another = make_new(2, job_id=job_id)
    assert await bench.store.insert([first, repeated, another]) == [
        Applied(1),
        Duplicate(first.job.job_id, by=KeyKind.JOB),
        Applied(1),
    ]
    assert (await bench.snapshot(job_id)).job.data() == 2

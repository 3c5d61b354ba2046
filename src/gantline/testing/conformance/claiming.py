"""Rules for claim: who gets which job, in which order, and under what name."""

from datetime import timedelta
from uuid import uuid4

from gantline.contract.errors import SessionNotRegistered
from gantline.contract.outcome import Snoozed
from gantline.contract.query import LaneRequest
from gantline.contract.records import SESSIONS, RecordWrite
from gantline.contract.status import JobStatus
from gantline.testing.conformance.bench import HOUR, LEASE, Bench
from gantline.testing.conformance.rule import rule, rule_for
from gantline.testing.factories import lane_requests, make_new, number


@rule
async def a_claimed_job_is_running_under_a_lease(bench: Bench) -> None:
    job_id = await bench.submit()
    run = (await bench.claim(session="worker-7"))[0]
    job = await bench.snapshot(job_id)
    assert (job.status, job.run_at) == (JobStatus.RUNNING, None)
    assert (job.attempt, job.fence, job.version) == (1, 1, 2)
    assert (run.attempt, run.fence, run.version) == (1, 1, 2)
    assert job.run is not None
    assert (job.run.session, run.session) == ("worker-7", "worker-7")
    assert job.run.lease_until == run.lease_until == bench.clock.now() + LEASE
    assert run.job == job.job


@rule
async def a_claim_says_how_long_the_job_had_been_due(bench: Bench) -> None:
    await bench.submit(delay=HOUR)
    bench.clock.advance(HOUR + timedelta(seconds=90))
    (run,) = await bench.claim()
    assert run.waited_seconds == 90
    await bench.finish(run, Snoozed(HOUR))
    bench.clock.advance(HOUR + timedelta(milliseconds=250))
    assert [run.waited_seconds for run in await bench.claim()] == [0.25]


@rule
async def the_order_is_priority_then_time_due_then_id(bench: Bench) -> None:
    await bench.submit(job_id=number(4), priority=2)
    await bench.submit(job_id=number(3), priority=2)
    await bench.submit(job_id=number(9), priority=1, delay=HOUR)
    await bench.submit(job_id=number(8), priority=3)
    bench.clock.advance(2 * HOUR)
    await bench.submit(job_id=number(2), priority=2)
    await bench.submit(job_id=number(1), priority=0)
    order = [run.job.job_id.int for run in await bench.claim()]
    assert order == [1, 9, 3, 4, 2, 8]


@rule
async def a_claim_of_few_takes_what_was_due_first(bench: Bench) -> None:
    for value in (3, 2, 1):
        await bench.submit(job_id=number(value))
        bench.clock.advance(HOUR)
    runs = [*await bench.claim(limit=1), *await bench.claim(limit=1)]
    assert [run.job.job_id.int for run in runs] == [3, 2]


@rule
async def the_order_holds_over_the_types_of_a_queue(bench: Bench) -> None:
    for value in (5, 1, 4, 2, 3):
        kind = "odd" if value % 2 else "even"
        await bench.submit(job_id=number(value), job_type=kind)
    runs = await bench.claim("even", "odd", limit=4)
    assert [run.job.job_id.int for run in runs] == [1, 2, 3, 4]


@rule
async def the_time_due_counts_over_the_types_of_a_queue(bench: Bench) -> None:
    for value in (4, 3, 2, 1):
        kind = "odd" if value % 2 else "even"
        await bench.submit(job_id=number(value), job_type=kind)
        bench.clock.advance(HOUR)
    runs = await bench.claim("even", "odd", limit=3)
    assert [run.job.job_id.int for run in runs] == [4, 3, 2]


@rule
async def many_jobs_of_several_types_come_in_one_order(bench: Bench) -> None:
    ids = [number(value) for value in range(1, 151)]
    kinds = ("even", "odd")
    jobs = [make_new(job_id=one, job_type=kinds[one.int % 2]) for one in ids]
    await bench.store.insert(jobs)
    runs = await bench.claim(*kinds, limit=200)
    assert [run.job.job_id for run in runs] == ids


@rule
async def with_many_types_the_oldest_jobs_still_come_first(bench: Bench) -> None:
    kinds = [f"type-{value:02}" for value in range(30)]
    for value, kind in enumerate(reversed(kinds)):
        await bench.submit(job_id=number(value), job_type=kind)
    runs = await bench.claim(*kinds, limit=3)
    assert [run.job.job_id.int for run in runs] == [0, 1, 2]


@rule
async def what_is_not_due_is_not_claimed(bench: Bench) -> None:
    await bench.submit(delay=HOUR, priority=0)
    now = await bench.submit(priority=3)
    assert [run.job.job_id for run in await bench.claim()] == [now]
    assert await bench.claim() == []
    bench.clock.advance(HOUR)
    assert len(await bench.claim()) == 1


@rule
async def a_job_is_due_at_its_instant_and_not_before(bench: Bench) -> None:
    job_id = await bench.submit(delay=HOUR)
    bench.clock.advance(HOUR - timedelta(microseconds=1))
    assert await bench.claim() == []
    bench.clock.advance(timedelta(microseconds=1))
    assert [run.job.job_id for run in await bench.claim()] == [job_id]


@rule
async def only_the_named_queue_and_types_are_claimed(bench: Bench) -> None:
    await bench.submit(job_type="other")
    await bench.submit(queue="other")
    mine = await bench.submit()
    assert [run.job.job_id for run in await bench.claim("test", "unknown")] == [mine]
    assert await bench.claim() == []


@rule
async def no_more_than_the_limit_is_claimed(bench: Bench) -> None:
    await bench.submit_many(5)
    assert len(await bench.claim(limit=2)) == 2
    assert await bench.claim(limit=0) == []
    assert len(await bench.claim(limit=10)) == 3


@rule
async def the_limit_holds_over_all_priorities(bench: Bench) -> None:
    for priority in (0, 0, 1, 1, 2, 2, 3, 3):
        await bench.submit(priority=priority)
    assert [run.priority for run in await bench.claim(limit=3)] == [0, 0, 1]
    assert [run.priority for run in await bench.claim(limit=4)] == [1, 2, 2, 3]


@rule
async def of_a_limited_type_no_more_is_claimed_than_it_may(bench: Bench) -> None:
    for value in range(1, 9):
        kind = "odd" if value % 2 else "even"
        await bench.submit(job_id=number(value), job_type=kind)
    runs = await bench.claim("even", "odd", at_most={"odd": 2})
    assert [run.job.job_id.int for run in runs] == [1, 2, 3, 4, 6, 8]
    runs = await bench.claim("even", "odd", at_most={"odd": 1})
    assert [run.job.job_id.int for run in runs] == [5]
    assert [run.job.job_id.int for run in await bench.claim("even", "odd")] == [7]


@rule
async def a_limit_of_a_type_holds_over_all_priorities(bench: Bench) -> None:
    for value in range(8):
        kind = "odd" if value % 2 else "even"
        await bench.submit(job_id=number(value), job_type=kind, priority=value // 2)
    runs = await bench.claim("even", "odd", limit=5, at_most={"even": 2, "odd": 9})
    assert [run.job.job_id.int for run in runs] == [0, 1, 2, 3, 5]


@rule
async def a_limited_type_does_not_hide_what_is_due_after_it(bench: Bench) -> None:
    await bench.submit_many(300, job_type="limited", priority=0)
    late = await bench.submit(priority=3)
    runs = await bench.claim("limited", "test", limit=3, at_most={"limited": 1})
    assert [run.job.job_type for run in runs] == ["limited", "test"]
    assert runs[1].job.job_id == late


@rule
async def what_is_not_due_uses_up_no_limit_of_a_type(bench: Bench) -> None:
    await bench.submit(job_type="limited", priority=0, delay=HOUR)
    due = await bench.submit(job_type="limited", priority=3)
    runs = await bench.claim("limited", "test", at_most={"limited": 1})
    assert [run.job.job_id for run in runs] == [due]


@rule_for((0, -1))
async def of_a_type_limited_to_none_none_is_claimed(bench: Bench, most: int) -> None:
    limited = await bench.submit()
    other = await bench.submit(job_type="other")
    runs = await bench.claim("test", "other", at_most={"test": most, "unknown": 1})
    assert [run.job.job_id for run in runs] == [other]
    assert [run.job.job_id for run in await bench.claim()] == [limited]


@rule
async def a_limit_of_a_type_holds_in_its_request_alone(bench: Bench) -> None:
    await bench.submit_many(3, queue="a")
    await bench.submit_many(3, queue="b")
    requests = [
        *lane_requests(queue="a", at_most={"test": 1}),
        *lane_requests(queue="b", limit=2),
    ]
    await bench.register("worker-1")
    runs = await bench.store.claim("worker-1", uuid4(), requests, lease=LEASE)
    assert [run.job.queue for run in runs] == ["a", "b", "b"]


@rule
async def each_queue_has_its_own_limit(bench: Bench) -> None:
    await bench.submit_many(3, queue="a")
    await bench.submit_many(3, queue="b")
    requests = [LaneRequest("a", ("test",), 1), LaneRequest("b", ("test",), 2)]
    await bench.register("worker-1")
    runs = await bench.store.claim("worker-1", uuid4(), requests, lease=LEASE)
    assert [run.job.queue for run in runs] == ["a", "b", "b"]


@rule
async def a_queue_named_twice_gives_each_job_once(bench: Bench) -> None:
    await bench.submit_many(3)
    requests = lane_requests("test", "test", limit=2) * 2
    await bench.register("worker-1")
    runs = await bench.store.claim("worker-1", uuid4(), requests, lease=LEASE)
    assert len({run.job.job_id for run in runs}) == len(runs) == 3


@rule
async def every_run_has_a_token_of_its_own(bench: Bench) -> None:
    await bench.submit_many(50)
    assert len({run.token for run in await bench.claim()}) == 50


@rule
async def only_a_registered_session_claims(bench: Bench) -> None:
    job_id = await bench.submit()
    await bench.register("somebody-else")
    assert await _is_refused(bench, "worker-1")
    assert await bench.status(job_id) is JobStatus.QUEUED
    assert [run.job.job_id for run in await bench.claim(session="worker-1")] == [job_id]


@rule
async def a_session_whose_registration_is_over_claims_again_once_it_has_registered(
    bench: Bench,
) -> None:
    """As of a worker that was frozen for longer than that lasts."""
    job_id = await bench.submit()
    write = RecordWrite(SESSIONS, "worker-1", b"{}", time_to_live=LEASE)
    await bench.store.write_records([write])
    bench.clock.advance(LEASE)
    assert await _is_refused(bench, "worker-1")
    await bench.store.write_records([write])
    requests = lane_requests()
    runs = await bench.store.claim("worker-1", uuid4(), requests, lease=LEASE)
    assert [run.job.job_id for run in runs] == [job_id]
    await bench.store.write_records([RecordWrite(SESSIONS, "worker-1", None)])
    await bench.submit()
    assert await _is_refused(bench, "worker-1")


@rule
async def a_claim_whose_answer_was_lost_is_answered_though_the_registration_is_over(
    bench: Bench,
) -> None:
    await bench.submit()
    claim_id = uuid4()
    first = await bench.claim(claim_id=claim_id)
    await bench.store.write_records([RecordWrite(SESSIONS, "worker-1", None)])
    again = await bench.store.claim("worker-1", claim_id, lane_requests(), lease=LEASE)
    assert [run.ref for run in again] == [run.ref for run in first]


async def _is_refused(bench: Bench, session: str) -> bool:
    try:
        await bench.store.claim(session, uuid4(), lane_requests(), lease=LEASE)
    except SessionNotRegistered as error:
        return session in error.cause
    return False


@rule
async def two_sessions_never_claim_the_same_job(bench: Bench) -> None:
    await bench.submit_many(10)
    first = await bench.claim(limit=5, session="worker-1")
    second = await bench.claim(limit=9, session="worker-2")
    ids = [run.job.job_id for run in first + second]
    assert len(set(ids)) == len(ids) == 10


@rule
async def the_same_claim_id_gives_the_same_runs(bench: Bench) -> None:
    await bench.submit_many(4)
    claim_id = uuid4()
    first = await bench.claim(limit=2, claim_id=claim_id)
    again = await bench.claim(limit=2, claim_id=claim_id)
    assert {run.ref for run in first} == {run.ref for run in again}
    assert len(await bench.claim(claim_id=uuid4())) == 2
    again = await bench.claim(limit=2, claim_id=claim_id)
    assert {run.ref for run in first} == {run.ref for run in again}


@rule
async def a_repeated_claim_does_not_bring_back_an_ended_run(bench: Bench) -> None:
    await bench.submit_many(3)
    claim_id = uuid4()
    first, second = await bench.claim(limit=2, claim_id=claim_id)
    await bench.finish(first)
    again = await bench.claim(limit=2, claim_id=claim_id)
    assert [run.ref for run in again] == [second.ref]


@rule
async def a_repeated_claim_does_not_give_a_run_that_another_has(bench: Bench) -> None:
    await bench.submit_many(2)
    claim_id = uuid4()
    first, second = await bench.claim(claim_id=claim_id)
    await bench.finish(first, Snoozed(timedelta(0)))
    assert len(await bench.claim(session="worker-2")) == 1
    assert [run.ref for run in await bench.claim(claim_id=claim_id)] == [second.ref]

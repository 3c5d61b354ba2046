"""Rules for suspects: jobs that were in several crashes wait apart, and come when asked for."""

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from gantline.contract.outcome import LEASE_EXPIRED, Snoozed
from gantline.contract.query import LaneRequest
from gantline.contract.results import Applied
from gantline.contract.snapshot import SUSPECT_AFTER_CRASHES, Run
from gantline.contract.status import JobStatus
from gantline.contract.stored import Part, StoredJob
from gantline.contract.transition import Transition
from gantline.testing.conformance.bench import HOUR, LEASE, Bench
from gantline.testing.conformance.rule import rule, rule_for
from gantline.testing.factories import lane_requests, make_new, number

_ANY = (100,)
"""Suspects of any number of crashes."""


@rule
async def the_second_crash_makes_a_suspect_that_no_ordinary_claim_takes(bench: Bench) -> None:
    job_id = await bench.submit(priority=1)
    await _crash(bench, (await bench.claim())[0])
    await _crash(bench, (await bench.claim())[0])
    assert await bench.claim() == []
    job = await bench.snapshot(job_id)
    assert (job.status, job.crashes, job.priority) == (JobStatus.QUEUED, 2, 1)
    (run,) = await bench.claim(suspects=_ANY)
    assert (run.job.job_id, run.crashes, run.priority) == (job_id, 2, 1)
    assert run.is_suspect


@rule
async def a_claim_of_suspects_takes_nothing_else(bench: Bench) -> None:
    ordinary = await bench.submit(priority=0)
    crashed_once = await submit_suspect(bench, crashes=1)
    assert await bench.claim(suspects=_ANY) == []
    suspect = await submit_suspect(bench, crashes=2, priority=3)
    assert _ids(await bench.claim(suspects=_ANY)) == [suspect]
    assert _ids(await bench.claim()) == [ordinary, crashed_once]


@rule
async def a_suspect_is_shown_and_counted_like_any_job(bench: Bench) -> None:
    job_id = await submit_suspect(bench, crashes=30, priority=1)
    later = await submit_suspect(bench, crashes=2, due_in=HOUR)
    (lane,) = await bench.store.counts(tenant_id=None)
    assert (lane.queued, lane.scheduled, lane.oldest_due_at) == (2, 1, bench.clock.now())
    assert (await bench.snapshot(job_id)).priority == 1
    page = await bench.store.dump(Part.JOBS, limit=10)
    shown = {item.job.job_id: item for item in page.items if isinstance(item, StoredJob)}
    assert (shown[job_id].priority, shown[job_id].crashes) == (1, 30)
    assert shown[later].priority == 2
    (run,) = await bench.claim(suspects=_ANY)
    assert (run.priority, (await bench.snapshot(job_id)).priority) == (1, 1)
    await bench.finish(run)
    job = await bench.snapshot(job_id)
    assert (job.status, job.priority, job.crashes) == (JobStatus.COMPLETED, 1, 30)


@rule
async def those_that_were_in_the_most_crashes_come_first_and_alone(bench: Bench) -> None:
    two = [await submit_suspect(bench, crashes=2, priority=0) for _ in range(2)]
    four = [await submit_suspect(bench, crashes=4, priority=3) for _ in range(2)]
    three = await submit_suspect(bench, crashes=3, priority=0)
    assert set(_ids(await bench.claim(suspects=_ANY))) == set(four)
    assert _ids(await bench.claim(suspects=_ANY)) == [three]
    assert set(_ids(await bench.claim(suspects=_ANY))) == set(two)
    assert await bench.claim(suspects=_ANY) == []


@rule
async def where_none_of_the_most_suspect_is_asked_for_the_others_come(bench: Bench) -> None:
    three = await submit_suspect(bench, crashes=3)
    two = await submit_suspect(bench, crashes=2)
    assert _ids(await bench.claim(suspects=(5, 0))) == [two]
    assert await bench.claim(suspects=(5, 0)) == []
    assert _ids(await bench.claim(suspects=(5, 1))) == [three]


@rule
async def nine_crashes_or_more_are_alike(bench: Bench) -> None:
    await submit_suspect(bench, job_id=number(1), crashes=1000, priority=3)
    await submit_suspect(bench, job_id=number(2), crashes=8, priority=0)
    await submit_suspect(bench, job_id=number(3), crashes=9, priority=2)
    await submit_suspect(bench, job_id=number(4), crashes=10, priority=1)
    assert [run.job.job_id.int for run in await bench.claim(suspects=_ANY)] == [4, 3, 1]
    assert [run.job.job_id.int for run in await bench.claim(suspects=_ANY)] == [2]


@rule
async def suspects_of_equal_crashes_come_by_priority_then_time_due_then_id(bench: Bench) -> None:
    await submit_suspect(bench, job_id=number(4), priority=2, job_type="even")
    await submit_suspect(bench, job_id=number(3), priority=2, job_type="odd")
    await submit_suspect(bench, job_id=number(9), priority=1, job_type="odd", due_in=HOUR)
    await submit_suspect(bench, job_id=number(8), priority=3, job_type="even")
    bench.clock.advance(2 * HOUR)
    await submit_suspect(bench, job_id=number(2), priority=2, job_type="even")
    await submit_suspect(bench, job_id=number(1), priority=0, job_type="odd")
    runs = await bench.claim("odd", "even", suspects=_ANY, limit=5)
    assert [run.job.job_id.int for run in runs] == [1, 9, 3, 4, 2]
    assert [run.job.job_id.int for run in await bench.claim("even", suspects=_ANY)] == [8]


@rule
async def a_suspect_that_is_not_due_holds_nobody_back(bench: Bench) -> None:
    later = await submit_suspect(bench, crashes=5, due_in=HOUR)
    now = await submit_suspect(bench, crashes=2)
    assert _ids(await bench.claim(suspects=_ANY)) == [now]
    assert await bench.claim(suspects=_ANY) == []
    bench.clock.advance(HOUR)
    assert _ids(await bench.claim(suspects=_ANY)) == [later]


@rule_for(range(SUSPECT_AFTER_CRASHES, 12))
async def each_number_of_crashes_has_its_limit(bench: Bench, crashes: int) -> None:
    for _ in range(9):
        await submit_suspect(bench, crashes=crashes)
    allowed = {2: 8, 3: 4}.get(crashes, 2)
    assert len(await bench.claim(suspects=(8, 4, 2))) == allowed
    assert len(await bench.claim(suspects=(8, 4, 2), limit=1)) == 1
    assert await bench.claim(suspects=(8, 4, 2), limit=0) == []
    assert len(await bench.claim(suspects=_ANY)) == 9 - allowed - 1


@rule_for((0, -1))
async def where_none_of_a_number_of_crashes_is_allowed_fewer_are_looked_at(
    bench: Bench, none: int
) -> None:
    many, few = await submit_suspect(bench, crashes=4), await submit_suspect(bench, crashes=2)
    assert _ids(await bench.claim(suspects=(1, none))) == [few]
    assert await bench.claim(suspects=(1, none)) == []
    assert await bench.claim(suspects=(none,)) == []
    assert _ids(await bench.claim(suspects=(none, none, 1))) == [many]


@rule
async def only_suspects_of_the_named_queue_and_types_are_claimed(bench: Bench) -> None:
    await submit_suspect(bench, crashes=9, job_type="other")
    await submit_suspect(bench, crashes=9, queue="other")
    mine = await submit_suspect(bench, crashes=2)
    assert _ids(await bench.claim("test", "unknown", suspects=_ANY)) == [mine]
    assert await bench.claim(suspects=_ANY) == []


@rule
async def the_limit_of_a_type_holds_for_its_suspects(bench: Bench) -> None:
    for value in range(1, 7):
        kind = "odd" if value % 2 else "even"
        await submit_suspect(bench, job_id=number(value), job_type=kind)
    runs = await bench.claim("even", "odd", suspects=_ANY, at_most={"odd": 1})
    assert [run.job.job_id.int for run in runs] == [1, 2, 4, 6]
    assert await bench.claim("even", "odd", suspects=_ANY, at_most={"odd": 0}) == []
    runs = await bench.claim("even", "odd", suspects=(1,), at_most={"odd": 2})
    assert [run.job.job_id.int for run in runs] == [3]


@rule
async def a_type_limited_to_none_does_not_hide_suspects_of_fewer_crashes(bench: Bench) -> None:
    await submit_suspect(bench, crashes=5, job_type="limited")
    other = await submit_suspect(bench, crashes=2)
    runs = await bench.claim("limited", "test", suspects=_ANY, at_most={"limited": 0})
    assert _ids(runs) == [other]


@rule
async def one_claim_may_ask_for_suspects_and_for_others(bench: Bench) -> None:
    ordinary = await bench.submit_many(3)
    suspect = await submit_suspect(bench, crashes=2)
    requests: list[LaneRequest] = [*lane_requests(suspects=_ANY), *lane_requests(limit=2)]
    await bench.register("worker-1")
    runs = await bench.store.claim("worker-1", uuid4(), requests, lease=LEASE)
    assert _ids(runs)[0] == suspect
    assert len(runs) == 3
    assert set(_ids(runs)[1:]) < set(ordinary)


@rule
async def the_same_claim_id_gives_the_same_suspects(bench: Bench) -> None:
    for _ in range(2):
        await submit_suspect(bench, crashes=2)
    claim_id = uuid4()
    first = await bench.claim(suspects=(1,), claim_id=claim_id)
    again = await bench.claim(suspects=(1,), claim_id=claim_id)
    assert [run.ref for run in again] == [run.ref for run in first]


@rule
async def a_suspect_that_goes_back_to_the_queue_is_still_one(bench: Bench) -> None:
    await submit_suspect(bench, crashes=2)
    (run,) = await bench.claim(suspects=_ANY)
    await bench.finish(run, Snoozed(timedelta(0)))
    assert await bench.claim() == []
    (run,) = await bench.claim(suspects=_ANY)
    await _crash(bench, run)
    (run,) = await bench.claim(suspects=(0, 1))
    assert run.crashes == 3


@rule
async def a_suspect_can_be_cancelled_and_comes_back_as_an_ordinary_job(bench: Bench) -> None:
    job_id = await submit_suspect(bench, crashes=4)
    await bench.cancel(job_id)
    assert await bench.claim(suspects=_ANY) == []
    await bench.redrive(job_id)
    assert await bench.claim(suspects=_ANY) == []
    (run,) = await bench.claim()
    assert (run.job.job_id, run.crashes) == (job_id, 0)


def _ids(runs: list[Run]) -> list[UUID]:
    return [run.job.job_id for run in runs]


async def _crash(bench: Bench, run: Run) -> None:
    """Let a run crash without a backoff; no budget is looked at."""
    assert await bench.store.expire_session(run.session) == 1
    crashed = Transition.crashed(run, LEASE_EXPIRED, delay=timedelta(0))
    assert await bench.store.apply([crashed]) == [Applied(run.version + 1)]


async def submit_suspect(
    bench: Bench,
    *,
    crashes: int = 2,
    due_in: timedelta = timedelta(0),
    priority: int = 2,
    **fields: Any,
) -> UUID:
    """Store a Queued job that was in so many crashes: by taking it in, as from another store."""
    new = make_new(priority=priority, **fields)
    stored = StoredJob(
        job=new.job,
        fingerprint=new.fingerprint,
        status=JobStatus.QUEUED,
        version=1 + 2 * crashes,
        attempt=0,
        crashes=crashes,
        snoozes=0,
        fence=crashes,
        priority=priority,
        run_at=bench.clock.now() + due_in,
    )
    await bench.store.load([stored])
    return new.job.job_id

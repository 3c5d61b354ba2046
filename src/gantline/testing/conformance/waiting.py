"""Rules for what waits before a job: those that claims take first, and no others."""

from datetime import timedelta
from uuid import UUID, uuid4

from gantline.contract.outcome import Snoozed
from gantline.testing.conformance.bench import HOUR, Bench
from gantline.testing.conformance.rule import rule
from gantline.testing.conformance.suspects import submit_suspect
from gantline.testing.factories import JOB_TYPE, number


async def _ahead(
    bench: Bench,
    job_id: UUID,
    *job_types: str,
    tenant_id: str | None = None,
    limit: int = 100,
) -> dict[int, int] | None:
    return await bench.store.ahead(
        job_id, job_types or (JOB_TYPE,), tenant_id=tenant_id, limit=limit
    )


@rule
async def ahead_is_what_is_claimed_first(bench: Bench) -> None:
    order = [
        await bench.submit(job_id=number(9), priority=0),
        await bench.submit(job_id=number(3), priority=1),
        await bench.submit(job_id=number(5), priority=2),
        await bench.submit(job_id=number(6), priority=2),
    ]
    bench.clock.advance(timedelta(microseconds=1))
    order += [
        await bench.submit(job_id=number(1), priority=2),
        await bench.submit(job_id=number(2), priority=3),
    ]
    before = [await _ahead(bench, job_id) for job_id in order]
    assert before == [{}, {0: 1}, {0: 1, 1: 1}, *({0: 1, 1: 1, 2: n} for n in (1, 2, 3))]
    assert [run.job.job_id for run in await bench.claim()] == order


@rule
async def what_is_not_due_is_ahead_of_nothing(bench: Bench) -> None:
    await bench.submit(priority=0, delay=HOUR)
    now, later = await bench.submit(), await bench.submit(delay=HOUR)
    assert await _ahead(bench, now) == {}
    assert await _ahead(bench, later) == {2: 1}
    bench.clock.advance(HOUR)
    assert await _ahead(bench, now) == {0: 1}
    assert await _ahead(bench, later) == {0: 1, 2: 1}


@rule
async def only_the_types_that_are_named_count_and_only_in_the_queue_of_the_job(
    bench: Bench,
) -> None:
    for kind in ("a", "b", "c"):
        await bench.submit(job_type=kind)
    await bench.submit(job_type="a", queue="other")
    await bench.submit(job_type="a", queue="default1")
    bench.clock.advance(HOUR)
    job_id = await bench.submit(job_type="b")
    assert await _ahead(bench, job_id, "a", "b") == {2: 2}
    assert await _ahead(bench, job_id, "c") == {2: 1}
    assert await _ahead(bench, job_id, "unknown", "also unknown", "no\0name") == {}


@rule
async def ids_decide_between_types_at_one_instant(bench: Bench) -> None:
    for index, kind in ((1, "a"), (4, "a"), (2, "b"), (5, "b")):
        await bench.submit(job_id=number(index), job_type=kind)
    job_id = await bench.submit(job_id=number(3), job_type="c")
    assert await _ahead(bench, job_id, "a", "b", "c") == {2: 2}


@rule
async def of_one_tenant_only_its_own_jobs_are_ahead(bench: Bench) -> None:
    for tenant, priority in (("one", 0), ("other", 0), ("other", 2), ("one", 2)):
        await bench.submit(tenant_id=tenant, priority=priority)
    bench.clock.advance(HOUR)
    for index, tenant in ((1, "one"), (2, "other")):
        await bench.submit(job_id=number(index), tenant_id=tenant)
    job_id = await bench.submit(tenant_id="one", priority=2)
    assert await _ahead(bench, job_id) == {0: 2, 2: 4}
    assert await _ahead(bench, job_id, tenant_id="one") == {0: 1, 2: 2}
    assert await _ahead(bench, job_id, tenant_id="other") is None
    assert await _ahead(bench, job_id, tenant_id="unknown") is None


@rule
async def no_more_are_looked_at_than_the_limit_and_the_most_urgent_first(bench: Bench) -> None:
    await bench.submit_many(2, priority=1)
    await bench.submit_many(2, priority=1, tenant_id="other")
    await bench.submit_many(3, priority=2)
    bench.clock.advance(HOUR)
    job_id = await bench.submit(priority=2)
    assert await _ahead(bench, job_id, limit=7) == {1: 4, 2: 3}
    assert await _ahead(bench, job_id, limit=6) == {1: 4, 2: 2}
    assert await _ahead(bench, job_id, limit=3) == {1: 3}
    assert await _ahead(bench, job_id, tenant_id="default", limit=4) == {1: 2}
    assert await _ahead(bench, job_id, limit=0) == {}


@rule
async def suspects_wait_behind_suspects_alone(bench: Bench) -> None:
    await bench.submit(priority=0)
    two = [await submit_suspect(bench, crashes=2, priority=priority) for priority in (0, 3)]
    four = [await submit_suspect(bench, crashes=4, priority=priority) for priority in (0, 3)]
    bench.clock.advance(HOUR)
    ordinary = await bench.submit(priority=3)
    last = await submit_suspect(bench, crashes=2, priority=3)
    assert await _ahead(bench, ordinary) == {0: 1}
    assert await _ahead(bench, four[0]) == {}
    assert await _ahead(bench, four[1]) == {0: 1}
    assert await _ahead(bench, two[0]) == {0: 1, 3: 1}
    assert await _ahead(bench, last) == {0: 2, 3: 2}


@rule
async def what_was_claimed_cancelled_or_put_off_is_ahead_no_more(bench: Bench) -> None:
    first, second = await bench.submit_many(2, priority=0)
    third = await bench.submit(priority=0)
    bench.clock.advance(HOUR)
    job_id = await bench.submit(priority=3)
    await bench.cancel(second)
    assert await _ahead(bench, job_id) == {0: 2}
    (run,) = await bench.claim(limit=1)
    assert await _ahead(bench, job_id) == {0: 1}
    assert run.job.job_id in (first, third)
    await bench.finish(run, Snoozed(HOUR))
    assert await _ahead(bench, job_id) == {0: 1}


@rule
async def nothing_is_ahead_of_a_job_that_does_not_wait(bench: Bench) -> None:
    run = await bench.start()
    assert await _ahead(bench, run.job.job_id) is None
    await bench.finish(run)
    assert await _ahead(bench, run.job.job_id) is None
    assert await _ahead(bench, uuid4()) is None

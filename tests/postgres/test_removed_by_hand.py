"""Jobs whose rows were deleted by hand: what is left of them is cleared, and stops nobody."""

from collections.abc import AsyncIterator, Sequence
from uuid import UUID, uuid4

import pytest

from gantline.contract.query import LaneCounts, PruneRule
from gantline.contract.results import Applied, Duplicate
from gantline.contract.status import JobStatus
from gantline.contract.submission import KeyKind
from gantline.stores.postgres import PostgresStore, prune
from gantline.stores.postgres.sql import Sql
from gantline.testing.conformance import Bench
from gantline.testing.conformance.bench import HOUR, LEASE
from gantline.testing.factories import make_new, number
from tests.harness import PostgresHarness
from tests.servers.postgres import PostgresServer

TABLES = ("job", "ready", "lease", "log", "dedupe")


@pytest.fixture
async def bench(postgres: PostgresServer) -> AsyncIterator[Bench]:
    bench = await Bench.on(PostgresHarness(postgres))
    yield bench
    await bench.close()


def store_of(bench: Bench) -> PostgresStore:
    assert isinstance(bench.store, PostgresStore)
    return bench.store


async def remove_by_hand(bench: Bench, job_ids: Sequence[UUID]) -> None:
    async def remove(sql: Sql) -> None:
        assert await sql.run("DELETE FROM gantline.job WHERE id = ANY (%s)", list(job_ids))

    await store_of(bench).calls.run(remove)


async def rows_left(bench: Bench) -> dict[str, int]:
    async def count(sql: Sql) -> dict[str, int]:
        counts = {
            table: (await sql.rows(f"SELECT count(*) FROM gantline.{table}"))[0][0]
            for table in TABLES
        }
        return {table: rows for table, rows in counts.items() if rows}

    return await store_of(bench).calls.run(count)


async def test_a_lease_whose_job_is_gone_is_cleared_once_it_has_run_out(bench: Bench) -> None:
    for value in range(1, 6):
        await bench.submit(job_id=number(value), idempotency_key=f"key-{value}")
    assert len(await bench.claim()) == 5
    await remove_by_hand(bench, [number(1), number(2), number(4)])
    bench.clock.advance(LEASE)
    lapsed = await bench.store.expired(limit=2)
    assert [run.job.job_id.int for run in lapsed] == [3, 5]
    assert await rows_left(bench) == {"job": 2, "lease": 2, "dedupe": 2}
    assert await counted(bench) == LaneCounts(queue="default", job_type="test", running=2)


async def test_the_key_of_a_job_that_is_gone_is_free_again(bench: Bench) -> None:
    await bench.submit(job_id=number(1), idempotency_key="order")
    await bench.claim()
    await remove_by_hand(bench, [number(1)])
    bench.clock.advance(LEASE)
    assert await bench.store.expired(limit=10) == []
    assert await bench.store.insert([make_new(idempotency_key="order")]) == [Applied(1)]


@pytest.mark.parametrize("is_swept", [False, True])
async def test_the_external_id_of_a_job_that_is_gone_is_free_again(
    bench: Bench, is_swept: bool
) -> None:
    """Also before anybody has cleared what is left of it."""
    given = uuid4()
    run = await bench.start(external_id=given)
    await remove_by_hand(bench, [run.job.job_id])
    if is_swept:
        bench.clock.advance(LEASE)
        assert await bench.store.expired(limit=10) == []
        assert await rows_left(bench) == {}
    newer = await bench.submit("another", external_id=given)
    again = make_new("another", external_id=given)
    assert await bench.store.insert([again]) == [Duplicate(newer, by=KeyKind.ID)]


async def test_a_claim_takes_what_comes_after_jobs_that_are_gone(bench: Bench) -> None:
    for value in range(1, 8):
        await bench.submit(job_id=number(value))
    await remove_by_hand(bench, [number(value) for value in range(1, 6)])
    runs = await bench.claim(limit=2)
    assert len(runs) == 1
    runs += await bench.claim(limit=2)
    assert [run.job.job_id.int for run in runs] == [6, 7]
    assert await rows_left(bench) == {"job": 2, "lease": 2}


async def test_a_claim_whose_jobs_are_all_gone_finds_none(bench: Bench) -> None:
    await bench.submit_many(3)
    started = await bench.claim(claim_id=(claim_id := uuid4()))
    await remove_by_hand(bench, [run.job.job_id for run in started])
    assert await bench.claim(claim_id=claim_id) == []
    assert await rows_left(bench) == {}


async def test_an_entry_of_a_queue_that_nobody_serves_is_cleared_by_pruning(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune, "_PAGE", 2)
    for value in range(1, 8):
        await bench.store.insert([make_new(job_id=number(value), delay=HOUR)])
    kept = number(4)
    await remove_by_hand(bench, [number(value) for value in range(1, 8) if value != kept.int])
    for left in (5, 4, 2, 1):
        await bench.store.prune([], limit=10)
        assert await rows_left(bench) == {"job": 1, "ready": left}
    assert (await counted(bench)).queued == 1
    await remove_by_hand(bench, [kept])
    await bench.store.prune([], limit=10)
    assert await rows_left(bench) == {}


async def test_the_history_of_a_job_that_is_gone_is_pruned_and_counted_once(bench: Bench) -> None:
    await bench.finish(await bench.start(job_id=number(1)))
    await remove_by_hand(bench, [number(1)])
    bench.clock.advance(HOUR)
    rules = [PruneRule(JobStatus.COMPLETED, bench.clock.now())]
    assert (await bench.store.prune(rules, limit=10)).jobs == 1
    assert (await bench.store.prune(rules, limit=10)).jobs == 0
    assert await bench.store.counts(tenant_id=None) == []


async def counted(bench: Bench) -> LaneCounts:
    (counts,) = await bench.store.counts(tenant_id=None)
    return counts

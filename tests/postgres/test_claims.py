"""What claims, and the ends of sessions, are to PostgreSQL alone: ranks, statements and locks."""

import asyncio
import threading
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from gantline.contract.snapshot import rank
from gantline.stores.postgres import PostgresStore
from gantline.stores.postgres.sql import Sql
from gantline.testing.conformance import Bench
from gantline.testing.factories import number
from tests.harness import PostgresHarness
from tests.servers.postgres import PostgresServer

_QUEUE = """
INSERT INTO gantline.ready (
    lane, run_at, version, fence, created_at, attempt, crashes, snoozes, priority, keyed, job_id,
    tenant)
VALUES (1, 0, 1, 0, 0, 0, %s, 0, %s, false, %s, 'default') RETURNING rank
"""


@pytest.fixture
def harness(postgres: PostgresServer) -> PostgresHarness:
    return PostgresHarness(postgres)


@pytest.fixture
async def bench(harness: PostgresHarness) -> AsyncIterator[Bench]:
    bench = await Bench.on(harness)
    yield bench
    await bench.close()


class CountedSql(Sql):
    """Notes every statement that gives rows."""

    statements: list[str]

    async def rows(self, text: str, *values: object) -> list[tuple[object, ...]]:
        self.statements.append(text)
        return await super().rows(text, *values)


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []
    monkeypatch.setattr(CountedSql, "statements", seen, raising=False)
    monkeypatch.setattr("gantline.stores.postgres.calls.Sql", CountedSql)
    return seen


def store_of(bench: Bench) -> PostgresStore:
    assert isinstance(bench.store, PostgresStore)
    return bench.store


async def test_a_queued_job_stands_at_the_rank_that_the_contract_gives_it(bench: Bench) -> None:
    async def queue(sql: Sql) -> None:
        for crashes in range(12):
            for priority in range(4):
                ((stored,),) = await sql.rows(_QUEUE, crashes, priority, uuid4())
                assert stored == rank(priority, crashes)

    await store_of(bench).calls.run(queue)


async def test_a_claim_for_suspects_that_are_not_there_is_one_short_query(
    bench: Bench, statements: list[str]
) -> None:
    await bench.submit_many(3)
    assert await bench.claim(suspects=(8, 4)) == []  # by which it knows the lanes
    statements.clear()
    assert await bench.claim(suspects=(8, 4)) == []
    assert len(statements) == 1


async def test_a_claim_for_suspects_leaves_the_floors_of_the_others(bench: Bench) -> None:
    await bench.submit_many(3)
    await bench.claim(limit=1)
    floors = store_of(bench)._parts.claims._floors
    before = dict(floors._floors)
    assert before
    floors._full_search_at = 0.0
    await bench.claim(suspects=(8,))
    assert floors._floors == before


async def test_a_limit_of_a_type_holds_for_each_of_two_claims_at_once(
    bench: Bench, harness: PostgresHarness
) -> None:
    is_armed, held, may_commit = threading.Event(), threading.Event(), threading.Event()

    def hold() -> None:
        if is_armed.is_set():
            held.set()
            may_commit.wait(10)

    slow = bench.over(await harness.open(before_commit=hold))
    limits = {"limited": 2}
    assert await slow.claim("limited", "test", at_most=limits) == []
    for value in range(8):
        kind = "limited" if value < 6 else "test"
        await bench.submit(job_id=number(value), job_type=kind, priority=min(value, 1))
    is_armed.set()
    claiming = asyncio.create_task(slow.claim("limited", "test", at_most=limits, limit=3))
    try:
        await asyncio.to_thread(held.wait, 10)
        async with asyncio.timeout(5):
            beside = await bench.claim("limited", "test", at_most=limits)
    finally:
        may_commit.set()
        first = await claiming
    for runs in (first, beside):
        assert 0 < sum(run.job.job_type == "limited" for run in runs) <= 2
    assert not {run.token for run in first} & {run.token for run in beside}
    assert not {run.job.job_id for run in first} & {run.job.job_id for run in beside}


async def test_a_session_is_ended_though_one_of_its_runs_is_locked(
    bench: Bench, harness: PostgresHarness
) -> None:
    """A run that a handler's transaction holds keeps its lease; the others must not wait for it."""
    locked, free = await bench.start(), await bench.start()
    async with store_of(bench).transaction() as transaction:
        cursor = await transaction.connection.execute(
            f"SELECT FROM {harness.location.schema}.lease WHERE job_id = %s FOR UPDATE",
            (locked.job.job_id,),
        )
        assert cursor.rowcount == 1
        async with asyncio.timeout(5):
            assert await bench.store.expire_session("worker-1") == 2
        lapsed = await bench.store.expired(limit=10)
        assert [run.token for run in lapsed] == [free.token]
    assert await bench.store.expire_session("worker-1") == 2
    assert {run.token for run in await bench.store.expired(limit=10)} == {locked.token, free.token}

"""Turns of groups of which nothing is Queued any more go, also where nobody claims."""

from collections.abc import AsyncIterator

import pytest

from gantline.stores.postgres import PostgresStore, prune
from gantline.testing.conformance import Bench
from gantline.testing.conformance.bench import HOUR
from tests.harness import PostgresHarness
from tests.servers.postgres import PostgresServer


@pytest.fixture
async def bench(postgres: PostgresServer) -> AsyncIterator[Bench]:
    bench = await Bench.on(PostgresHarness(postgres))
    yield bench
    await bench.close()


async def turns_left(bench: Bench) -> int:
    assert isinstance(bench.store, PostgresStore)
    (row,) = await bench.store.calls.run(lambda sql: sql.rows("SELECT count(*) FROM gantline.turn"))
    return int(row[0])


async def prune_some(bench: Bench, times: int = 1) -> None:
    for _ in range(times):
        await bench.store.prune([], limit=100)


async def test_what_expired_or_was_cancelled_leaves_no_turns(bench: Bench) -> None:
    expires_at = bench.clock.now() + HOUR
    for index in range(6):
        await bench.submit(group=f"expires-{index}", expires_at=expires_at)
        await bench.cancel(await bench.submit(group="cancelled"))
    later = await bench.submit(group="later", delay=3 * HOUR)
    await bench.cancel(await bench.submit(group="cancelled later", delay=3 * HOUR))
    waits = await bench.submit(group="waits", tenant_id="t")
    bench.clock.advance(2 * HOUR)
    assert await bench.manager.expire(limit=100) == 6
    assert await turns_left(bench) == 15
    await prune_some(bench)
    assert await turns_left(bench) == 3
    bench.clock.advance(2 * HOUR)
    await prune_some(bench)
    assert await turns_left(bench) == 2
    assert {run.job.job_id for run in await bench.claim()} == {later, waits}
    assert await turns_left(bench) == 0


async def test_of_a_group_of_which_something_waits_one_turn_stays(bench: Bench) -> None:
    ids = [await bench.submit(group="a") for _ in range(9)]
    last = await bench.submit(group="a", delay=HOUR)
    for job_id in ids:
        await bench.cancel(job_id)
    for _ in range(2):
        await bench.submit(group="b")
    await prune_some(bench)
    assert await turns_left(bench) == 2
    for _ in range(2):
        assert [run.job.group for run in await bench.claim(limit=1)] == ["b"]
    assert await bench.claim() == []
    bench.clock.advance(HOUR)
    assert [run.job.job_id for run in await bench.claim()] == [last]


async def test_a_page_at_a_time_is_checked_round_and_round(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune, "_TURNS", 3)
    for index in range(8):
        job_id = await bench.submit(group=f"{index}")
        if index % 2:
            await bench.cancel(job_id)
    await prune_some(bench)
    assert 4 < await turns_left(bench) < 8
    await prune_some(bench, 2)
    assert await turns_left(bench) == 4
    for index in range(3):
        await bench.cancel(await bench.submit(group=f"more-{index}"))
    await prune_some(bench, 4)
    assert await turns_left(bench) == 4
    assert len(await bench.claim()) == 4

"""Rows that somebody deleted by hand: what is left of a job must not get in the way of others."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from uuid import UUID, uuid4

import pytest

from gantline.contract.results import Duplicate, Renewal
from gantline.contract.retention import Retention
from gantline.contract.status import JobStatus
from gantline.contract.submission import KeyKind
from gantline.manager.pruner import Pruner
from gantline.manager.reaper import Reaped
from gantline.manager.switches import Switches
from gantline.stores.sqlite import SqliteStore
from gantline.testing.conformance import Bench
from gantline.testing.conformance.bench import HOUR, LEASE
from gantline.testing.factories import make_new
from tests.harness import SqliteHarness


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = await Bench.on(SqliteHarness())
    yield bench
    await bench.close()


def remove_by_hand(bench: Bench, *job_ids: UUID) -> None:
    """Delete the jobs' own rows, and nothing of what belongs to them."""
    assert isinstance(bench.store, SqliteStore)
    with closing(sqlite3.connect(bench.store.path)) as connection, connection:
        ids = [(job_id.bytes,) for job_id in job_ids]
        connection.executemany("DELETE FROM gantline_job WHERE id = ?", ids)


async def counted(bench: Bench) -> int:
    return sum((await bench.recount()).values())


async def test_a_lease_without_a_job_is_cleared_by_the_sweep(bench: Bench) -> None:
    await bench.submit_many(3)
    gone = (await bench.claim())[0]
    remove_by_hand(bench, gone.job.job_id)
    assert await bench.reap() == Reaped()
    assert (await bench.recount())["Running"] == 3
    await bench.let_leases_expire()
    assert await bench.reap() == Reaped(requeued=2)
    assert await bench.recount() == dict.fromkeys(JobStatus, 0) | {JobStatus.QUEUED: 2}
    renewal = await bench.store.renew(gone.session, [gone.ref], lease=LEASE)
    assert renewal == Renewal(lost=frozenset({gone.token}))


async def test_the_external_id_of_a_job_that_is_gone_is_free_again(bench: Bench) -> None:
    given = uuid4()
    remove_by_hand(bench, await bench.submit(external_id=given))
    newer = await bench.submit("another", external_id=given)
    again = make_new("another", external_id=given)
    assert await bench.store.insert([again]) == [Duplicate(newer, by=KeyKind.ID)]


async def test_leases_without_jobs_do_not_end_a_sweep_early(bench: Bench) -> None:
    await bench.submit_many(450)
    runs = sorted(await bench.claim(limit=450), key=lambda run: run.job.job_id)
    remove_by_hand(bench, *(run.job.job_id for run in runs[:400]))
    await bench.let_leases_expire()
    assert await bench.reap() == Reaped(requeued=50)


async def test_a_claim_passes_over_what_is_left_of_a_queued_job(bench: Bench) -> None:
    ids = await bench.submit_many(4)
    remove_by_hand(bench, *ids[:2])
    assert {run.job.job_id for run in await bench.claim()} == set(ids[2:])
    assert await counted(bench) == 2


async def test_a_claim_finds_a_job_after_any_number_of_rows_without_one(bench: Bench) -> None:
    remove_by_hand(bench, *await bench.submit_many(60, priority=0))
    job_id = await bench.submit(priority=3)
    assert [run.job.job_id for run in await bench.claim(limit=1)] == [job_id]
    assert await bench.claim(limit=1) == []
    assert await counted(bench) == 1


async def test_what_is_left_of_ended_jobs_is_pruned(bench: Bench) -> None:
    ended = [(await bench.bring_to(JobStatus.COMPLETED))[0] for _ in range(3)]
    remove_by_hand(bench, *ended[:2])
    bench.clock.advance(2 * HOUR)
    pruner = Pruner(bench.store, Switches(bench.store), retention=Retention.split(HOUR, HOUR))
    assert (await pruner.run_once()).jobs == 3
    assert (await pruner.run_once()).jobs == 0
    assert await counted(bench) == 0
    assert await bench.store.events(after=0, limit=10) == []

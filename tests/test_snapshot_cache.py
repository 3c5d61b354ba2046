"""What is read from memory is young, never older than what the same reader saw, and for its tenant
alone."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import pytest

from gantline import Gantline, JobStatus
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.wakeup import Hint
from gantline.stores.memory import MemoryStore
from gantline.testing.clock import FakeClock
from gantline.testing.conformance.bench import Bench
from gantline.wakeups.snapshot_cache import SnapshotCache
from tests.harness import MemoryHarness


class Place:
    """A cache of a tenth of a second before a store, whose reads are counted and can be held."""

    def __init__(self, bench: Bench, *, seconds: float = 0.1, most: int = 100) -> None:
        self.bench = bench
        self.reads = self.asked = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.has_read = asyncio.Event()
        self.cache = SnapshotCache(
            self, seconds=seconds, monotonic=bench.clock.monotonic, ask=self.ask, most=most
        )

    def ask(self) -> None:
        self.asked += 1

    async def get(
        self, job_ids: Sequence[UUID], *, tenant_id: str | None
    ) -> list[JobSnapshot | None]:
        self.reads += 1
        found = await self.bench.store.get(job_ids, tenant_id=tenant_id)
        self.has_read.set()
        await self.may_answer.wait()
        return found

    async def status(self, job_id: UUID, tenant_id: str | None = "default") -> JobStatus | None:
        (job,) = await self.cache.get([job_id], tenant_id=tenant_id)
        return None if job is None else job.status


@pytest.fixture
async def bench() -> Bench:
    return await Bench.on(MemoryHarness())


async def test_without_the_setting_every_read_is_one_of_the_store(bench: Bench) -> None:
    place = Place(bench, seconds=0)
    job_id = await bench.submit()
    for _ in range(3):
        await place.status(job_id)
    assert place.reads == 3


async def test_a_status_is_at_most_so_old(bench: Bench) -> None:
    place = Place(bench)
    job_id = await bench.submit()
    assert await place.status(job_id) is JobStatus.QUEUED
    await bench.claim()
    bench.clock.advance(timedelta(milliseconds=99))
    assert await place.status(job_id) is JobStatus.QUEUED
    assert place.reads == 1
    bench.clock.advance(timedelta(milliseconds=1))
    assert await place.status(job_id) is JobStatus.RUNNING


async def test_another_tenant_and_the_system_read_the_store(bench: Bench) -> None:
    place = Place(bench)
    job_id = await bench.submit()
    await place.status(job_id)
    assert await place.status(job_id, "other") is None
    assert await place.status(job_id, None) is JobStatus.QUEUED
    assert place.reads == 3


@pytest.mark.parametrize("hint", [Hint.ENDED, Hint.CANCEL])
async def test_a_hint_of_ends_lets_what_has_not_ended_be_read_again(
    bench: Bench, hint: Hint
) -> None:
    place = Place(bench)
    (ended, _), running = await bench.bring_to(JobStatus.COMPLETED), await bench.start()
    await place.status(ended)
    await place.status(running.job.job_id)
    assert place.asked == 1, "workers notify only while somebody asks them to"
    await bench.finish(running)
    place.cache.on_hint(hint)
    assert await place.status(running.job.job_id) is JobStatus.COMPLETED
    await place.status(ended)
    assert place.reads == 3, "what has ended stays"


async def test_a_read_that_began_before_a_change_is_not_kept(bench: Bench) -> None:
    place = Place(bench)
    run = await bench.start()
    place.may_answer.clear()
    reading = asyncio.create_task(place.status(run.job.job_id))
    await place.has_read.wait()
    await bench.finish(run)
    place.cache.forget([run.job.job_id])
    place.may_answer.set()
    assert await reading is JobStatus.RUNNING, "it was so when it was asked"
    assert await place.status(run.job.job_id) is JobStatus.COMPLETED


async def test_an_older_read_that_comes_late_does_not_replace_a_newer_one(bench: Bench) -> None:
    place = Place(bench)
    run = await bench.start()
    place.may_answer.clear()
    slow = asyncio.create_task(place.status(run.job.job_id))
    await place.has_read.wait()
    await bench.finish(run)
    place.may_answer.set()
    newer = asyncio.create_task(place.status(run.job.job_id, None))
    assert {await newer, await slow} == {JobStatus.COMPLETED, JobStatus.RUNNING}
    assert await place.status(run.job.job_id) is JobStatus.COMPLETED


async def test_it_keeps_only_so_many(bench: Bench) -> None:
    place = Place(bench, most=10)
    ids = await bench.submit_many(30)
    for job_id in ids:
        await place.status(job_id)
        kept = sum(place.cache.find(one, "default") is not None for one in ids)
        assert 1 <= kept <= 5
    assert await place.status(ids[-1]) is JobStatus.QUEUED
    assert place.reads == 30


async def test_handles_of_one_process_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANTLINE_READ_CACHE_SECONDS", "0.2")
    clock = FakeClock()
    jobs = Gantline(MemoryStore(clock=clock))
    jobs.clock = clock

    @jobs.job("quick")
    async def quick() -> None: ...

    async with asyncio.timeout(30), jobs:
        handle = await quick.submit()
        first = await handle.status()
        assert await handle.status() is first
        assert await handle.cancel() is JobStatus.CANCELLED
        assert (await handle.status()).status is JobStatus.CANCELLED, "its own change"
        async with jobs.running():
            handle = await quick.submit()
            await handle.wait()
            assert (await handle.status()).status is JobStatus.COMPLETED, "never back"

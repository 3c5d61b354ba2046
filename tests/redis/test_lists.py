"""Lists that are merged from many, each longer than what is read of it at once."""

import random
import re
from datetime import timedelta
from uuid import UUID

import pytest

from gantline.contract.query import Cursor, JobFilter
from gantline.testing.conformance.bench import Bench
from gantline.testing.factories import CREATED_AT, make_new
from tests.harness import MemoryHarness, RedisHarness
from tests.servers.redis import RedisServer

TYPES = ("a", "b", "c", "d", "e")
TENANTS = ("one", "two", "three")
ROOT, PARENT = UUID(int=5), UUID(int=6)


@pytest.mark.parametrize(
    "job_filter",
    [JobFilter(correlation_id=str(ROOT)), JobFilter(parent_job_id=PARENT)],
    ids=["correlation", "parent"],
)
async def test_a_search_by_what_few_have_in_common_reads_only_those(job_filter: JobFilter) -> None:
    server = RedisServer()
    bench = await Bench.on(RedisHarness(server))
    await bench.submit_many(500)
    kin = [make_new(n, correlation_id=str(ROOT), parent_job_id=PARENT) for n in range(3)]
    await bench.store.insert(kin)
    server.call("CONFIG", "RESETSTAT")
    found = await bench.store.find(job_filter, limit=100)
    assert {job.job.job_id for job in found.items} == {new.job.job_id for new in kin}
    (read,) = re.findall(rb"cmdstat_hget:calls=(\d+)", server.call("INFO", "commandstats"))
    assert int(read) < 50
    await bench.close()
    server.stop()


@pytest.mark.parametrize("limit", [3, 100, 700])
async def test_a_claim_over_many_types_takes_the_oldest_of_all(
    redis: RedisServer, limit: int
) -> None:
    """Of each type it reads a few at a time."""
    bench, oracle = await Bench.on(RedisHarness(redis)), await Bench.on(MemoryHarness())
    chance = random.Random(2)
    jobs = [
        make_new(
            number,
            job_id=UUID(int=chance.getrandbits(128)),
            job_type=chance.choice(TYPES),
            priority=chance.choice((1, 2, 2, 2)),
            delay=timedelta(seconds=chance.randrange(20)),
        )
        for number in range(1000)
    ]
    for one in (bench, oracle):
        await one.store.insert(jobs)
        one.clock.advance(10)
    for _ in range(2):
        expected, started = [
            [run.job.job_id for run in await one.claim(*TYPES, limit=limit)]
            for one in (oracle, bench)
        ]
        assert started == expected
    await bench.close()


async def test_a_page_passes_over_a_bounded_number_of_jobs(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has no list of its own is looked for in steps, and nothing is lost between them."""
    monkeypatch.setattr("gantline.stores.redis.query._MOST_PASSED_OVER", 100)
    bench = await Bench.on(RedisHarness(redis))
    await bench.store.insert([make_new(number, job_type="a") for number in range(5)])
    begun = {run.job.job_id for run in await bench.claim("a")}
    later = CREATED_AT + timedelta(hours=1)
    await bench.store.insert([make_new(number, created_at=later) for number in range(250)])
    pages: list[set[UUID]] = []
    after: Cursor | None = None
    while not pages or after:
        found = await bench.store.find(JobFilter(min_attempts=1), limit=3, after=after)
        pages.append({job.job.job_id for job in found.items})
        after = found.next
    assert [len(page) for page in pages] == [0, 0, 3, 2]
    assert {job_id for page in pages for job_id in page} == begun
    await bench.close()

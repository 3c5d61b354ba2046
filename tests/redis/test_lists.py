"""Lists that are merged from many, each longer than what is read of it at once."""

import random
import re
from datetime import timedelta
from uuid import UUID

import pytest

from gantline.contract.query import Cursor, JobFilter, Visibility
from gantline.contract.status import DerivedState, JobStatus
from gantline.contract.submission import NewJob
from gantline.testing.conformance.bench import Bench
from gantline.testing.conformance.reading import all_pages
from gantline.testing.factories import CREATED_AT, make_new
from tests.harness import MemoryHarness, RedisHarness
from tests.servers.redis import RedisServer

TYPES = ("a", "b", "c", "d", "e")
TENANTS = ("one", "two", "three")
ROOT, PARENT = UUID(int=5), UUID(int=6)

FILTERS = {
    "everything": JobFilter(tenant_id=None),
    "a tenant": JobFilter(tenant_id="one"),
    "types": JobFilter(tenant_id="two", job_types=frozenset({"a", "c"})),
    "a span of time": JobFilter(
        tenant_id=None,
        created_from=CREATED_AT + timedelta(minutes=20),
        created_before=CREATED_AT + timedelta(minutes=70),
    ),
    "what has no list of its own": JobFilter(tenant_id=None, subject_id="s1", created_by="me"),
    "a correlation": JobFilter(tenant_id=None, correlation_id="7"),
    "a correlation that is a job": JobFilter(
        tenant_id=None,
        correlation_id=str(ROOT),
        created_from=CREATED_AT + timedelta(minutes=20),
    ),
    "children": JobFilter(tenant_id=None, parent_job_id=PARENT),
    "one's own": JobFilter(
        tenant_id=None,
        visible_to=Visibility(tenant_id=None, owner="me", subjects=frozenset({"s1", "s2"})),
    ),
    "a subject of every tenant": JobFilter(tenant_id=None, subject_id="s3"),
    "what was begun": JobFilter(tenant_id=None, min_attempts=1),
    "Scheduled": JobFilter(tenant_id=None, statuses=frozenset({DerivedState.SCHEDULED})),
    "due before": JobFilter(tenant_id="one", due_before=CREATED_AT + timedelta(hours=2)),
    "Running": JobFilter(tenant_id=None, statuses=frozenset({JobStatus.RUNNING})),
}


def some_jobs() -> list[NewJob]:
    """Few instants, so that many jobs share one."""
    chance = random.Random(1)
    return [
        make_new(
            number,
            job_type=chance.choice(TYPES),
            tenant_id=chance.choice(TENANTS),
            created_by=chance.choice(("", "me", "you")),
            subject_id=chance.choice(("", "s1", "s2", "s3")),
            correlation_id=str(ROOT) if number % 25 == 3 else str(number % 50),
            parent_job_id=PARENT if number % 3 == 1 else None,
            created_at=CREATED_AT + timedelta(minutes=chance.randrange(100)),
            delay=timedelta(hours=number % 3),
        )
        for number in range(1500)
    ] + [
        # In the middle of those that name it.
        make_new(
            job_id=ROOT, correlation_id=str(ROOT), created_at=CREATED_AT + timedelta(minutes=50)
        )
    ]


@pytest.mark.parametrize("name", FILTERS)
async def test_no_page_loses_a_job_or_breaks_the_order(redis: RedisServer, name: str) -> None:
    """The memory store looks at every job each time."""
    bench, oracle = await Bench.on(RedisHarness(redis)), await Bench.on(MemoryHarness())
    jobs = some_jobs()
    for one in (bench, oracle):
        await one.store.insert(jobs)
        assert len(await one.claim("a", "b", limit=200)) == 200
    expected = [job.job.job_id for job in await all_pages(oracle, FILTERS[name], 1500)]
    assert len(expected) >= 20
    for limit in (7, 33, 250):
        found = await all_pages(bench, FILTERS[name], limit)
        assert [job.job.job_id for job in found] == expected
    await bench.close()


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

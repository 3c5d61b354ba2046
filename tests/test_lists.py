"""Lists: nothing is lost between pages, and what a page reads is bounded."""

import random
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from gantline.contract.clock import SystemClock
from gantline.contract.query import Cursor, JobFilter, Page, Visibility
from gantline.contract.status import DerivedState, JobStatus
from gantline.contract.store import JobReader
from gantline.contract.submission import NewJob
from gantline.stores.postgres import query as postgres_query
from gantline.stores.sqlite import open_store
from gantline.stores.sqlite import query as sqlite_query
from gantline.testing.conformance.bench import Bench
from gantline.testing.factories import CREATED_AT, make_new
from tests.harness import MemoryHarness, PostgresHarness, RedisHarness, SqliteHarness

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
    "Running of a tenant": JobFilter(tenant_id="one", statuses=frozenset({JobStatus.RUNNING})),
    "Queued of a type": JobFilter(
        tenant_id="one", statuses=frozenset({JobStatus.QUEUED}), job_types=frozenset({"a"})
    ),
    "two states of a subject": JobFilter(
        tenant_id="one",
        subject_id="s2",
        statuses=frozenset({JobStatus.QUEUED, JobStatus.RUNNING}),
    ),
    "a subject that another submitted": JobFilter(
        tenant_id="two", subject_id="s1", created_by="you"
    ),
    "an owner's of a type": JobFilter(
        tenant_id="two", created_by="me", job_types=frozenset({"c", "d"})
    ),
    "one's own of an owner": JobFilter(
        tenant_id="one",
        created_by="you",
        visible_to=Visibility(tenant_id="one", owner="me", subjects=frozenset({"s1", "s2"})),
    ),
    "one's own that wait": JobFilter(
        tenant_id="three",
        statuses=frozenset({JobStatus.QUEUED}),
        visible_to=Visibility(tenant_id="three", owner="me", subjects=frozenset({"s3"})),
    ),
    "a tenant's children in a span of time": JobFilter(
        tenant_id="two",
        parent_job_id=PARENT,
        created_from=CREATED_AT + timedelta(minutes=10),
        created_before=CREATED_AT + timedelta(minutes=80),
    ),
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


Harness = SqliteHarness | PostgresHarness | RedisHarness


@pytest.fixture(params=["sqlite", "postgres", "redis"])
async def filled(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Bench, Bench]]:
    """A store that passes over a few jobs only, and beside it the memory store, with the same."""
    for query in (sqlite_query, postgres_query):
        monkeypatch.setattr(query, "PASSED_OVER", (3, 20))
        monkeypatch.setattr(query, "_FEW", 5)
    monkeypatch.setattr(sqlite_query, "_MOST_SORTED", 50)
    monkeypatch.setattr("gantline.stores.redis.query._MOST_PASSED_OVER", 20)
    harness: Harness
    match request.param:
        case "sqlite":
            harness = SqliteHarness()
        case "postgres":
            harness = PostgresHarness(request.getfixturevalue("postgres"))
        case _:
            harness = RedisHarness(request.getfixturevalue("redis"))
    bench, oracle = await Bench.on(harness), await Bench.on(MemoryHarness())
    jobs = some_jobs()
    for one in (bench, oracle):
        await one.store.insert(jobs)
        # All that are due, since of which tenant's a claim takes first, each store has its own way.
        assert len(await one.claim("a", "b", limit=200)) > 150
        await one.claim("a", "b", limit=200)
    yield bench, oracle
    await bench.close()


async def pages_of(store: JobReader, job_filter: JobFilter, limit: int) -> list[Page]:
    pages: list[Page] = []
    after: Cursor | None = None
    while not pages or after:
        pages.append(await store.find(job_filter, limit=limit, after=after))
        after = pages[-1].next
    return pages


def ids_of(pages: list[Page]) -> list[UUID]:
    return [job.job.job_id for page in pages for job in page.items]


async def test_no_page_loses_a_job_or_breaks_the_order(filled: tuple[Bench, Bench]) -> None:
    """The memory store looks at every job each time."""
    bench, oracle = filled
    for name, job_filter in FILTERS.items():
        expected = ids_of(await pages_of(oracle.store, job_filter, 1500))
        assert len(expected) >= 20, name
        for limit in (7, 33, 250):
            found = await pages_of(bench.store, job_filter, limit)
            assert ids_of(found) == expected, (name, limit)
            assert all(len(page.items) <= limit for page in found), (name, limit)


async def test_what_is_rare_is_found_over_many_short_pages(filled: tuple[Bench, Bench]) -> None:
    """A search that read all jobs of a tenant at once kept the searches of others waiting."""
    bench, _ = filled
    rare = JobFilter(tenant_id="one", job_types=frozenset({"a"}), min_attempts=7)
    pages = await pages_of(bench.store, rare, 10)
    assert ids_of(pages) == []
    assert len(pages) >= 4  # some 100 jobs of that tenant and type, 20 for a page


@pytest.mark.parametrize(
    "job_filter",
    [
        JobFilter(correlation_id="none"),
        JobFilter(job_types=frozenset({"none"})),
        JobFilter(created_by="me", min_attempts=1),
        JobFilter(subject_id="s1", created_by="none"),
        JobFilter(statuses=frozenset({JobStatus.QUEUED}), parent_job_id=PARENT),
        JobFilter(statuses=frozenset({DerivedState.RETRYING}), internal=False),
        JobFilter(visible_to=Visibility(owner="me"), min_attempts=1),
    ],
    ids=str,
)
async def test_on_sqlite_a_page_takes_no_more_steps_for_more_jobs(
    job_filter: JobFilter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_query, "PASSED_OVER", (10, 100))
    monkeypatch.setattr(sqlite_query, "_FEW", 5)
    monkeypatch.setattr(sqlite_query, "_MOST_SORTED", 100)
    store = open_store(f"sqlite:///{tmp_path / 'gantline.db'}", clock=SystemClock())
    await store.open()
    steps = []
    with closing(sqlite3.connect(tmp_path / "gantline.db")) as connection:
        for jobs in (500, 3_000):
            await store.insert(
                [make_new(jobs + n, subject_id="s1", created_by="me") for n in range(jobs)]
            )
            taken: list[None] = []
            connection.set_progress_handler(lambda: taken.append(None), 100)  # noqa: B023
            page = sqlite_query.find(connection, job_filter, limit=5, after=None, now=0)
            connection.set_progress_handler(None, 0)
            assert page.items == ()
            assert page.next
            steps.append(len(taken))
    assert steps[1] <= 1.2 * steps[0] + 5
    await store.close()

"""No verb reads more rows than it works on, with a million jobs behind it.

The server itself counts the rows that a transaction has read, so a plan that scans or sorts a table
is caught whatever it looks like.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
import pytest_asyncio

from gantline.api.requests import JobQuery
from gantline.api.searching import filter_of
from gantline.contract.clock import from_micros
from gantline.contract.outcome import Success
from gantline.contract.query import Cursor, JobFilter, PruneRule, Visibility
from gantline.contract.snapshot import Progress
from gantline.contract.status import JobStatus
from gantline.contract.transition import StateGuard, Transition
from gantline.stores.postgres import PostgresStore
from gantline.stores.postgres.calls import Calls
from gantline.stores.postgres.location import parse_url
from gantline.stores.postgres.sql import Sql
from gantline.testing.factories import CREATED_AT, lane_requests, make_new, register_sessions
from tests.servers.postgres import PostgresServer

pytestmark = [
    pytest.mark.wide,
    pytest.mark.xdist_group("postgres_at_a_million"),
    pytest.mark.timeout(400),
    pytest.mark.asyncio(loop_scope="module"),
]

MILLION = 1_000_000
LEASE = timedelta(minutes=5)
# The rows a verb works on (20 to 50) in every table it touches, the root pages of what it looks up.
MOST_ROWS = 1_000

# But for the lanes: there is one for a queue and a type, however many jobs are in it.
_READ = """
SELECT relname, seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables
WHERE schemaname = %s AND relname <> 'lane' AND seq_tup_read + coalesce(idx_tup_fetch, 0) > 0
"""
# Pending, due in a year and of the highest priority, of a type that nobody asks for, and finished.
# One tenant has a fifth of all; half of its jobs have one owner, the others have a hundred.
_FILL = """
INSERT INTO gantline.lane (queue, job_type) VALUES ('default', 'test'), ('default', 'paused');
CREATE TEMP TABLE made AS
SELECT gen_random_uuid() AS id, n, CASE WHEN n % 10 = 0 THEN 2 ELSE 1 END AS lane,
       1700000000000000 + n AS created_at,
       CASE WHEN n % 10 IN (6, 7) THEN 'large' ELSE 'tenant-' || n % 1000 END AS tenant,
       CASE WHEN n % 10 NOT IN (6, 7) THEN '' WHEN n % 40 < 20 THEN 'big'
            ELSE 'small-' || n % 1000 END AS owner,
       CASE WHEN n % 10 NOT IN (6, 7) THEN '' ELSE 'subject-' || n % 5000 END AS subject,
       CASE WHEN n % 2 = 0 THEN 'done' WHEN n % 10 = 1 THEN 'future' ELSE 'due' END AS state
FROM generate_series(1, %(jobs)s) AS n;
INSERT INTO gantline.job (
    id, tenant, lane, subject, correlation, idempotency_key, fingerprint, attempt, max_attempts,
    payload, payload_version, priority, created_at, created_by)
SELECT id, tenant, lane, subject, '', '', '', 1, 3, '{}', 1, 2, created_at, owner FROM made;
INSERT INTO gantline.ready (
    lane, run_at, version, fence, created_at, attempt, crashes, snoozes, priority, keyed, job_id,
    tenant)
SELECT lane, CASE state WHEN 'due' THEN created_at ELSE 4000000000000000 + n END, 1, 0, created_at,
       0, 0, 0, CASE state WHEN 'due' THEN 2 ELSE 0 END, false, id, tenant
FROM made WHERE state <> 'done';
INSERT INTO gantline.log (
    version, lane, fence, at, created_at, event, status, attempt, crashes, snoozes, priority,
    is_end, job_id, change_id, tenant, reason, session, actor)
SELECT 2, lane, 1, created_at + 5, created_at, 'completed', 'Completed', 1, 0, 0, 2, true, id, id,
       tenant, 'Succeeded', '', ''
FROM made WHERE state = 'done';
INSERT INTO gantline.tally (lane, live, completed, failed, poisoned, cancelled, tenant)
SELECT lane, count(*) FILTER (WHERE state <> 'done'), count(*) FILTER (WHERE state = 'done'),
       0, 0, 0, tenant
FROM made GROUP BY tenant, lane;
"""


class CountedCalls(Calls):
    """Notes how many rows every piece of work has read, table by table."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.read: dict[str, int] = {}

    async def run(self, work: Callable[[Sql], Awaitable[Any]], **options: Any) -> Any:
        async def counted(sql: Sql) -> Any:
            before: dict[str, int] = dict(await sql.rows(_READ, self._location.schema))
            answer = await work(sql)
            for table, rows in await sql.rows(_READ, self._location.schema):
                self.read[table] = self.read.get(table, 0) + rows - before.get(table, 0)
            return answer

        return await super().run(counted, **options | {"atomic": True})


class Deep:
    """A store with a million jobs, and what a verb on it has read."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store

    async def read_by(self, verb: Awaitable[Any]) -> dict[str, int]:
        calls = self.store.calls
        assert isinstance(calls, CountedCalls)
        calls.read.clear()
        await verb
        return dict(calls.read)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def deep(postgres: PostgresServer) -> AsyncIterator[Deep]:
    location = parse_url(postgres.url(schema=f"w{uuid4().hex}", deadline="300"))
    store = PostgresStore(location, make_calls=CountedCalls)
    await store.open()

    async def fill(sql: Sql) -> None:
        for statement in _FILL.replace("%(jobs)s", str(MILLION)).split(";\n"):
            await sql.script(statement)

    await store.calls.run(fill)
    await register_sessions(store, "w")
    yield Deep(store)
    await store.calls.run(lambda sql: sql.script(f"DROP SCHEMA {location.schema} CASCADE"))
    await store.close()


async def started(deep: Deep, jobs: int = 20) -> list[Any]:
    return await deep.store.claim("w", uuid4(), lane_requests("test", limit=jobs), lease=LEASE)


async def test_a_claim_reads_what_it_takes(deep: Deep) -> None:
    for _ in range(8):  # the plans of a function are made anew for its first calls
        read = await deep.read_by(started(deep, 50))
        assert sum(read.values()) <= MOST_ROWS, read


async def test_a_claim_over_many_types_reads_what_it_takes(deep: Deep) -> None:
    kinds = ("test", *(f"kind-{number}" for number in range(100)))
    verb = deep.store.claim("w", uuid4(), lane_requests(*kinds, limit=50), lease=LEASE)
    read = await deep.read_by(verb)
    assert sum(read.values()) <= MOST_ROWS, read


async def test_a_claim_with_limits_of_types_reads_what_it_takes(deep: Deep) -> None:
    for _ in range(8):
        limited = lane_requests("test", "paused", limit=50, at_most={"test": 20, "paused": 0})
        read = await deep.read_by(deep.store.claim("w", uuid4(), limited, lease=LEASE))
        assert sum(read.values()) <= MOST_ROWS, read


async def test_a_claim_for_suspects_reads_nothing_where_there_are_none(deep: Deep) -> None:
    for _ in range(8):
        suspects = lane_requests("test", "paused", limit=50, suspects=(8, 4))
        read = await deep.read_by(deep.store.claim("w", uuid4(), suspects, lease=LEASE))
        assert sum(read.values()) == 0, read


async def test_a_claim_for_suspects_reads_what_it_takes(deep: Deep) -> None:
    crashed = "UPDATE gantline.ready SET crashes = crashes + 2 WHERE created_at % 1000 = 3"
    await deep.store.calls.run(lambda sql: sql.script(crashed))
    for _ in range(8):
        suspects = lane_requests("test", "paused", limit=50, suspects=(20,))
        read = await deep.read_by(deep.store.claim("w", uuid4(), suspects, lease=LEASE))
        assert sum(read.values()) <= MOST_ROWS, read


async def test_ending_runs_reads_those_runs(deep: Deep) -> None:
    for _ in range(8):
        runs = await started(deep)
        ends = [Transition.completed(run, Success(), hold_key=LEASE) for run in runs]
        read = await deep.read_by(deep.store.apply(ends))
        assert sum(read.values()) <= MOST_ROWS, read


async def test_submitting_reads_nothing_old(deep: Deep) -> None:
    for number in range(8):
        jobs = [make_new(n, idempotency_key=f"{number}-{n}") for n in range(20)]
        read = await deep.read_by(deep.store.insert(jobs))
        assert sum(read.values()) <= MOST_ROWS, read


async def test_renewing_and_progress_read_those_runs(deep: Deep) -> None:
    runs = [run.ref for run in await started(deep)]
    for verb in (
        deep.store.renew("w", runs, lease=LEASE),
        deep.store.progress([Progress(run, 50.0) for run in runs]),
    ):
        read = await deep.read_by(verb)
        assert sum(read.values()) <= MOST_ROWS, read


async def test_a_sweep_reads_each_lease_twice_and_no_job(deep: Deep) -> None:
    await started(deep)
    ((leases,),) = await deep.store.calls.run(
        lambda sql: sql.rows("SELECT count(*) FROM gantline.lease")
    )
    read = await deep.read_by(deep.store.expired(limit=20))
    assert sum(read.values()) == read["lease"] <= 2 * leases, read


async def test_what_expires_is_found_without_what_does_not(deep: Deep) -> None:
    read = await deep.read_by(deep.store.past_expiry(limit=20))
    assert sum(read.values()) == 0
    await deep.store.insert([make_new(expires_at=CREATED_AT) for _ in range(40)])
    read = await deep.read_by(deep.store.past_expiry(limit=20))
    assert sum(read.values()) <= MOST_ROWS


def own(owner: str, *subjects: str, status: JobStatus | None = None) -> JobFilter:
    return JobFilter(
        tenant_id="large",
        statuses=frozenset({status} if status else ()),
        visible_to=Visibility(tenant_id="large", owner=owner, subjects=frozenset(subjects)),
    )


FILTERS = {
    "all of a tenant": JobFilter(tenant_id="tenant-1"),
    "waiting": JobFilter(tenant_id="tenant-1", statuses=frozenset({JobStatus.QUEUED})),
    "running": JobFilter(tenant_id="tenant-1", statuses=frozenset({JobStatus.RUNNING})),
    "finished": JobFilter(tenant_id="tenant-2", statuses=frozenset({JobStatus.COMPLETED})),
    "dead": JobFilter(
        tenant_id="tenant-1", statuses=frozenset({JobStatus.FAILED, JobStatus.POISONED})
    ),
    "one's own": own("small-26"),
    "those of one who has many": own("big"),
    "those of one who has none": own("nobody"),
    "granted ones": own("nobody", "subject-7", "subject-2006", "subject-1"),
    "one's own and granted ones": own("small-26", "subject-7", "subject-2006"),
    "one's own that wait": own("small-27", status=JobStatus.QUEUED),
    "one's own that are finished": own("small-26", "subject-6", status=JobStatus.COMPLETED),
    "many of one's own that are finished": own("big", status=JobStatus.COMPLETED),
    "one's own that are dead": own("small-26", "subject-6", status=JobStatus.FAILED),
    "the dead of one who has many": own("big", status=JobStatus.FAILED),
    "the dead of one who has none": own("nobody", status=JobStatus.COMPLETED),
    "a span of time": JobFilter(
        tenant_id="tenant-1",
        created_from=from_micros(1700000000000000 + MILLION - 50),
        min_attempts=5,
    ),
    "a span of time, of those that have finished": JobFilter(
        tenant_id="tenant-2",
        statuses=frozenset({JobStatus.COMPLETED}),
        created_from=from_micros(1700000000000000 + MILLION - 50),
        min_attempts=5,
    ),
    "the errors of a tenant that has none": filter_of(JobQuery(error_code=["BROKEN"]), "tenant-2"),
    "those that somebody submitted": JobFilter(tenant_id="large", created_by="small-26"),
}


@pytest.mark.parametrize("job_filter", FILTERS.values(), ids=FILTERS)
async def test_a_page_reads_a_page(deep: Deep, job_filter: JobFilter) -> None:
    cursor = Cursor(from_micros(1700000000000000 + MILLION // 2), UUID(int=0))
    for after in (None, cursor):
        read = await deep.read_by(deep.store.find(job_filter, limit=20, after=after))
        assert sum(read.values()) <= MOST_ROWS, read


@pytest.mark.parametrize(
    "job_filter",
    [
        JobFilter(tenant_id="large", correlation_id="none"),
        JobFilter(tenant_id="large", min_attempts=5),
        JobFilter(tenant_id="large", statuses=frozenset({JobStatus.COMPLETED}), min_attempts=5),
        JobFilter(tenant_id="large", created_by="big", min_attempts=5),
        JobFilter(tenant_id="large", visible_to=own("big").visible_to, min_attempts=5),
    ],
    ids=str,
)
async def test_a_search_for_what_is_rare_reads_a_bounded_part(
    deep: Deep, job_filter: JobFilter
) -> None:
    """Of 200,000 jobs of the tenant; a look at one of them reads a few rows of other tables."""
    read = await deep.read_by(deep.store.find(job_filter, limit=20))
    assert sum(read.values()) <= 5 * 20_300, read


async def test_the_jobs_of_a_tenant_are_counted_by_their_sums(deep: Deep) -> None:
    read = await deep.read_by(deep.store.counts(tenant_id="tenant-2"))
    assert read.get("job", 0) + read.get("log", 0) == 0, read
    assert read["tally"] <= 2, read


async def test_taking_old_jobs_out_reads_those_jobs(deep: Deep) -> None:
    long_ago = from_micros(1700000000000000 + MILLION)
    rules = [PruneRule(JobStatus.COMPLETED, long_ago)]
    await deep.store.prune([], limit=1)  # folds what earlier tests have counted
    read = await deep.read_by(deep.store.prune(rules, limit=20))
    assert sum(read.values()) <= MOST_ROWS, read
    page = await deep.store.find(FILTERS["finished"], limit=20)
    jobs = [(job.job.job_id, StateGuard(job.status, job.job.tenant_id)) for job in page.items]
    read = await deep.read_by(deep.store.delete(jobs))
    assert sum(read.values()) <= MOST_ROWS, read


async def test_numbering_events_reads_those_rows(deep: Deep) -> None:
    await deep.store.sequence(limit=100)
    read = await deep.read_by(deep.store.sequence(limit=100))
    assert sum(read.values()) <= MOST_ROWS, read
    read = await deep.read_by(deep.store.events(after=50, limit=20))
    assert sum(read.values()) <= MOST_ROWS, read


async def test_records_of_a_prefix_are_read_without_those_behind_it(deep: Deep) -> None:
    many = """
    INSERT INTO gantline.record (namespace, key, value, replaced)
    SELECT 'audit', 'm/' || lpad(n::text, 16, '0'), 'x', 0 FROM generate_series(1, 20000) AS n;
    ANALYZE gantline.record;
    """
    await deep.store.calls.run(lambda sql: sql.script(many))
    last = "m/" + "20000".zfill(16)
    for prefix, after in (("a/", ""), ("m/", last), ("m/", "m/" + "500".zfill(16)), ("z/", "")):
        read = await deep.read_by(
            deep.store.read_records("audit", prefix=prefix, after=after, limit=10)
        )
        assert sum(read.values()) <= 20, (prefix, read)

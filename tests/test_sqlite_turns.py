"""Turns, limits and gates on SQLite: what a claim reads, and what is left of it in the file."""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from uuid import uuid4

import pytest

from gantline.contract.flow import TypeFlow
from gantline.contract.query import LaneRequest
from gantline.contract.snapshot import Run
from gantline.stores.migrations import load_migrations
from gantline.stores.sqlite import SqliteStore, due, limits, turns
from gantline.stores.sqlite.schema import PACKAGE, migrate
from gantline.testing.conformance import Bench
from gantline.testing.conformance.bench import HOUR
from gantline.testing.factories import JOB_TYPE, make_new
from tests.harness import SqliteHarness

TABLES = ("turn", "tenant_turn", "grouped", "lease", "ready")


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = await Bench.on(SqliteHarness())
    yield bench
    await bench.close()


async def execute(bench: Bench, statement: str, *values: object) -> list[tuple[object, ...]]:
    store = bench.store
    assert isinstance(store, SqliteStore)
    return await store._parts.writer.run(
        lambda connection: connection.execute(statement, values).fetchall()
    )


async def count(bench: Bench, table: str) -> int:
    return len(await execute(bench, f"SELECT 1 FROM gantline_{table}"))  # noqa: S608  # a constant


@contextmanager
def empty() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        yield connection


# -- what is left ---------------------------------------------------------------------------------


async def test_when_all_has_ended_no_turn_is_left(bench: Bench) -> None:
    for index in range(5):
        await bench.submit_many(2, group=f"group-{index}", tenant_id="t", priority=index % 4)
        await bench.submit_many(2, group=f"group-{index}", job_type="other")
    cancelled = await bench.submit(group="cancelled")
    await bench.cancel(cancelled)
    while runs := await bench.claim(JOB_TYPE, "other", limit=3):
        for run in runs:
            await bench.finish(run)
    assert {table: await count(bench, table) for table in TABLES} == dict.fromkeys(TABLES, 0)


async def test_a_queue_without_groups_has_no_rows_of_turns_but_its_floors(bench: Bench) -> None:
    await bench.submit_many(3)
    await bench.claim(limit=2)
    assert await count(bench, "turn") == 1
    assert [await count(bench, table) for table in ("tenant_turn", "grouped", "rotation")] == [
        0
    ] * 3


async def test_every_queued_job_has_a_turn_and_who_is_in_line_has_a_tenant(bench: Bench) -> None:
    for index in range(12):
        await bench.submit(
            group=f"group-{index % 5}",
            tenant_id="tu"[index % 2],
            delay=HOUR * (index % 3),
            job_type=(JOB_TYPE, "other")[index % 4 // 2],
        )
    flow = (TypeFlow(job_type=JOB_TYPE, running=1),)
    for _ in range(6):
        runs = await bench.claim(JOB_TYPE, "other", limit=2, flow=flow)
        lost = await execute(
            bench,
            """
            SELECT ready.job_id FROM gantline_ready AS ready WHERE NOT EXISTS (
                SELECT 1 FROM gantline_turn AS turn
                WHERE turn.lane = ready.lane AND turn.rank = ready.rank AND turn.grp = ready.grp
                  AND (turn.run_at, turn.job_id) <= (ready.run_at, ready.job_id))
            """,
        )
        alone = await execute(
            bench,
            """
            SELECT turn.grp FROM gantline_turn AS turn WHERE turn.state = 1 AND NOT EXISTS (
                SELECT 1 FROM gantline_tenant_turn AS tenant
                WHERE tenant.queue = turn.queue AND tenant.rank = turn.rank
                  AND tenant.lane = turn.lane AND tenant.tenant = turn.tenant)
            """,
        )
        assert (lost, alone) == ([], [])
        for run in runs:
            await bench.finish(run)
        bench.clock.advance(HOUR / 2)


async def test_a_place_whose_lease_was_removed_by_hand_is_found_by_the_sweep(bench: Bench) -> None:
    await bench.submit_many(2, group="a")
    flow = (TypeFlow(job_type=JOB_TYPE, running=1),)
    assert len(await bench.claim(flow=flow)) == 1
    await execute(bench, "DELETE FROM gantline_lease")
    assert await bench.claim(flow=flow) == []
    await bench.store.expired(limit=10)
    assert len(await bench.claim(flow=flow)) == 1


async def test_a_group_is_not_full_by_jobs_that_were_removed_by_hand(bench: Bench) -> None:
    ids = await bench.submit_many(2, group="a")
    await execute(bench, "DELETE FROM gantline_job WHERE id = ?", ids[0].bytes)
    flow = (TypeFlow(job_type=JOB_TYPE, running=1),)
    assert [run.job.job_id for run in await bench.claim(flow=flow)] == [ids[1]]


async def test_what_ran_before_a_limit_was_set_counts(bench: Bench) -> None:
    await bench.submit_many(2, group="a")
    await bench.submit_many(2, group="a", queue="other")
    await bench.claim(limit=1)
    flow = (TypeFlow(job_type=JOB_TYPE, running=2),)
    assert len(await bench.claim(flow=flow)) == 1
    requests = [LaneRequest("other", (JOB_TYPE,), 5, flow=flow)]
    assert await bench.store.claim("worker-1", uuid4(), requests, lease=HOUR) == []
    await bench.submit(group="a", queue="third")  # a lane that is made after the limit
    requests = [LaneRequest("third", (JOB_TYPE,), 5)]
    assert len(await bench.store.claim("worker-1", uuid4(), requests, lease=HOUR)) == 1
    ((unmarked,),) = await execute(bench, "SELECT count(*) FROM gantline_lease WHERE limited = 0")
    assert unmarked == 0


async def test_a_gate_that_nobody_has_used_for_a_day_is_pruned(bench: Bench) -> None:
    await execute(bench, "INSERT INTO gantline_gate VALUES ('old', 1, NULL), ('shut', 1, ?)", 2**61)
    await bench.store.prune([], limit=10)
    assert await execute(bench, "SELECT name FROM gantline_gate") == [("shut",)]


# -- an idle claim writes nothing -----------------------------------------------------------------


@pytest.mark.parametrize(
    "flow",
    [
        TypeFlow(job_type=JOB_TYPE, running=1),
        TypeFlow(job_type=JOB_TYPE, running_in_all=2),
        TypeFlow(job_type=JOB_TYPE, running=1, running_in_all=2),
    ],
    ids=str,
)
async def test_a_claim_does_not_look_again_and_again_where_all_is_full(
    bench: Bench, flow: TypeFlow
) -> None:
    for group in ("a", ""):
        await bench.submit_many(3, group=group)
    await bench.submit(group="later", delay=HOUR)
    assert len(await bench.claim(flow=(flow,))) == 2
    for _ in range(2):
        assert await bench.claim(flow=(flow,)) == []
    store = bench.store
    assert isinstance(store, SqliteStore)
    for asked, expected in (((flow,), False), ((), True)):
        requests = [LaneRequest("default", (JOB_TYPE,), 5, flow=asked)]
        look = partial(due.has_due, requests=requests, now=store._now())
        assert await store._parts.readers.run(look) is expected


# -- as much with many groups as with ten ---------------------------------------------------------

_ADD_TURNS = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :groups)
INSERT INTO gantline_turn (lane, rank, grp, queue, tenant, run_at, job_id, state, served)
SELECT :lane, 2, i, 'default', i, 0, zeroblob(16), 1, i FROM n
"""
_ADD_JOBS = """
INSERT INTO gantline_ready (
    lane, rank, grp, run_at, job_id, tenant, version, attempt, crashes, snoozes, fence)
SELECT lane, 2, grp, 0, randomblob(16), 'x', 1, 0, 0, 0, 0 FROM gantline_turn
"""
FILLED = {
    "in line": "UPDATE gantline_turn SET state = 1 WHERE served > 0",
    "later": "UPDATE gantline_turn SET state = 2, run_at = 1000 WHERE served > 0",
    "full": "UPDATE gantline_turn SET state = 3, full_at = 1 WHERE served > 0",
}


def _fill(connection: sqlite3.Connection, groups: int, state: str, lane: int = 1) -> None:
    """Groups that were served before, each of a tenant of its own."""
    connection.execute(
        "INSERT INTO gantline_lane (id, queue, job_type) VALUES (1, 'default', 'test'), "
        "(2, 'default', 'other')"
    )
    numbers = {"groups": groups, "lane": lane}
    connection.execute(_ADD_TURNS, numbers)
    connection.execute(_ADD_JOBS, numbers)
    connection.execute(FILLED[state])
    connection.execute(
        "INSERT INTO gantline_tenant_turn (queue, rank, tenant, lane, served, since) "
        "SELECT 'default', 2, tenant, lane, served, 0 FROM gantline_turn WHERE state = 1"
    )
    connection.execute("INSERT INTO gantline_grouped VALUES ('default', 2, 1), ('default', 2, 2)")


def _take(connection: sqlite3.Connection, request: LaneRequest) -> None:
    due.take_due(connection, request, limits.Limits(connection, 10), 10)


def _steps(connection: sqlite3.Connection, work: Callable[..., object], *values: object) -> int:
    """How many hundreds of instructions of SQLite's machine a piece of work takes."""
    seen = 0

    def step() -> None:
        nonlocal seen
        seen += 1

    connection.set_progress_handler(step, 100)
    try:
        work(connection, *values)
    finally:
        connection.set_progress_handler(None, 0)
    return seen


_LIMITED = (TypeFlow(job_type="test", running=1),)


@pytest.mark.parametrize(
    ("state", "flow"),
    [
        ("in line", ()),
        ("in line", _LIMITED),
        ("later", ()),
        ("later", _LIMITED),
        ("full", _LIMITED),
    ],
)
def test_a_claim_among_many_groups_reads_as_much_as_among_ten(
    state: str, flow: tuple[TypeFlow, ...]
) -> None:
    request = LaneRequest("default", ("test", "other"), 4, flow=flow)
    taken = {}
    for groups in (12, 20_000):
        with empty() as connection:
            _fill(connection, groups, state)
            taken[groups] = _steps(connection, _take, request)
            taken[groups] += _steps(connection, due.has_due, [request], 10)
    assert taken[20_000] <= taken[12] * 1.5 + 3, taken


def test_groups_of_a_type_that_is_not_asked_for_are_not_read() -> None:
    request = LaneRequest("default", ("other",), 4)
    with empty() as connection:
        _fill(connection, 20_000, "in line")
        assert _steps(connection, _take, request) < 10


@pytest.mark.parametrize(
    ("statement", "values", "index"),
    [
        (turns._TENANTS.format("="), (1, 2), "gantline_tenant_turn_in_order"),
        (turns._TENANTS.format(">"), (1, 2), "gantline_tenant_turn_in_order"),
        (turns._GROUPS.format("="), (1, 2, 3), "gantline_turn_in_line"),
        (turns._GROUPS.format(">"), (1, 2, 3), "gantline_turn_in_line"),
        (turns._BECOME_DUE, (1, 2, 3, 4), "gantline_turn_later"),
        (turns._HAVE_ROOM, (1, 2, 3, 4), "gantline_turn_full"),
        (turns._ANY_FULL, (), "gantline_turn_full"),
        (limits._RUNS_OF_GROUP, ("t", 1), "gantline_lease_limited (lane=? AND grp=?)"),
        (limits._RUNS_OF_TYPE, ("t",), "gantline_lease_limited (lane=?)"),
    ],
)
def test_turns_and_places_are_found_by_an_index(
    statement: str, values: tuple[object, ...], index: str
) -> None:
    with empty() as connection:
        rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)
        text = "\n".join(row[3] for row in rows)
    assert index in text
    assert "TEMP B-TREE" not in text


# -- several at once ------------------------------------------------------------------------------


async def test_a_group_of_two_types_is_one_turn_also_where_one_of_them_is_new(bench: Bench) -> None:
    await bench.submit_many(4, group="a")
    await bench.submit_many(8, group="b")
    await bench.claim(limit=2)
    await bench.submit_many(4, group="a", job_type="other")
    runs = await bench.claim(JOB_TYPE, "other", limit=8)
    assert Counter(run.job.group for run in runs) == {"a": 4, "b": 4}
    assert len({run.job.job_id for run in runs}) == 8


async def test_handles_that_claim_and_end_at_once_lose_nothing_and_keep_to_the_limit(
    bench: Bench,
) -> None:
    others = [await bench.another() for _ in range(3)]
    await bench.store.insert(
        [make_new(group=f"group-{index % 7}", tenant_id="tu"[index % 2]) for index in range(120)]
    )
    flow = (TypeFlow(job_type=JOB_TYPE, running=2),)
    done: set[object] = set()
    most: Counter[tuple[str, str]] = Counter()
    current: Counter[tuple[str, str]] = Counter()

    async def work(mine: Bench, session: str) -> None:
        for _ in range(200):
            if len(done) == 120:
                return
            runs: list[Run] = await mine.claim(limit=5, session=session, flow=flow)
            for run in runs:
                key = (run.job.tenant_id, run.job.group)
                current[key] += 1
                most[key] = max(most[key], current[key])
            for run in runs:
                current[run.job.tenant_id, run.job.group] -= 1
                await mine.finish(run)
                done.add(run.job.job_id)

    await asyncio.gather(
        *(work(one, f"worker-{index + 1}") for index, one in enumerate([bench, *others[:1]]))
    )
    assert len(done) == 120
    assert max(most.values()) <= 2
    assert await count(bench, "turn") == 0


@pytest.mark.parametrize("groups", [3, 30])
async def test_groups_over_two_types_and_none_all_get_their_turns(
    bench: Bench, groups: int
) -> None:
    """Few of them are read at once, many one by one."""
    for index in range(groups):
        await bench.submit_many(2, group=f"group-{index}")
        await bench.submit_many(2, group=f"group-{index}", job_type="other")
    await bench.submit_many(4)
    taken: list[Run] = []
    while runs := await bench.claim(JOB_TYPE, "other", limit=7):
        taken += runs
    assert len({run.job.job_id for run in taken}) == len(taken) == 4 * groups + 4
    half = Counter(run.job.group for run in taken[: len(taken) // 2])
    assert len(half) == groups + 1


# -- a file from before ---------------------------------------------------------------------------


_BEFORE = """
INSERT INTO gantline_lane VALUES (1, 'default', 'test');
INSERT INTO gantline_job
SELECT id, 'tenant', 1, '', '', '', x'00', 1, 3, x'31', 1, 2, 0, NULL, '', NULL, NULL, NULL, NULL
FROM (SELECT randomblob(16) AS id UNION ALL SELECT randomblob(16));
INSERT INTO gantline_ready
SELECT 1, 2, 5, id, 'tenant', 1, 0, 0, 0, 0, NULL FROM gantline_job LIMIT 1;
INSERT INTO gantline_floor SELECT lane, rank, 'default', run_at, job_id FROM gantline_ready;
INSERT INTO gantline_lease SELECT id, randomblob(16), randomblob(16), 'worker-1', 1, 2, 'tenant',
    2, 1, 0, 0, 1, 0, 1, 1, 0, '', 0 FROM gantline_job LIMIT 1 OFFSET 1;
INSERT INTO gantline_tally VALUES ('tenant', 1, 'Queued', 1), ('tenant', 1, 'Running', 1);
"""


async def test_what_waits_and_runs_at_the_migration_goes_on() -> None:
    harness = SqliteHarness()
    with closing(sqlite3.connect(harness._folder / "gantline.db")) as connection:
        connection.isolation_level = None
        migrate(connection, load_migrations(PACKAGE)[:4])
        connection.executescript(_BEFORE)
    bench = await Bench.on(harness)
    await bench.reap_expired()
    bench.clock.advance(HOUR)
    runs = await bench.claim()
    assert [(run.job.tenant_id, run.job.group) for run in runs] == [("tenant", "")] * 2
    for run in runs:
        await bench.finish(run)
    assert await count(bench, "turn") == 0
    await bench.close()

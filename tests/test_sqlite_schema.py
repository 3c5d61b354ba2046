"""Migrations: in order, whole, by one of many processes; and the plans the schema is made for."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.harness import SqliteHarness
from windlass.contract.clock import SystemClock
from windlass.contract.errors import SchemaMismatch, StoreError
from windlass.stores.migrations import AppliedMigration, Migration, load_migrations, plan
from windlass.stores.sqlite import SqliteStore, ready, removal
from windlass.stores.sqlite.location import Location
from windlass.stores.sqlite.schema import PACKAGE, migrate
from windlass.testing.conformance import Bench

ONE = Migration(1, "one", "CREATE TABLE a (x TEXT) STRICT;")
TWO = Migration(2, "two", "CREATE TABLE b (x TEXT DEFAULT ';') STRICT;\n-- ; \nCREATE TABLE c (x);")


def applied(*steps: Migration) -> list[AppliedMigration]:
    return [AppliedMigration(step.number, step.name, step.checksum) for step in steps]


def test_our_own_migrations_are_numbered_without_a_gap() -> None:
    assert [step.number for step in load_migrations(PACKAGE)] == [1]


def test_a_plan_is_what_is_missing() -> None:
    assert plan([ONE, TWO], []) == [ONE, TWO]
    assert plan([ONE, TWO], applied(ONE)) == [TWO]
    assert plan([ONE, TWO], applied(ONE, TWO)) == []


def test_a_newer_or_altered_database_is_refused() -> None:
    with pytest.raises(SchemaMismatch, match="Upgrade"):
        plan([ONE], applied(ONE, TWO))
    with pytest.raises(SchemaMismatch, match="another text"):
        plan([ONE, TWO], applied(TWO))


def test_steps_are_applied_once_and_statement_by_statement() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(connection, [ONE])
    migrate(connection, [ONE, TWO])
    migrate(connection, [ONE, TWO])
    names = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema")}
    assert {"a", "b", "c", "windlass_migration"} <= names
    rows = connection.execute("SELECT number FROM windlass_migration").fetchall()
    assert rows == [(1,), (2,)]
    connection.close()


def test_a_step_that_fails_leaves_nothing_behind() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    bad = Migration(1, "bad", "CREATE TABLE a (x); CREATE TABLE a (x);")
    connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.Error):
        migrate(connection, [bad])
    connection.execute("ROLLBACK")
    assert connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)
    connection.close()


async def test_many_that_open_a_new_file_at_once_all_succeed(tmp_path: Path) -> None:
    for number in range(20):
        path = tmp_path / f"{number}.db"
        stores = [SqliteStore(Location(path), clock=SystemClock()) for _ in range(8)]
        await asyncio.gather(*(store.open() for store in stores))
        await asyncio.gather(*(store.close() for store in stores))
        with closing(sqlite3.connect(path)) as connection:
            rows = connection.execute("SELECT number FROM windlass_migration").fetchall()
        assert rows == [(1,)]


@pytest.fixture
def empty() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        yield connection


def explained(connection: sqlite3.Connection, statement: str, values: tuple[object, ...]) -> str:
    rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)
    return "\n".join(row[3] for row in rows)


def test_due_jobs_are_read_in_order_from_the_primary_key(empty: sqlite3.Connection) -> None:
    text = explained(empty, ready._DUE, (1, 2, 0, b"", 9, 10))
    assert text.startswith("SEARCH windlass_ready USING PRIMARY KEY (lane=? AND priority=? AND")
    assert "TEMP B-TREE" not in text


def test_the_floors_of_lanes_are_read_in_order_from_their_index(empty: sqlite3.Connection) -> None:
    text = explained(empty, ready._FLOORS, ("default", 2, 9))
    assert "COVERING INDEX windlass_floor_in_order (queue=? AND priority=? AND run_at<?)" in text
    assert "TEMP B-TREE" not in text


def test_old_jobs_are_found_by_their_index(empty: sqlite3.Connection) -> None:
    text = explained(empty, removal._OLD, ("Completed", 0, 1, 10))
    assert text == "SEARCH windlass_log USING INDEX windlass_log_to_prune (status=? AND at<?)"


async def test_the_schema_refuses_nonsense_by_itself() -> None:
    """A bug in the code must not be able to store what the lifecycle does not know."""
    harness = SqliteHarness()
    bench = await Bench.on(harness)
    await bench.start()
    opened = bench.store._opened  # type: ignore[attr-defined]  # below the protocol on purpose
    for nonsense in (
        "UPDATE windlass_lease SET attempt = 0",
        "UPDATE windlass_lease SET priority = 4",
        "UPDATE windlass_lease SET token = x'00'",
        "UPDATE windlass_lease SET percent = 101",
        "UPDATE windlass_lease SET version = 'many'",
        "UPDATE windlass_tally SET jobs = -1",
        "UPDATE windlass_job SET attempt = 9",
    ):
        with pytest.raises(StoreError, match=r"constraint failed|cannot store TEXT"):
            await opened.writer.run(_executing(nonsense))
    await bench.close()


def _executing(statement: str) -> Callable[[sqlite3.Connection], None]:
    def execute(connection: sqlite3.Connection) -> None:
        connection.execute(statement)

    return execute


async def test_text_that_somebody_else_broke_does_not_stop_a_claim_or_a_sweep() -> None:
    """SQLite stores any bytes as text; a row that is not UTF-8 is read with replacements."""
    harness = SqliteHarness()
    bench = await Bench.on(harness)
    await bench.submit_many(2)
    opened = bench.store._opened  # type: ignore[attr-defined]  # below the protocol on purpose
    await opened.writer.run(
        _executing("UPDATE windlass_job SET subject = CAST(x'ff' AS TEXT), trace_context = 'no'")
    )
    assert [run.job.subject_id for run in await bench.claim()] == ["\ufffd", "\ufffd"]
    await bench.let_leases_expire()
    assert (await bench.reap()).requeued == 2
    await bench.close()

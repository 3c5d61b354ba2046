"""Migrations: in order, whole, by one of many processes; and the plans the schema is made for."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gantline.contract.clock import SystemClock
from gantline.contract.errors import SchemaMismatch, StoreError, StoreMisconfigured
from gantline.contract.store import JobStore
from gantline.stores import store_from_url
from gantline.stores.migrations import (
    AppliedMigration,
    Migration,
    load_migrations,
    migrator_of,
    plan,
)
from gantline.stores.sqlite import SqliteStore, due, prune, ready
from gantline.stores.sqlite.location import Location, parse_url
from gantline.stores.sqlite.schema import PACKAGE, migrate
from gantline.testing.conformance import Bench
from tests.harness import SqliteHarness

ONE = Migration(1, "one", "CREATE TABLE a (x TEXT) STRICT;")
TWO = Migration(2, "two", "CREATE TABLE b (x TEXT DEFAULT ';') STRICT;\n-- ; \nCREATE TABLE c (x);")
COMPATIBLE = Migration(2, "more", "-- Works with code of migration 1.\nALTER TABLE a ADD y TEXT;")


def applied(*steps: Migration) -> list[AppliedMigration]:
    return [
        AppliedMigration(step.number, step.name, step.checksum, step.works_with) for step in steps
    ]


def test_our_own_migrations_are_numbered_without_a_gap() -> None:
    numbers = [step.number for step in load_migrations(PACKAGE)]
    assert numbers == list(range(1, len(numbers) + 1))


def test_each_of_our_migrations_begins_by_saying_with_which_code_it_works() -> None:
    for step in load_migrations(PACKAGE):
        assert step.sql.startswith(f"-- Works with code of migration {step.works_with}.\n")


def test_older_code_goes_on_beside_a_newer_step_that_works_with_it() -> None:
    assert COMPATIBLE.works_with == 1
    assert plan([ONE], applied(ONE, COMPATIBLE)) == []
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection, [ONE, COMPATIBLE])
        assert migrate(connection, [ONE]) == []
        with pytest.raises(SchemaMismatch, match="another text"):
            migrate(connection, [ONE, TWO])


def test_a_step_that_does_not_say_so_works_with_no_older_code() -> None:
    assert TWO.works_with == 2


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
    assert {"a", "b", "c", "gantline_migration"} <= names
    rows = connection.execute("SELECT number FROM gantline_migration").fetchall()
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
            rows = connection.execute("SELECT number FROM gantline_migration").fetchall()
        assert rows == [(step.number,) for step in load_migrations(PACKAGE)]


@pytest.fixture
def empty() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        yield connection


def explained(connection: sqlite3.Connection, statement: str, values: tuple[object, ...]) -> str:
    rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)
    return "\n".join(row[3] for row in rows)


def test_due_jobs_are_read_in_order_from_the_primary_key(empty: sqlite3.Connection) -> None:
    text = explained(empty, ready._DUE, (1, 2, 3, 0, b"", 9, 10))
    assert text.startswith(
        "SEARCH gantline_ready USING PRIMARY KEY (lane=? AND rank=? AND grp=? AND"
    )
    assert "TEMP B-TREE" not in text


def test_the_floors_of_lanes_are_read_in_order_from_their_index(empty: sqlite3.Connection) -> None:
    text = explained(empty, due._FLOORS, ("default", 2, 9))
    assert "COVERING INDEX gantline_turn_in_order (queue=? AND rank=? AND run_at<?)" in text
    assert "TEMP B-TREE" not in text


def test_where_there_are_no_suspects_a_claim_of_them_reads_nothing(
    empty: sqlite3.Connection,
) -> None:
    text = explained(empty, due._SUSPECT_RANKS, ("default", 9))
    assert text == (
        "SEARCH gantline_turn USING COVERING INDEX gantline_turn_in_order (queue=? AND rank>?)"
    )


def test_old_jobs_are_found_by_their_index(empty: sqlite3.Connection) -> None:
    text = explained(empty, prune._OLD, ("Completed", 0, 1, 10))
    assert text == "SEARCH gantline_log USING INDEX gantline_log_to_prune (status=? AND at<?)"


async def test_the_schema_refuses_nonsense_by_itself() -> None:
    """A bug in the code must not be able to store what the lifecycle does not know."""
    harness = SqliteHarness()
    bench = await Bench.on(harness)
    await bench.finish(await bench.start())
    await bench.start()
    await bench.submit()
    opened = bench.store._opened  # type: ignore[attr-defined]  # below the protocol on purpose
    for nonsense in (
        "UPDATE gantline_lease SET attempt = 0",
        "UPDATE gantline_lease SET priority = 4",
        "UPDATE gantline_lease SET token = x'00'",
        "UPDATE gantline_lease SET percent = 101",
        "UPDATE gantline_lease SET version = 'many'",
        "UPDATE gantline_lease SET length = -1",
        "UPDATE gantline_ready SET rank = 4",
        "UPDATE gantline_ready SET crashes = 2",
        "UPDATE gantline_ready SET rank = 36, crashes = 10",
        "UPDATE gantline_log SET event = ''",
        "UPDATE gantline_log SET status = ''",
        "UPDATE gantline_tally SET jobs = -1",
        "UPDATE gantline_job SET attempt = 9",
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
        _executing("UPDATE gantline_job SET subject = CAST(x'ff' AS TEXT), trace_context = 'no'")
    )
    assert [run.job.subject_id for run in await bench.claim()] == ["\ufffd", "\ufffd"]
    await bench.let_leases_expire()
    assert (await bench.reap()).requeued == 2
    await bench.close()


async def test_without_auto_migrate_no_file_is_made_or_changed(tmp_path: Path) -> None:
    file = tmp_path / "gantline.db"
    url = f"sqlite:///{file}"

    def store(auto_migrate: str) -> JobStore:
        return store_from_url(f"{url}?auto_migrate={auto_migrate}", clock=SystemClock())

    async def refusal() -> SchemaMismatch:
        with pytest.raises(SchemaMismatch) as refused:
            await store("no").open()
        return refused.value

    error = await refusal()
    assert "lacks the migrations from 1 (core) on" in error.cause
    assert "gantline db migrate" in error.next_step
    assert not file.exists()
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        migrate(connection, load_migrations(PACKAGE)[:1])
    before = file.read_bytes()
    assert "lacks the migrations from 2" in (await refusal()).cause
    assert file.read_bytes() == before
    await migrator_of(store("no")).migrate()
    opened = store("false")
    await opened.open()
    await opened.close()


def test_a_file_has_no_schema_to_choose() -> None:
    with pytest.raises(StoreMisconfigured, match="a file is one") as refused:
        parse_url("sqlite:///a.db?schema=shop")
    assert "another file" in refused.value.next_step
    with pytest.raises(StoreMisconfigured, match="auto_migrate=maybe"):
        parse_url("sqlite:///a.db?auto_migrate=maybe")

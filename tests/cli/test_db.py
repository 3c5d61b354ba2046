"""gantline db on every store with a schema."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from gantline.contract.clock import SystemClock
from gantline.stores import store_from_url
from tests.cli.conftest import Place, assert_refused
from tests.servers.postgres import PostgresServer

SECRET = "s3cr3t"  # noqa: S105  # guards nothing


@pytest.fixture(params=["sqlite", "postgres"])
def store(place: Place, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "sqlite":
        url = "sqlite:///gantline.db"
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.url(schema=f"w{uuid4().hex}", auto_migrate="false")
    monkeypatch.setenv("GANTLINE_STORE", url)
    return url


def run_script(url: str, script: str) -> None:
    """As a DBA does."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(Path("gantline.db"))) as connection:
            connection.executescript(script)
    else:
        with psycopg.connect(url.split("?")[0], autocommit=True) as connection:
            connection.execute(script.encode())


def applied(place: Place) -> list[bool]:
    return [row["applied"] for row in place.json("db", "status")]


def test_a_plan_says_what_a_migration_would_do_and_does_nothing(place: Place, store: str) -> None:
    plan = place.json("db", "migrate", "--plan")
    assert [row["number"] for row in plan] == list(range(1, len(plan) + 1))
    assert not any(applied(place))
    assert place.run("db", "migrate").exit_code == 0
    assert all(applied(place))
    assert place.json("db", "migrate", "--plan") == []


def test_migrating_twice_is_migrating_once(place: Place, store: str) -> None:
    first = place.json("db", "migrate")
    assert [row["applied"] for row in first] == [True] * len(first)
    assert place.json("db", "migrate") == []
    assert all(applied(place))
    assert place.json("job", "list") == []


def last(place: Place) -> str:
    row = place.json("db", "status")[-1]
    return f"{row['number']} ({row['name']})"


def test_a_migration_tells_what_it_did(place: Place, store: str) -> None:
    names = [row["name"] for row in place.json("db", "status")]
    result = place.run("db", "migrate")
    assert result.exit_code == 0
    assert all(name in result.stdout for name in names)
    assert result.stderr == f"Applied {len(names)}; the store is now at {last(place)}.\n"


@pytest.mark.parametrize("words", ["migrate", "migrate --plan", "sql"])
def test_where_nothing_is_missing_that_is_said(place: Place, store: str, words: str) -> None:
    place.make_store()
    result = place.run("db", *words.split())
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.startswith(f"Up to date at {last(place)}: nothing to apply.")


def test_the_sql_that_is_printed_is_what_the_store_lacks(place: Place, store: str) -> None:
    everything = place.run("db", "sql").stdout
    assert place.run("db", "sql", "--all").stdout == everything
    run_script(store, place.run("db", "sql", "1").stdout)
    rest = place.run("db", "sql").stdout
    assert rest != everything
    if rest:
        run_script(store, rest)
    assert all(applied(place))
    assert place.run("db", "sql").stdout == ""
    assert place.run("db", "sql", "--all").stdout == everything


def test_the_printed_sql_is_all_that_a_dba_needs(place: Place, store: str) -> None:
    result = place.run("db", "sql")
    assert (result.exit_code, result.stderr) == (0, "")
    run_script(store, result.stdout)
    assert all(applied(place))
    place.submit("mail", "1")
    assert len(place.json("job", "list")) == 1


def test_migrations_can_be_printed_one_by_one(place: Place, store: str) -> None:
    numbers = [row["number"] for row in place.json("db", "status")]
    for number in numbers:
        run_script(store, place.run("db", "sql", str(number)).stdout)
    assert all(applied(place))


def test_two_processes_that_migrate_at_once_both_succeed(place: Place, store: str) -> None:
    with place.process("db", "migrate") as one, place.process("db", "migrate") as other:
        assert (one.exit_code(), other.exit_code()) == (0, 0), one.stderr + other.stderr
    assert all(applied(place))


def test_the_sql_names_the_schema_of_the_store(place: Place) -> None:
    """All of it can be had without the server."""
    url = "postgresql://u@h/d?schema=other"
    printed = place.run("--store", url, "db", "sql", "--all").stdout
    assert "CREATE TABLE other.job" in printed
    assert "gantline." not in printed


def test_a_store_without_a_schema_has_nothing_to_migrate(place: Place) -> None:
    for words in ("status", "migrate", "sql"):
        assert_refused(place.run("--store", "memory://", "db", words), 5, "no schema")


def test_a_server_that_is_away_is_5_and_its_password_is_not_shown(place: Place) -> None:
    url = f"postgresql://u:{SECRET}@127.0.0.1:1/d?deadline=0.3"
    for words in ("status", "migrate", "migrate --plan"):
        result = place.run("--store", url, "db", *words.split())
        assert_refused(result, 5, "Connection refused")
        assert SECRET not in result.output


def test_a_newer_schema_is_refused(place: Place, store: str) -> None:
    place.run("db", "migrate")
    if store.startswith("sqlite"):
        run_script(store, "INSERT INTO gantline_migration VALUES (99, 'future', 'x', 99, '2030')")
    else:
        schema = store.partition("schema=")[2].partition("&")[0]
        row = "(99, 'future', 'x', 99)"
        run_script(store, f"INSERT INTO {schema}.migration VALUES {row}")  # noqa: S608  # ours
    assert 99 in [row["number"] for row in place.json("db", "status")]
    for words in ("migrate", "migrate --plan"):
        assert_refused(place.run("db", *words.split()), 5, "Upgrade")


def test_the_store_still_opens_after_a_migration_by_hand(place: Place, store: str) -> None:
    run_script(store, place.run("db", "sql").stdout)

    async def ping() -> None:
        opened = store_from_url(store, clock=SystemClock())
        await opened.open()
        await opened.ping()
        await opened.close()

    asyncio.run(ping())

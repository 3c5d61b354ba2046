"""Getting in and migrating: what is wrong is told with cause and next step, never with a password;
and versions of the code that fit together work side by side."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import uuid4

import psycopg
import pytest

from gantline.contract.clock import SystemClock
from gantline.contract.errors import (
    SchemaMismatch,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
)
from gantline.contract.results import Applied
from gantline.contract.store import JobStore
from gantline.stores import store_from_url
from gantline.stores.migrations import Migration, load_migrations
from gantline.stores.postgres import PostgresStore, open_store, schema
from gantline.stores.postgres.sql import Sql
from gantline.testing.conformance.bench import LEASE
from gantline.testing.factories import lane_requests, make_new, register_sessions
from tests.servers.postgres import PostgresServer, free_port

pytestmark = pytest.mark.matrix

SECRET = "s3cr3t"  # noqa: S105  # guards nothing
OURS = load_migrations(schema.PACKAGE)
COMPATIBLE = Migration(
    len(OURS) + 1,
    "more",
    f"-- Works with code of migration {len(OURS)}.\n-- Add a column.\n"
    "ALTER TABLE gantline.job ADD COLUMN more text;",
)
Admin = Callable[[str], Awaitable[psycopg.AsyncCursor]]
"""Runs a statement with all rights."""

INCOMPATIBLE = Migration(len(OURS) + 1, "other", "ALTER TABLE gantline.job RENAME TO jobs_;")


async def opened(url: str) -> PostgresStore:
    store = open_store(url)
    await store.open()
    return store


async def refusal(url: str) -> StoreError:
    """What is said about a store that cannot be opened, and said soon."""
    with pytest.raises(StoreError) as caught:
        async with asyncio.timeout(10):
            await store_from_url(url, clock=SystemClock()).open()
    error = caught.value
    assert error.next_step
    seen: BaseException | None = error
    while seen is not None:
        assert SECRET not in str(seen)
        seen = seen.__cause__ or seen.__context__
    return error


@pytest.fixture
async def admin(postgres: PostgresServer) -> AsyncIterator[Admin]:
    async with await psycopg.AsyncConnection.connect(postgres.url(), autocommit=True) as connection:
        yield lambda sql: connection.execute(sql.encode())


@pytest.fixture
async def somebody(admin: Admin) -> AsyncIterator[str]:
    """A user without any rights."""
    name = f"u{uuid4().hex[:12]}"
    await admin(f"CREATE ROLE {name} LOGIN PASSWORD '{SECRET}'")
    yield name
    await admin(f"DROP OWNED BY {name}")
    await admin(f"DROP ROLE {name}")


def as_user(url: str, user: str) -> str:
    return url.replace("//gantline@", f"//{user}@")


# -- getting in -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://u:%{SECRET}@127.0.0.1/d",
        f"postgresql://u:a@{SECRET}@127.0.0.1/d",
        f"postgresql://u:1/{SECRET}@127.0.0.1/d",
        f"postgresql://u:a?{SECRET}@127.0.0.1/d",
        f"postgresql://u:a#{SECRET}@127.0.0.1/d",
        f"postgresql://u:[{SECRET}@127.0.0.1/d",
        f"postgresql://u:℀{SECRET}@127.0.0.1/d",
        f"postgresql://u:{SECRET}@127.0.0.1:port/d",
    ],
)
async def test_a_url_that_cannot_be_read_is_told_without_its_password(url: str) -> None:
    error = await refusal(url)
    assert isinstance(error, StoreMisconfigured)
    assert "cannot be read" in error.cause


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("sslmod=require", "sslmod"),
        ("schema=Upper", "'Upper' cannot be the schema"),
        ("schema=a.b", "cannot be the schema"),
        ("schema=pg_own", "cannot be the schema"),
        ("prepare=maybe", "prepare=maybe"),
        ("connections=1", "connections=1"),
        ("deadline=soon", "deadline=soon"),
    ],
)
async def test_an_option_that_is_wrong_is_named(option: str, said: str) -> None:
    error = await refusal(f"postgresql://u:{SECRET}@127.0.0.1/d?{option}")
    assert isinstance(error, StoreMisconfigured)
    assert said in error.cause


async def test_options_of_the_driver_reach_it_as_they_are(url: str) -> None:
    store = await opened(f"{url}&options=-c%20statement_timeout%3D4321&application_name=a%20b")

    async def ask(sql: Sql) -> list[object]:
        return [
            (await sql.rows(f"SHOW {name}"))[0][0]
            for name in ("statement_timeout", "application_name")
        ]

    assert await store.calls.run(ask) == ["4321ms", "a b"]
    await store.close()


async def test_a_store_does_not_show_its_password() -> None:
    store = open_store(f"postgresql://u:{SECRET}@127.0.0.1/d")
    assert SECRET not in repr(store) + repr(store.location)


async def test_a_wrong_password_is_told_at_once(postgres: PostgresServer, somebody: str) -> None:
    postgres.ask_for_a_password(somebody)
    error = await refusal(as_user(postgres.url(), f"{somebody}:{SECRET}x"))
    assert isinstance(error, StoreMisconfigured)
    assert "password authentication failed" in error.cause
    error = await refusal(as_user(postgres.url(), somebody))
    assert "no password supplied" in error.cause


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_an_unknown_database_or_user_is_told_at_once(
    postgres: PostgresServer, host: str
) -> None:
    url = postgres.url("nowhere").replace("127.0.0.1", host)
    error = await refusal(url)
    assert isinstance(error, StoreMisconfigured)
    assert 'database "nowhere" does not exist' in error.cause
    error = await refusal(as_user(postgres.url().replace("127.0.0.1", host), f"nobody:{SECRET}"))
    assert isinstance(error, StoreMisconfigured)
    assert 'role "nobody" does not exist' in error.cause


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_server_that_is_down_is_told_after_the_deadline(host: str) -> None:
    error = await refusal(f"postgresql://u:{SECRET}@{host}:{free_port()}/d?deadline=0.5")
    assert isinstance(error, StoreUnavailable)
    assert "Connection refused" in error.cause
    assert "accepts connections" in error.next_step


async def test_a_host_that_does_not_exist_is_named() -> None:
    error = await refusal(f"postgresql://u:{SECRET}@no-such-host.invalid/d?deadline=0.5")
    assert "no-such-host.invalid" in error.cause


async def test_a_user_without_rights_is_told_what_is_missing(
    postgres: PostgresServer, url: str, somebody: str
) -> None:
    error = await refusal(as_user(url, somebody))
    assert isinstance(error, StoreMisconfigured)
    assert "permission denied for database" in error.cause
    await (await opened(url)).close()
    error = await refusal(as_user(url, somebody))
    assert isinstance(error, StoreMisconfigured)
    assert "permission denied for schema" in error.cause


async def test_a_schema_that_a_dba_made_is_enough(
    url: str, schema: str, somebody: str, admin: Admin
) -> None:
    await admin(f"CREATE SCHEMA {schema} AUTHORIZATION {somebody}")
    store = await opened(as_user(url, somebody))
    assert await store.insert([make_new(1)]) == [Applied(1)]
    await store.close()


# -- migrating ------------------------------------------------------------------------------------


async def numbers(url: str) -> list[int]:
    store = await opened(url)
    rows = await store.calls.run(
        lambda sql: sql.rows("SELECT number FROM gantline.migration ORDER BY number")
    )
    await store.close()
    return [row[0] for row in rows]


async def test_many_that_open_a_new_schema_at_once_all_succeed(
    postgres: PostgresServer, admin: Admin
) -> None:
    for _ in range(5):
        name = f"w{uuid4().hex}"
        stores = await asyncio.gather(*(opened(postgres.url(schema=name)) for _ in range(8)))
        await asyncio.gather(*(store.close() for store in stores))
        assert await numbers(postgres.url(schema=name)) == [step.number for step in OURS]
        await admin(f"DROP SCHEMA {name} CASCADE")


async def test_two_schemas_of_one_database_do_not_see_each_other(
    postgres: PostgresServer, url: str, admin: Admin
) -> None:
    name = f"w{uuid4().hex}"
    one, other = await opened(url), await opened(postgres.url(schema=name))
    assert await one.insert([make_new(1)]) == [Applied(1)]
    await register_sessions(one, "s")
    assert await other.claim("s", uuid4(), lane_requests(), lease=LEASE) == []
    assert len(await one.claim("s", uuid4(), lane_requests(), lease=LEASE)) == 1
    await one.close()
    await other.close()
    await admin(f"DROP SCHEMA {name} CASCADE")


async def test_a_word_of_sql_cannot_be_the_schema(postgres: PostgresServer) -> None:
    error = await refusal(postgres.url(schema="select"))
    assert isinstance(error, StoreMisconfigured)
    assert "'select' cannot be the schema" in error.cause


async def test_without_auto_migrate_nothing_is_made(url: str, schema: str, admin: Admin) -> None:
    error = await refusal(f"{url}&auto_migrate=false")
    assert isinstance(error, SchemaMismatch)
    assert "lacks the migrations from 1 (baseline) on" in error.cause
    assert "gantline db migrate" in error.next_step
    cursor = await admin(f"SELECT to_regnamespace('{schema}') IS NULL")
    assert await cursor.fetchone() == (True,)
    await (await opened(url)).close()
    await (await opened(f"{url}&auto_migrate=false")).close()


async def test_a_step_that_fails_leaves_nothing_behind(url: str) -> None:
    store = await opened(url)
    bad = Migration(len(OURS) + 1, "bad", "CREATE TABLE gantline.a (x int); SELECT 1 / 0;")
    with pytest.raises(StoreError, match="division by zero"):
        await upgrade(store, bad)
    await store.close()
    assert await numbers(url) == [step.number for step in OURS]


async def upgrade(store: PostgresStore, step: Migration) -> None:
    """What a newer version of the code does when it starts."""
    await store.calls.run(
        lambda sql: schema.migrate(sql, store.location, [*OURS, step]), atomic=True
    )


async def test_a_newer_schema_that_this_code_does_not_fit_is_refused(url: str) -> None:
    store = await opened(url)
    await upgrade(store, INCOMPATIBLE)
    await store.close()
    for wanted in (url, f"{url}&auto_migrate=false"):
        error = await refusal(wanted)
        assert isinstance(error, SchemaMismatch)
        assert f"has schema {INCOMPATIBLE.number} (other)" in error.cause
        assert "Upgrade Gantline" in error.next_step


async def test_older_and_newer_code_work_side_by_side_where_a_migration_says_so(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = await opened(url)
    assert await old.insert([make_new(1)]) == [Applied(1)]
    await upgrade(old, COMPATIBLE)
    started_later = await opened(url)
    with monkeypatch.context() as patch:
        patch.setattr(schema, "load_migrations", lambda package: [*OURS, COMPATIBLE])
        new = await opened(url)
    assert await numbers(url) == [step.number for step in (*OURS, COMPATIBLE)]
    for submits, claims in ((old, new), (new, started_later), (started_later, old)):
        await submits.insert([make_new(2)])
        assert await _claimed(claims)
    for store in (old, started_later, new):
        await store.close()


async def _claimed(store: JobStore) -> bool:
    await register_sessions(store, "s")
    return bool(await store.claim("s", uuid4(), lane_requests(limit=1), lease=LEASE))


async def test_an_altered_migration_is_refused(url: str, schema: str, admin: Admin) -> None:
    await (await opened(url)).close()
    await admin(f"UPDATE {schema}.migration SET checksum = 'other' WHERE number = 1")
    error = await refusal(url)
    assert isinstance(error, SchemaMismatch)
    assert "Migration 1 (baseline) was applied with another text" in error.cause


async def test_a_schema_that_vanished_under_us_is_told(url: str, schema: str, admin: Admin) -> None:
    store = await opened(url)
    await admin(f"DROP SCHEMA {schema} CASCADE")
    with pytest.raises(SchemaMismatch, match="gantline db migrate"):
        await store.insert([make_new(1)])
    await store.close()

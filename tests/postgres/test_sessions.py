"""Sessions: what a handler leaves in one reaches nobody, what a server presets bends no verb."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import psycopg
import pytest
from psycopg.rows import dict_row

from gantline.contract.errors import StoreBusy, StoreUnavailable
from gantline.contract.outcome import Success
from gantline.contract.policy import DEFAULT_POLICY
from gantline.contract.results import Applied, Duplicate
from gantline.contract.transition import Transition
from gantline.manager.decide import decide
from gantline.stores.pool import Purpose
from gantline.stores.postgres import PostgresStore
from gantline.stores.postgres.location import parse_url
from gantline.stores.postgres.sql import Sql
from gantline.testing.conformance import Rule, all_rules
from gantline.testing.conformance.bench import LEASE
from gantline.testing.factories import lane_requests, make_new, register_sessions
from tests.harness import PostgresHarness
from tests.servers.postgres import PostgresServer

# What a session holds: settings, role, temporary tables, prepared statements, channels, locks that
# outlive their transaction, cursors, and sequences that it has used.
STATE = """
SELECT pg_backend_pid(), current_setting('TimeZone'), current_user::text,
       to_regclass('pg_temp.mess')::text,
       (SELECT count(*) FROM pg_prepared_statements),
       (SELECT count(*) FROM pg_listening_channels()),
       (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),
       (SELECT count(*) FROM pg_cursors WHERE is_holdable)
"""
MESS = (
    "SET TIME ZONE 'Asia/Tokyo'",
    "CREATE TEMPORARY TABLE mess (n int)",
    "PREPARE mess AS SELECT 1",
    "LISTEN mess",
    "SELECT pg_advisory_lock(7)",
    "DECLARE mess CURSOR WITH HOLD FOR SELECT 1",
    "SET ROLE pg_monitor",
)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(parse_url(url))
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def preset(url: str, **settings: str) -> str:
    """As a role or a database may have it: not asked for by us, but there from the start."""
    words = " ".join(
        f"-c {name}={value}".replace("read ", "read\\ ").replace("able ", "able\\ ")
        for name, value in settings.items()
    )
    return f"{url}{'&' if '?' in url else '?'}options={quote(words)}"


async def one_row(connection: Any, statement: str) -> Any:
    async with connection.cursor(row_factory=psycopg.rows.tuple_row) as cursor:
        await cursor.execute(statement, prepare=False)
        return await cursor.fetchone()


async def test_what_a_handler_leaves_in_its_session_does_not_reach_the_next(url: str) -> None:
    async with opened(url) as store:
        async with store.transaction() as first:
            connection = first.connection
            clean = await one_row(connection, STATE)
            connection.row_factory = dict_row
            connection.prepare_threshold = 0
            await connection.execute("SELECT 1 WHERE 1 = %s", (1,))
            for statement in MESS:
                await connection.execute(statement, prepare=False)
        async with store.transaction() as second:
            assert await one_row(second.connection, STATE) == clean
            row = await (await second.connection.execute("SELECT 1 WHERE 1 = %s", (1,))).fetchone()
            assert row == (1,)
        with pytest.raises(psycopg.OperationalError, match="closed"):
            await connection.execute("SELECT 1")


async def test_a_mess_that_was_rolled_back_does_not_reach_the_next_either(url: str) -> None:
    async with opened(url) as store:
        async with store.transaction() as first:
            clean = await one_row(first.connection, STATE)

        async def fail() -> None:
            async with store.transaction() as transaction:
                await transaction.connection.execute("SELECT pg_advisory_lock(7)")
                raise LookupError

        with pytest.raises(LookupError):
            await fail()
        async with store.transaction() as next_one:
            assert await one_row(next_one.connection, STATE) == clean


async def test_rows_of_another_kind_do_not_disturb_the_settling(url: str) -> None:
    async with opened(url) as store:
        await store.insert([make_new(1)])
        await register_sessions(store, "worker")
        (run,) = await store.claim("worker", uuid4(), lane_requests(), lease=LEASE)
        success = Success(follow_ups=(make_new(2, job_type="next"),))
        async with store.transaction() as transaction:
            transaction.connection.row_factory = dict_row
            transaction.connection.cursor_factory = psycopg.AsyncRawCursor
            await transaction.connection.execute("SELECT $1::int", (1,))
            settled = await transaction.apply(decide(run, success, DEFAULT_POLICY, jitter=0.0))
        assert settled == Applied(3)


# -- the isolation level ---------------------------------------------------------------------------

every_level = pytest.mark.parametrize("level", ["repeatable read", "serializable"])


@every_level
async def test_verbs_are_read_committed_whatever_the_default_is(url: str, level: str) -> None:
    async def ask(sql: Sql) -> str:
        return str((await sql.rows("SHOW transaction_isolation"))[0][0])

    async with opened(preset(url, default_transaction_isolation=level)) as store:
        for purpose in (Purpose.VERBS, Purpose.CONTROL):
            for atomic in (False, True):
                answer = await store.calls.run(ask, purpose=purpose, atomic=atomic)
                assert answer == "read committed"
        async with store.transaction() as transaction:
            row = await one_row(transaction.connection, "SHOW transaction_isolation")
            assert row == ("read committed",)


@pytest.mark.parametrize("rule", [one for one in all_rules() if one.topic == "races"], ids=str)
async def test_races_end_well_whatever_the_default_is(postgres: PostgresServer, rule: Rule) -> None:
    options = quote("-c default_transaction_isolation=repeatable\\ read")
    await rule.check(PostgresHarness(postgres, options=options))


async def test_a_caller_s_transaction_that_cannot_see_who_has_the_key_is_told_to_go_again(
    postgres: PostgresServer, url: str
) -> None:
    first, second = (make_new(1, idempotency_key="k") for _ in range(2))
    async with opened(url) as store:
        await store.insert([make_new(0)])
        async with await psycopg.AsyncConnection.connect(postgres.url()) as caller:
            await caller.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
            await caller.execute("SELECT 1")
            await store.insert([first])
            with pytest.raises(StoreBusy, match="Roll back and try again"):
                await store.insert_in(caller, [second])
            await caller.rollback()
            (answer,) = await store.insert_in(caller, [second])
            assert isinstance(answer, Duplicate)
            assert answer.existing == first.job.job_id


@every_level
async def test_a_caller_s_transaction_works_at_any_level(
    postgres: PostgresServer, url: str, level: str
) -> None:
    new = [make_new(number, idempotency_key=f"k{number}") for number in range(3)]
    async with opened(url) as store:
        async with await psycopg.AsyncConnection.connect(postgres.url()) as caller:
            await caller.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
            assert await store.insert_in(caller, new) == [Applied(1)] * 3
        assert all(await store.get([one.job.job_id for one in new], tenant_id=None))


async def test_a_handler_s_older_snapshot_meets_a_renewal_and_is_told_to_go_again(
    url: str,
) -> None:
    async with opened(url) as store:
        await store.insert([make_new(1)])
        await register_sessions(store, "worker")
        (run,) = await store.claim("worker", uuid4(), lane_requests(), lease=LEASE)

        async def settle() -> None:
            async with store.transaction() as transaction:
                await transaction.connection.execute(
                    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"
                )
                await transaction.connection.execute("SELECT 1")
                await store.renew("worker", [run.ref], lease=LEASE)
                await transaction.apply(Transition.released(run))

        with pytest.raises(StoreBusy, match="READ COMMITTED"):
            await settle()


# -- read-only, and what is kept -------------------------------------------------------------------


async def test_a_role_that_may_not_write_is_told_so_and_not_overruled(
    postgres: PostgresServer, url: str
) -> None:
    async with opened(url) as store:
        await store.insert([make_new(1)])
    read_only = preset(f"{url}&deadline=0.5", default_transaction_read_only="on")
    async with opened(read_only) as store:
        await store.ping()
        with pytest.raises(StoreUnavailable, match="default_transaction_read_only"):
            await store.insert([make_new(2)])
        async with await psycopg.AsyncConnection.connect(postgres.url()) as caller:
            await caller.set_read_only(True)
            with pytest.raises(StoreUnavailable, match="takes no writes here"):
                await store.insert_in(caller, [make_new(3)])


@pytest.fixture(scope="module")
def synced() -> Iterator[PostgresServer]:
    server = PostgresServer(synced=True)
    yield server
    server.stop()


def durability_of(store: PostgresStore) -> str:
    """Asked anew each time: mypy takes it for what it was before."""
    return store.capabilities.durability


async def test_durability_is_claimed_as_far_as_every_connection_has_it(
    synced: PostgresServer, postgres: PostgresServer
) -> None:
    async with opened(synced.url()) as store:
        assert durability_of(store) == "power_loss"
        async with await psycopg.AsyncConnection.connect(synced.url(), autocommit=True) as admin:
            await admin.execute("ALTER ROLE gantline SET synchronous_commit = off")
            await asyncio.gather(*(store.ping() for _ in range(5)))  # which takes new connections
            assert durability_of(store) == "process"
            await admin.execute("ALTER ROLE gantline RESET synchronous_commit")
    async with opened(preset(synced.url(), synchronous_commit="off")) as store:
        assert durability_of(store) == "process"
    async with opened(postgres.url(schema=f"w{uuid4().hex}")) as store:
        assert durability_of(store) == "process", "it runs without fsync"

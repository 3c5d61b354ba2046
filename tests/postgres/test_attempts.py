"""Further attempts of a call: what one may conclude from what the attempt before has left."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from gantline.contract.errors import StoreMisconfigured, StoreUnavailable
from gantline.contract.results import Applied, Duplicate
from gantline.contract.submission import NewJob
from gantline.stores.postgres import PostgresStore, failures
from gantline.stores.postgres.calls import Calls
from gantline.stores.postgres.connection import Connection
from gantline.stores.postgres.location import parse_url
from gantline.stores.postgres.sql import Sql
from gantline.testing.conformance.bench import LEASE
from gantline.testing.factories import lane_requests, make_new, register_sessions

Attempt = Callable[[], Awaitable[Any]]


class Disturbed(Calls):
    """Calls to which something happens once, when they connect or in their attempt."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.on_attempt: Callable[[Sql, Attempt], Awaitable[Any]] | None = None
        self.on_connect: Callable[[], Awaitable[None]] | None = None

    async def _attempt(self, sql: Sql, work: Any, atomic: bool) -> Any:
        disturb, self.on_attempt = self.on_attempt, None
        if disturb is None:
            return await super()._attempt(sql, work, atomic)
        attempt = super()._attempt
        return await disturb(sql, lambda: attempt(sql, work, atomic))

    async def _connect(self) -> Connection:
        disturb, self.on_connect = self.on_connect, None
        if disturb is not None:
            await disturb()
        return await super()._connect()


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(parse_url(url), make_calls=Disturbed)
    await store.open()
    await store.insert([make_new(0)])
    yield store
    await store.close()


@pytest.fixture
def calls(store: PostgresStore) -> Disturbed:
    assert isinstance(store.calls, Disturbed)
    return store.calls


def disturbing(store: PostgresStore, new: NewJob, error: psycopg.Error) -> Callable[..., Any]:
    """Somebody else inserts the very same job, and our call fails."""

    async def disturb(*_: Any) -> None:
        assert await store.insert([new]) == [Applied(1)]
        raise error

    return disturb


async def test_an_insert_whose_answer_was_lost_finds_its_own_job(
    store: PostgresStore, calls: Disturbed
) -> None:
    async def lose_the_answer(sql: Sql, attempt: Attempt) -> None:
        await attempt()
        sql.connection.pgconn.finish()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    calls.on_attempt = lose_the_answer
    assert await store.insert([make_new(1)]) == [Applied(1)]


@pytest.mark.parametrize(
    "error",
    [
        psycopg.errors.DeadlockDetected("deadlock detected"),
        psycopg.errors.SerializationFailure("could not serialize access"),
        psycopg.errors.ReadOnlySqlTransaction("cannot execute INSERT in a read-only transaction"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_an_insert_that_was_surely_rolled_back_takes_no_other_s_job_for_its_own(
    store: PostgresStore, calls: Disturbed, error: psycopg.Error
) -> None:
    new = make_new(1)
    calls.on_attempt = disturbing(store, new, error)
    assert await store.insert([new]) == [Duplicate(new.job.job_id)]


async def test_an_insert_that_could_not_connect_takes_no_other_s_job_for_its_own(
    store: PostgresStore, calls: Disturbed
) -> None:
    new = make_new(1)

    async def hold_the_only_connection(sql: Sql) -> list[Any]:
        refused = psycopg.OperationalError("connection failed: Connection refused")
        calls.on_connect = disturbing(other, new, refused)
        return await store.insert([new])

    other = PostgresStore(store.location)
    await other.open()
    assert await calls.run(hold_the_only_connection) == [Duplicate(new.job.job_id)]
    await other.close()


# -- a database that is not the one it was ---------------------------------------------------------


async def swap_lanes(sql: Sql) -> None:
    """As after a failover to a standby that had not heard of our lanes yet."""
    await sql.run("ALTER TABLE gantline.lane DROP CONSTRAINT lane_queue_job_type_key")
    await sql.run(
        "UPDATE gantline.lane SET job_type = CASE job_type WHEN 'one' THEN 'two' ELSE 'one' END "
        "WHERE job_type IN ('one', 'two')"
    )
    await sql.run("ALTER TABLE gantline.lane ADD UNIQUE (queue, job_type)")


async def type_of(store: PostgresStore, new: NewJob) -> str:
    (job,) = await store.get([new.job.job_id], tenant_id=None)
    assert job is not None
    return job.job.job_type


async def test_an_insert_under_way_in_a_failover_learns_its_lanes_again(
    store: PostgresStore, calls: Disturbed
) -> None:
    await store.insert([make_new(job_type="one"), make_new(job_type="two")])

    async def fail_over(sql: Sql, attempt: Attempt) -> None:
        await swap_lanes(sql)
        sql.connection.pgconn.finish()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    new = make_new(1, job_type="one")
    calls.on_attempt = fail_over
    assert await store.insert([new]) == [Applied(1)]
    assert await type_of(store, new) == "one"


async def test_a_new_connection_may_lead_to_a_database_that_was_switched_unnoticed(
    store: PostgresStore, calls: Disturbed
) -> None:
    await store.insert([make_new(job_type="one"), make_new(job_type="two")])
    new = make_new(1, job_type="one")

    async def insert_on_another(sql: Sql) -> None:
        await swap_lanes(sql)
        assert await store.insert([new]) == [Applied(1)]

    await calls.run(insert_on_another)
    assert await type_of(store, new) == "one"


async def test_a_claim_under_way_in_a_failover_starts_only_what_was_asked_for(
    store: PostgresStore, calls: Disturbed
) -> None:
    one, two = make_new(1, job_type="one"), make_new(2, job_type="two")
    await store.insert([one, two])
    await register_sessions(store, "w")
    assert await store.claim("w", uuid4(), lane_requests("one", limit=0), lease=LEASE) == []

    async def fail_over(sql: Sql, attempt: Attempt) -> None:
        await swap_lanes(sql)
        sql.connection.pgconn.finish()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    calls.on_attempt = fail_over
    runs = await store.claim("w", uuid4(), lane_requests("one"), lease=LEASE)
    # The lanes were swapped under the jobs, so the other job is now of that type.
    assert [(run.job.job_id, run.job.job_type) for run in runs] == [(two.job.job_id, "one")]


# -- which errors another attempt may mend ---------------------------------------------------------

REFUSED = "connection failed: connection to server at x failed: FATAL: "
TWO = """{last}
Multiple connection attempts failed. All failures were:
- host: 'a', port: '5432', hostaddr: '10.0.0.1': connection failed: {first}
- host: '{host}', port: '5432', hostaddr: '10.0.0.2': connection failed: {last}"""
NO_ENTRY = "FATAL:  no pg_hba.conf entry for host"


@pytest.mark.parametrize(
    "text",
    [
        "failed to resolve host 'db': [Errno -3] Temporary failure in name resolution",
        "failed to resolve host 'db': [Errno -2] Name or service not known",
        'could not translate host name "db" to address',
        "connection failed: Connection refused",
        f"{REFUSED} the database system is starting up",
        f"{REFUSED} sorry, too many clients already",
        "consuming input failed: server closed the connection unexpectedly",
        "connection timeout expired",
        # The other host may be the one that would let us in.
        TWO.format(host="b", first="Connection refused", last=NO_ENTRY),
        TWO.format(host="b", first=NO_ENTRY, last="Connection refused"),
    ],
)
def test_what_may_be_over_soon_is_tried_again(text: str) -> None:
    error = psycopg.OperationalError(text)
    assert failures.is_retryable(error)
    assert isinstance(failures.translate_error(error), StoreUnavailable)


@pytest.mark.parametrize(
    "text",
    [
        f'{REFUSED} password authentication failed for user "app"',
        f'{REFUSED} database "shop" does not exist',
        f'{REFUSED} role "app" does not exist',
        "connection failed: fe_sendauth: no password supplied",
        "connection failed: SSL error: certificate verify failed",
        "connection failed: server does not support SSL, but SSL was required",
        # Two addresses of one host, of which one answers; and two hosts that both say no.
        TWO.format(host="a", first="Connection refused", last=NO_ENTRY),
        TWO.format(host="b", first=NO_ENTRY, last='FATAL:  role "app" does not exist'),
    ],
)
def test_a_no_of_every_host_is_told_at_once(text: str) -> None:
    error = psycopg.OperationalError(text)
    assert not failures.is_retryable(error)
    assert isinstance(failures.translate_error(error), StoreMisconfigured)


def test_the_words_of_a_statement_s_error_are_not_taken_for_a_refusal() -> None:
    error = psycopg.errors.AdminShutdown("the slot that does not exist")
    assert failures.is_retryable(error)


async def test_a_host_that_nobody_knows_is_looked_for_until_the_deadline() -> None:
    store = PostgresStore(parse_url("postgresql://u@no-such-host.invalid/d?deadline=0.5"))
    with pytest.raises(StoreUnavailable, match=r"no-such-host\.invalid.*name service"):
        await store.open()

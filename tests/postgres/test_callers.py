"""Submitting in the caller's own transaction, through every driver that a caller may hold."""

import asyncio
import json
import re
import sqlite3
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, closing
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg  # type: ignore[import-untyped]  # has no types
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from gantline import Gantline, JobDefaults, JobStatus
from gantline.app.job_type import JobType
from gantline.contract.errors import (
    JobIdConflict,
    PayloadTooLarge,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
    SubmitConflict,
)
from gantline.contract.snapshot import JobSnapshot
from tests.postgres import drivers
from tests.postgres.drivers import Caller, Connects
from tests.servers.postgres import PostgresServer

pytestmark = pytest.mark.matrix

every_driver = pytest.mark.parametrize("connects", drivers.ALL.values(), ids=drivers.ALL)
every_sync_driver = pytest.mark.parametrize("connects", drivers.SYNC.values(), ids=drivers.SYNC)

PRIVATE = "hush hush"
# Keys out of order, what jsonb refuses or rounds, and more than one plane of Unicode.
AWKWARD = {"b": 1, "a": "\x00 NUL", "big": 2**63, "float": 0.1, "text": "ß 漢 🦊 \\ \" '", "": None}


@pytest.fixture
async def jobs(url: str) -> AsyncIterator[Gantline]:
    async with Gantline(url) as jobs:
        yield jobs


@pytest.fixture
def order(jobs: Gantline) -> JobType[..., None]:
    @jobs.job("order")
    async def order(value: Any) -> None: ...

    return order


@pytest.fixture
def connected(
    postgres: PostgresServer, jobs: Gantline, connects: Connects
) -> Callable[[], AbstractAsyncContextManager[Caller]]:
    return lambda: connects(postgres.url())


Connected = Callable[[], AbstractAsyncContextManager[Caller]]


async def found(jobs: Gantline, *ids: Any) -> list[JobSnapshot | None]:
    return await jobs.store.get(ids, tenant_id=None)


@every_driver
async def test_a_job_exists_once_its_transaction_is_committed_and_never_otherwise(
    jobs: Gantline, order: JobType[..., None], connected: Connected, schema: str
) -> None:
    async with connected() as caller:
        await caller.run(f"CREATE TABLE {schema}.orders (n int)")
        await caller.commit()
        await caller.run(f"INSERT INTO {schema}.orders VALUES (1)")
        lost = await order.submit(1, connection=caller.connection)
        await caller.rollback()
        await caller.run(f"INSERT INTO {schema}.orders VALUES (2)")
        kept = await order.submit(2, connection=caller.connection)
        assert await found(jobs, lost.job_id, kept.job_id) == [None, None]
        await caller.commit()
    gone, job = await found(jobs, lost.job_id, kept.job_id)
    assert gone is None
    assert job is not None
    assert job.status is JobStatus.QUEUED


@every_driver
async def test_a_payload_arrives_byte_for_byte(
    jobs: Gantline, order: JobType[..., None], connected: Connected
) -> None:
    here = await order.submit(AWKWARD)
    async with connected() as caller:
        there = await order.submit(AWKWARD, connection=caller.connection)
        await caller.commit()
    one, other = await found(jobs, here.job_id, there.job_id)
    assert one is not None
    assert other is not None
    assert bytes(other.job.payload) == bytes(one.job.payload)
    assert other.job.data() == AWKWARD


@every_driver
async def test_duplicates_and_conflicts_are_answered_and_leave_the_transaction_usable(
    jobs: Gantline, order: JobType[..., None], connected: Connected
) -> None:
    first = await order.submit({"a": 1, "b": 2}, idempotency_key="k")
    async with connected() as caller:
        again = await order.submit(
            {"b": 2, "a": 1}, idempotency_key="k", connection=caller.connection
        )
        assert (again.job_id, again.duplicate) == (first.job_id, True)
        assert type(again.job_id) is type(first.job_id)
        with pytest.raises(SubmitConflict):
            await order.submit({"a": 2}, idempotency_key="k", connection=caller.connection)
        with pytest.raises(JobIdConflict):
            await order.submit({"a": 2}, job_id=first.job_id, connection=caller.connection)
        kept = await order.submit({"a": 2}, idempotency_key="k2", connection=caller.connection)
        within = await order.submit({"a": 2}, idempotency_key="k2", connection=caller.connection)
        assert (within.job_id, within.duplicate) == (kept.job_id, True)
        await caller.commit()
    assert await found(jobs, kept.job_id) != [None]


@every_driver
@pytest.mark.parametrize("first_commits", [True, False])
async def test_of_two_open_transactions_with_one_key_the_second_waits_for_the_first(
    order: JobType[..., None], connected: Connected, first_commits: bool
) -> None:
    async with connected() as one, connected() as other:
        first = await order.submit(1, idempotency_key="k", connection=one.connection)
        submitting = asyncio.create_task(
            order.submit(1, idempotency_key="k", connection=other.connection)
        )
        await until_somebody_waits(order.app)
        await (one.commit() if first_commits else one.rollback())
        second = await asyncio.wait_for(submitting, 10)
        assert second.duplicate is first_commits
        assert (second.job_id == first.job_id) is first_commits
        await other.commit()
    (lane,) = await order.app.store.counts(tenant_id=None)
    assert lane.queued == 1


async def until_somebody_waits(jobs: Gantline, blocked: int = 1) -> None:
    """Until the server itself says that so many wait for a lock on a table of ours."""
    location = jobs.store.location  # type: ignore[attr-defined]  # of PostgreSQL
    waiting = f"""
        SELECT count(*) FROM pg_stat_activity
        WHERE wait_event_type = 'Lock' AND query LIKE '%{location.schema}.%'
    """
    async with await psycopg.AsyncConnection.connect(location.conninfo, autocommit=True) as watch:
        async with asyncio.timeout(10):
            while True:
                row = await (await watch.execute(waiting.encode())).fetchone()
                if row is not None and row[0] >= blocked:
                    return
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("connects", [drivers.psycopg_async], ids=["psycopg-async"])
async def test_the_first_job_of_a_type_in_an_open_transaction_keeps_nobody_waiting(
    jobs: Gantline, order: JobType[..., None], connected: Connected, url: str
) -> None:
    async with connected() as caller:
        await order.submit(1, connection=caller.connection)
        async with Gantline(url + "&deadline=5") as others, asyncio.timeout(5):
            elsewhere = others.job("order")(order.handler.function)
            await elsewhere.submit(2)
            async with others.running():
                await (await elsewhere.submit(3)).result(timeout=5)


@pytest.mark.parametrize("connects", [drivers.psycopg_async], ids=["psycopg-async"])
async def test_a_type_that_plain_sql_has_just_made_keeps_no_worker_waiting(
    jobs: Gantline, order: JobType[..., None], connected: Connected, url: str, schema: str
) -> None:
    @jobs.job("known")
    async def known(value: int) -> int:
        return value

    async with connected() as caller:
        await caller.run(f'SELECT * FROM {schema}.submit(\'{{"jobType": "order"}}\')')
        async with jobs.running():
            assert await (await known.submit(1)).result(timeout=5) == 1
            await order.submit(2, connection=caller.connection)
            await caller.commit()


@every_sync_driver
def test_submit_sync_joins_the_transaction_too(
    connects: Connects, postgres: PostgresServer, url: str
) -> None:
    jobs = Gantline(url)

    @jobs.job("order")
    async def order(value: int) -> None: ...

    async def submit() -> None:
        async with connects(postgres.url()) as caller:
            lost = await asyncio.to_thread(order.submit_sync, 1, connection=caller.connection)
            await caller.rollback()
            kept = await asyncio.to_thread(order.submit_sync, 2, connection=caller.connection)
            await caller.commit()
        async with Gantline(url) as other:
            assert [job is None for job in await found(other, lost.job_id, kept.job_id)] == [
                True,
                False,
            ]

    asyncio.run(submit())
    jobs.run_sync(jobs.close)


@pytest.mark.parametrize("connects", [drivers.psycopg_sync], ids=["psycopg"])
async def test_one_thread_that_waits_for_a_key_does_not_hold_up_the_others(
    order: JobType[..., None], connected: Connected
) -> None:
    async with connected() as one, connected() as other:
        await asyncio.to_thread(
            order.submit_sync, 1, idempotency_key="k", connection=one.connection
        )
        waiting = asyncio.create_task(
            asyncio.to_thread(
                order.submit_sync, 1, idempotency_key="k", connection=other.connection
            )
        )
        await until_somebody_waits(order.app)
        async with asyncio.timeout(5):
            await asyncio.to_thread(order.submit_sync, 2, connection=one.connection)
        await one.commit()
        assert (await asyncio.wait_for(waiting, 10)).duplicate


@pytest.mark.parametrize("connects", drivers.ALL.values(), ids=drivers.ALL)
async def test_a_broken_transaction_is_told_in_our_words(
    order: JobType[..., None], connected: Connected
) -> None:
    async with connected() as caller:
        with pytest.raises(Exception, match="division by zero"):
            await caller.run("SELECT 1 / 0")
        with pytest.raises(StoreError, match="transaction is aborted"):
            await order.submit(1, connection=caller.connection)
        await caller.rollback()
        await order.submit(1, connection=caller.connection)
        await caller.commit()


@every_driver
async def test_no_error_shows_the_payload(order: JobType[..., None], connected: Connected) -> None:
    """SQLAlchemy's own repeat all parameters of the statement."""
    async with connected() as caller:
        with pytest.raises(Exception, match="division by zero"):
            await caller.run("SELECT 1 / 0")
        with pytest.raises(StoreError, match="transaction is aborted") as told:
            await order.submit(PRIVATE, connection=caller.connection)
        await caller.rollback()
    assert PRIVATE not in "".join(traceback.format_exception(told.value))
    behind: BaseException | None = told.value
    while behind is not None:
        assert PRIVATE not in f"{behind!r} {behind}"
        assert "[parameters: " not in str(behind)  # of which the middle is left out
        behind = behind.__cause__ or behind.__context__


async def test_a_connection_to_a_database_without_our_schema_is_told(
    jobs: Gantline, order: JobType[..., None], postgres: PostgresServer
) -> None:
    async with await psycopg.AsyncConnection.connect(postgres.url("template1")) as connection:
        with pytest.raises(StoreError, match="does not exist"):
            await order.submit(1, connection=connection)


async def test_a_connection_that_joins_no_transaction_is_refused(
    order: JobType[..., None], postgres: PostgresServer
) -> None:
    async with await psycopg.AsyncConnection.connect(postgres.url(), autocommit=True) as alone:
        with pytest.raises(StoreMisconfigured, match="no transaction to join"):
            await order.submit(1, connection=alone)
        async with alone.transaction():
            kept = await order.submit(1, connection=alone)
    assert await found(order.app, kept.job_id) != [None]
    bare = await asyncpg.connect(postgres.url())
    with pytest.raises(StoreMisconfigured, match="no transaction to join"):
        await order.submit(1, connection=bare)
    await bare.close()


async def test_a_closed_connection_is_told(
    order: JobType[..., None], postgres: PostgresServer
) -> None:
    connection = await psycopg.AsyncConnection.connect(postgres.url())
    await connection.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await order.submit(1, connection=connection)


async def test_a_connection_to_another_database_is_refused_before_anything_is_sent(
    order: JobType[..., None],
) -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    with engine.begin() as connection, Session(engine) as session:
        for handed_in in (connection, session):
            with pytest.raises(StoreMisconfigured, match="is to sqlite; the jobs are in Postgre"):
                await order.submit(1, connection=handed_in)
    engine.dispose()


async def test_what_has_connections_or_belongs_to_one_is_none(
    order: JobType[..., None], postgres: PostgresServer
) -> None:
    engine = sqlalchemy.create_engine(drivers._via(postgres.url(), "psycopg"))
    pool = asyncpg.create_pool(postgres.url())
    with psycopg.connect(postgres.url()) as connection, connection.cursor() as cursor:
        for handed_in in (engine, pool, cursor):
            with pytest.raises(StoreMisconfigured, match="is not a connection"):
                await order.submit(1, connection=handed_in)
    engine.dispose()


async def test_what_is_no_connection_to_postgresql_is_refused(
    order: JobType[..., None], postgres: PostgresServer
) -> None:
    with pytest.raises(StoreMisconfigured, match="psycopg, asyncpg or SQLAlchemy"):
        await order.submit(1, connection=object())
    with (
        closing(sqlite3.connect(":memory:")) as sqlite,
        pytest.raises(StoreMisconfigured, match="'sqlite3' cannot carry"),
    ):
        await order.submit(1, connection=sqlite)
    # A registry gives each thread a session of its own: ours would not be the caller's.
    engine = sqlalchemy.create_engine(drivers._via(postgres.url(), "psycopg"))
    registry = scoped_session(sessionmaker(engine))
    with pytest.raises(StoreMisconfigured, match="registry"):
        await order.submit(1, connection=registry)
    await order.submit(1, connection=registry())
    registry.rollback()
    registry.remove()
    engine.dispose()


async def test_all_that_a_submit_can_say_arrives_through_a_connection(
    jobs: Gantline, order: JobType[..., None], postgres: PostgresServer
) -> None:
    """The same envelope, whichever way it took."""
    options: dict[str, Any] = {
        "delay": timedelta(days=10_000, microseconds=1),
        "priority": 1,
        "queue": "slow",
        "tenant": "acme",
        "owner": "ann",
        "subject": "s ß",
        "correlation_id": "c",
        "max_attempts": 7,
    }
    here = await order.submit(1, **options)
    async with await psycopg.AsyncConnection.connect(postgres.url()) as connection:
        there = await order.submit(1, **options, connection=connection)
    one, other = await found(jobs, here.job_id, there.job_id)
    assert one is not None
    assert other is not None
    for name in ("priority", "queue", "tenant_id", "created_by", "subject_id", "max_attempts"):
        assert getattr(one.job, name) == getattr(other.job, name)
    assert one.job.scheduled_at is not None
    assert other.job.scheduled_at is not None
    apart = other.job.scheduled_at - one.job.scheduled_at
    assert timedelta(0) < apart < timedelta(seconds=5)


# -- as a DBA or a program in another language does it --------------------------------------------


@pytest.fixture
def submit_sql(postgres: PostgresServer, jobs: Gantline, schema: str) -> "SubmitSql":
    async def submit(envelope: str) -> list[tuple[Any, ...]]:
        async with await psycopg.AsyncConnection.connect(postgres.url()) as connection:
            statement = f"SELECT * FROM {schema}.submit(%s)".encode()
            return await (await connection.execute(statement, (envelope,))).fetchall()

    return submit


SubmitSql = Callable[[str], Any]


async def test_plain_sql_submits_a_job_that_a_worker_runs(
    jobs: Gantline, submit_sql: SubmitSql
) -> None:
    ran: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    @jobs.job("mail")
    async def mail(value: Any) -> None:
        ran.set_result(value)

    ((place, outcome, job_id, kind),) = await submit_sql(
        '{"jobType": "mail", "payload": {"to": "a@example.org", "n": 18446744073709551616}}'
    )
    assert (place, outcome, kind) == (1, "accepted", None)
    async with jobs.running():
        assert await asyncio.wait_for(ran, 10) == {"to": "a@example.org", "n": 2.0**64}
    (job,) = await found(jobs, job_id)
    assert job is not None
    assert (job.job.tenant_id, job.job.max_attempts) == ("default", 3)


async def test_plain_sql_submits_many_and_says_what_became_of_each(submit_sql: SubmitSql) -> None:
    one, same, other = (
        {"jobType": "mail", "idempotencyKey": "k", "payload": {"b": 1, "a": 2}},
        {"jobType": "mail", "idempotencyKey": "k", "payload": {"a": 2, "b": 1}},
        {"jobType": "mail", "idempotencyKey": "k", "payload": {"a": 3}},
    )
    rows = await submit_sql(json.dumps([one, same, other]))
    assert [row[:2] for row in rows] == [(1, "accepted"), (2, "duplicate"), (3, "conflict")]
    assert rows[1][2] == rows[0][2]
    assert await submit_sql("[]") == []


async def test_python_and_plain_sql_agree_on_what_is_the_same_job(
    order: JobType[..., None], submit_sql: SubmitSql
) -> None:
    payload = {"b": [1, True, None, "ß"], "a": {"z": "", "y": "\\"}}
    given = uuid4()
    handle = await order.submit(payload, idempotency_key="k", job_id=given)
    envelope = {"jobType": "order", "payload": payload}
    for named, by in (({"idempotencyKey": "k"}, "job"), ({"jobId": str(given)}, "id")):
        ((_, outcome, job_id, kind),) = await submit_sql(json.dumps(envelope | named))
        assert (outcome, job_id, kind) == ("duplicate", handle.job_id, by)


async def test_an_id_in_plain_sql_is_a_key_of_its_tenant(
    jobs: Gantline, submit_sql: SubmitSql
) -> None:
    given = str(uuid4())
    one = {"jobType": "mail", "tenantId": "one", "jobId": given, "payload": 1}
    jobs_ = [one, one, one | {"payload": 2}, one | {"tenantId": "other", "payload": 2}]
    rows = await submit_sql(json.dumps(jobs_))
    assert [row[1] for row in rows] == ["accepted", "duplicate", "conflict", "accepted"]
    first, again, _, theirs = (row[2] for row in rows)
    assert first == again
    assert len({first, theirs, UUID(given)}) == 3
    for tenant, job_id in (("one", first), ("other", theirs)):
        assert (await jobs.get(given, tenant=tenant)).job.job_id == job_id
    named = [one | {"tenantId": tenant, "jobId": str(first)} for tenant in ("one", "other")]
    rows = await submit_sql(json.dumps(named))
    assert [row[1] for row in rows] == ["duplicate", "accepted"]


async def test_plain_sql_cannot_name_the_id_under_which_a_job_is_stored(
    submit_sql: SubmitSql,
) -> None:
    own = uuid4()
    ((_, outcome, job_id, _),) = await submit_sql(
        json.dumps({"jobType": "mail", "ownId": str(own)})
    )
    assert outcome == "accepted"
    assert job_id != own


@every_driver
async def test_an_id_given_within_a_transaction_is_a_key_of_its_tenant(
    jobs: Gantline, order: JobType[..., None], connected: Connected
) -> None:
    given = uuid4()
    async with connected() as caller:
        first, theirs = [
            await order.submit(1, job_id=given, tenant=tenant, connection=caller.connection)
            for tenant in ("one", "other")
        ]
        again = await order.submit(1, job_id=given, tenant="one", connection=caller.connection)
        assert (again.job_id, again.duplicate) == (first.job_id, True)
        with pytest.raises(JobIdConflict):
            await order.submit(2, job_id=given, tenant="one", connection=caller.connection)
        await caller.commit()
    for tenant, handle in (("one", first), ("other", theirs)):
        job = (await jobs.get(given, tenant=tenant)).job
        assert (job.job_id, job.external_id) == (handle.job_id, given)


@pytest.mark.parametrize(
    ("envelope", "said"),
    [
        ("{}", "job 1 has no jobType"),
        ('[{"jobType": "mail"}, {"payload": 1}]', "job 2 has no jobType"),
        ("7", "a job is a JSON object"),
        ('["mail"]', "job 1 is not a JSON object"),
        ('{"jobType": ""}', "jobType of job 1 is empty"),
        ('{"jobType": "mail", "queue": ""}', "queue of job 1 is empty"),
        ('{"jobType": "mail", "tenantId": ""}', "tenantId of job 1 is empty"),
        (json.dumps({"jobType": "x" * 129}), "jobType of job 1 is longer than 128"),
        (json.dumps({"jobType": "a\nb"}), "jobType of job 1 contains a control character"),
        (json.dumps({"jobType": "a", "subjectId": "x" * 513}), "subjectId of job 1 is longer"),
        ('{"jobType": "mail", "priority": 4}', "priority of job 1 is 4; it must be from 0 to 3"),
        ('{"jobType": "mail", "maxAttempts": 0}', "maxAttempts of job 1 is 0"),
        ('{"jobType": "mail", "attempt": 4}', "attempt of job 1 is 4; it must be from 1 to 3"),
        ('{"jobType": "mail", "payloadVersion": 0}', "payloadVersion of job 1 is 0"),
        ('{"jobType": "mail", "jobId": "x"}', "invalid input syntax for type uuid"),
        ('{"jobType": "mail", "priority": "high"}', "invalid input syntax for type integer"),
        ('{"jobType": "mail", "scheduledAt": "soon"}', "invalid input syntax for type timestamp"),
        ('{"jobType": "mail", "payloadText": "{"}', "payloadText of job 1 is not JSON"),
        ('{"jobType": "mail", "payload": "\\u0000"}', "unsupported Unicode escape sequence"),
        ('{"jobType": "mail", "payloadText": "1", "payload": 1}', "both payload and payloadText"),
        ('{"jobType": "mail", "requestKey": "k"}', "requestKey of job 1 is not a JSON object"),
        ('{"jobType": "mail", "requestKey": {"ke": 1}}', "job 1 has no requestKey.scope"),
        ('{"jobType": "mail", "createdAt": "9999-12-30T00:00:00Z"}', "createdAt of job 1 is in"),
        ('{"jobType": "mail", "requestKey": {"key": "k"}}', "job 1 has no requestKey.scope"),
        ('{"jobType": "mail", "traceContext": "x"}', "traceContext of job 1 is not a JSON object"),
        ('{"jobType": 7}', "jobType of job 1 is not a text"),
        (json.dumps({"jobType": "a", "payload": "x" * 65535}), "payload of job 1 has 65537 bytes"),
        (json.dumps({"jobType": "a", "payload": "ä" * 32768}), "payload of job 1 has 65538 bytes"),
        (json.dumps({"jobType": "a", "payloadText": f'"{"x" * 65535}"'}), "has 65537 bytes"),
        ("{", "invalid input syntax for type json"),
        (None, "a job is a JSON object"),
    ],
)
async def test_bad_input_in_plain_sql_is_told_clearly(
    submit_sql: SubmitSql, envelope: str, said: str
) -> None:
    with pytest.raises(psycopg.Error, match=said):
        await submit_sql(envelope)


async def test_unknown_members_are_ignored_and_named_with_those_that_are_known(
    postgres: PostgresServer, jobs: Gantline, schema: str
) -> None:
    notices: list[tuple[str, str]] = []  # what psycopg gives is there within the handler only

    def note(one: psycopg.errors.Diagnostic) -> None:
        notices.append((one.message_primary or "", one.message_hint or ""))

    envelope = {
        "jobType": "mail",
        "no such field": 1,
        "requestKey.key": "k",
        "requestKey": {"ke": 1, "scope": "s", "key": "real"},
        "\x1b[31m": "red",
    }
    many = {"jobType": "mail"} | {f"{number:02}{'x' * 100}": 1 for number in range(30)}
    async with await psycopg.AsyncConnection.connect(postgres.url()) as connection:
        connection.add_notice_handler(note)
        statement = f"SELECT outcome FROM {schema}.submit(%s)".encode()
        for one in (envelope, many, {"jobType": "mail"}):
            rows = await (await connection.execute(statement, (json.dumps(one),))).fetchall()
            assert rows == [("accepted",)]
    (first, hint), (second, _) = notices
    assert first == (
        "job 1 has members that are not known and were ignored: "
        '"?[31m", "no such field", "requestKey.ke", "requestKey.key"'
    )
    assert second.endswith('" and 10 more')
    assert len(second) < 1500
    hint = hint.removeprefix("Known are ").removesuffix(".")
    page = (Path(__file__).parents[2] / "docs" / "postgresql.md").read_text()
    documented = re.findall(
        r"^\| `([A-Za-z.]+)`", page.partition("### The fields")[2], re.MULTILINE
    )
    assert sorted(documented) == sorted(hint.split(", "))


async def test_a_payload_may_have_the_limit_that_is_given(
    jobs: Gantline, postgres: PostgresServer, schema: str
) -> None:
    def envelope(size: int) -> str:
        return json.dumps({"jobType": "mail", "payload": "x" * (size - 2)})

    async with await psycopg.AsyncConnection.connect(postgres.url()) as connection:
        plain = f"SELECT * FROM {schema}.submit(%s)".encode()
        limited = f"SELECT * FROM {schema}.submit(%s, p_max_payload_bytes => %s)".encode()
        await connection.execute(plain, (envelope(65536),))
        await connection.execute(limited, (envelope(100_000), 100_000))
        await connection.execute(limited, (envelope(1_000_000), None))
        with pytest.raises(psycopg.errors.InvalidParameterValue) as told:
            await connection.execute(limited, (envelope(101), 100))
        assert "p_max_payload_bytes" in (told.value.diag.message_hint or "")


async def test_an_application_s_own_limit_holds_in_a_caller_s_transaction(
    url: str, postgres: PostgresServer
) -> None:
    async with Gantline(url, defaults=JobDefaults(payload_limit=200_000)) as jobs:

        @jobs.job("large")
        async def large(value: str) -> None: ...

        async with await psycopg.AsyncConnection.connect(postgres.url()) as connection:
            await large.submit("x" * 100_000, connection=connection)
            with pytest.raises(PayloadTooLarge):
                await large.submit("x" * 200_000, connection=connection)

"""Transactions of others on the jobs' database.

A caller submits in its own transaction; a handler completes its run in one of its own.

All drivers call one SQL function, so nothing here knows how a job is stored. No driver is imported
here: the caller who has a connection has imported it.
"""

import asyncio
import inspect
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import msgspec
import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from gantline.contract.clock import span_micros
from gantline.contract.errors import StoreMisconfigured
from gantline.contract.results import Applied, ApplyResult, InsertResult
from gantline.contract.submission import NewJob
from gantline.contract.transition import Transition
from gantline.stores.postgres import failures
from gantline.stores.postgres.apply import apply
from gantline.stores.postgres.calls import Calls, do_nothing
from gantline.stores.postgres.dedupe import sort_for_locking
from gantline.stores.postgres.insert import lanes_of, read_refusal
from gantline.stores.postgres.lanes import Lanes
from gantline.stores.postgres.location import Location
from gantline.stores.postgres.sql import Row, Sql

# The id as text, because drivers represent a UUID differently. The size of the payload and the
# admission were checked before.
_SUBMIT: Final = (
    "SELECT place, outcome, job_id::text, by_kind FROM gantline.submit({}, {}, NULL, true)"
)


async def insert_through(
    connection: Any, jobs: Sequence[NewJob], *, location: Location, now: int | None
) -> list[InsertResult]:
    order = sorted(range(len(jobs)), key=lambda index: sort_for_locking(jobs[index].keys))
    text = msgspec.json.encode([_envelope(jobs[index]) for index in order]).decode()
    call = _CALLS[_driver_of(connection)]
    try:
        rows = await call(connection, location, text, now)
    except Exception as error:
        known = failures.find_psycopg_error(error)
        if known is None:
            raise
    else:
        results = {order[row[0] - 1]: _read_result(row) for row in rows}
        return [results[index] for index in range(len(jobs))]
    raise failures.translate_with_cause(known)


def _read_result(row: Row) -> InsertResult:
    index, outcome, job_id, kind = row
    return (
        Applied(1) if outcome == "accepted" else read_refusal((index, outcome, UUID(job_id), kind))
    )


def _driver_of(connection: Any) -> str:
    """Find the driver by the class or its bases: SQLModel's session is one of SQLAlchemy's."""
    packages = [kind.__module__.partition(".")[0] for kind in type(connection).__mro__]
    for package in packages:
        if package in _CALLS:
            return package
    raise StoreMisconfigured(
        f"A connection of {packages[0]!r} cannot carry a submit to PostgreSQL.",
        next_step="Use one of psycopg, asyncpg or SQLAlchemy 2.",
    )


async def _through_psycopg(
    connection: Any, location: Location, text: str, now: int | None
) -> list[Row]:
    if not hasattr(connection, "info"):
        raise _no_connection(connection)
    is_idle = connection.info.transaction_status == TransactionStatus.IDLE
    if connection.autocommit and is_idle:
        raise _no_transaction()
    statement = _submit_statement(location, "%s::jsonb", "%s::bigint").encode()
    cursor = connection.cursor(row_factory=tuple_row)
    if isinstance(connection, psycopg.AsyncConnection):
        rows: list[Row] = await (await cursor.execute(statement, (text, now))).fetchall()
        return rows
    return await asyncio.to_thread(lambda: cursor.execute(statement, (text, now)).fetchall())


async def _through_asyncpg(
    connection: Any, location: Location, text: str, now: int | None
) -> list[Row]:
    if not hasattr(connection, "is_in_transaction"):
        raise _no_connection(connection)
    if not connection.is_in_transaction():
        raise _no_transaction()
    statement = _submit_statement(location, "$1::text::jsonb", "$2::bigint")
    return [tuple(row) for row in await connection.fetch(statement, text, now)]


async def _through_sqlalchemy(
    connection: Any, location: Location, text: str, now: int | None
) -> list[Row]:
    import sqlalchemy

    if hasattr(connection, "registry"):
        raise StoreMisconfigured(
            "A registry of sessions is not a session: each thread has its own.",
            next_step="Call it, and give what it returns.",
        )
    if not hasattr(connection, "execute"):
        raise _no_connection(connection)
    bind = connection if hasattr(connection, "dialect") else connection.get_bind()
    if bind.dialect.name != "postgresql":
        raise StoreMisconfigured(
            f"The connection is to {bind.dialect.name}; the jobs are in PostgreSQL.",
            next_step="Use one to the database of the jobs, or submit without `connection`.",
        )
    statement = sqlalchemy.text(
        _submit_statement(location, "CAST(:jobs AS jsonb)", "CAST(:now AS bigint)")
    )
    values = {"jobs": text, "now": now}
    if inspect.iscoroutinefunction(connection.execute):
        result = await connection.execute(statement, values)
        return [tuple(row) for row in result]
    return await asyncio.to_thread(
        lambda: [tuple(row) for row in connection.execute(statement, values)]
    )


# Blocking drivers run in a thread: they may wait for another transaction of the same process.
_CALLS: Final = {
    "psycopg": _through_psycopg,
    "asyncpg": _through_asyncpg,
    "sqlalchemy": _through_sqlalchemy,
}


def _no_connection(handed_in: Any) -> StoreMisconfigured:
    kind = type(handed_in)
    return StoreMisconfigured(
        f"{kind.__module__}.{kind.__qualname__} is not a connection.",
        next_step="Give the connection or session whose transaction the job belongs to.",
    )


def _no_transaction() -> StoreMisconfigured:
    return StoreMisconfigured(
        "The connection has no transaction to join.",
        next_step="Begin one, or submit without `connection`.",
    )


def _submit_statement(location: Location, jobs: str, now: str) -> str:
    return location.sql(_SUBMIT.format(jobs, now)).decode()


def _exact_seconds(span: timedelta) -> str:
    """Write a span as text: a float would round the microseconds of a long one."""
    seconds, micros = divmod(span_micros(span), 1_000_000)
    return f"{seconds}.{micros:06}"


def _envelope(new: NewJob) -> dict[str, Any]:
    job, key = new.job, new.request_key
    return {
        "ownId": job.job_id,
        "jobId": job.external_id,
        "jobType": job.job_type,
        "queue": job.queue,
        "tenantId": job.tenant_id,
        "subjectId": job.subject_id,
        "correlationId": job.correlation_id,
        "idempotencyKey": job.idempotency_key,
        "fingerprint": new.fingerprint.hex(),
        "attempt": job.attempt,
        "maxAttempts": job.max_attempts,
        "payloadText": bytes(job.payload).decode(),
        "payloadVersion": job.payload_version,
        "priority": job.priority,
        "createdAt": job.created_at,
        "scheduledAt": job.scheduled_at,
        "expiresAt": job.expires_at,
        "delaySeconds": _exact_seconds(new.delay),
        "createdBy": job.created_by,
        "group": job.group,
        "parentJobId": job.parent_job_id,
        "traceContext": job.trace_context,
        "logged": new.logged,
        "requestKey": None
        if key is None
        else {
            "tenantId": key.tenant_id,
            "scope": key.scope,
            "key": key.key,
            "fingerprint": key.fingerprint.hex(),
            "holdSeconds": None if key.hold is None else _exact_seconds(key.hold),
        },
    }


class PostgresTransaction:
    """Its connection is psycopg's. The guard is checked in the transaction, under a lock."""

    def __init__(self, sql: Sql, lanes: Lanes, calls: Calls, now: int | None) -> None:
        self._sql = sql
        self._lanes = lanes
        self._calls = calls
        self._now = now

    @property
    def connection(self) -> Any:
        return self._sql.connection

    async def apply(self, transition: Transition) -> ApplyResult:
        lanes = tuple(lanes_of(transition.follow_ups))
        if lanes:
            await self._calls.run(do_nothing, before=lambda sql: self._lanes.load(sql, lanes))
        try:
            return await self._calls.run_in_time(self._apply(transition))
        except failures.RAISED as error:
            failed = failures.to_psycopg_error(error)
        raise failures.translate_with_cause(failed)

    async def _apply(self, transition: Transition) -> ApplyResult:
        return (await apply(self._sql, [transition], lanes=self._lanes, now=self._now))[0]

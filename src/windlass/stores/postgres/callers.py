"""Submitting in the caller's own transaction, through whatever driver it holds.

All of them call one SQL function, so nothing here knows how a job is stored; and no driver is
imported: who holds a connection has imported it.
"""

import inspect
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec
import psycopg

from windlass.contract.clock import span_micros
from windlass.contract.errors import StoreError, StoreMisconfigured
from windlass.contract.results import Applied, InsertResult
from windlass.contract.submission import NewJob
from windlass.stores.postgres import failures
from windlass.stores.postgres.insert import refused
from windlass.stores.postgres.location import Location
from windlass.stores.postgres.sql import Row

_SUBMIT: Final = "SELECT place, outcome, job_id, by_kind FROM windlass.submit({}, {})"


async def insert_through(
    connection: Any, jobs: Sequence[NewJob], *, location: Location, now: int | None
) -> list[InsertResult]:
    text = msgspec.json.encode([_envelope(new) for new in jobs]).decode()
    try:
        rows = await _call(connection, location, text, now)
    except psycopg.Error as error:
        raise failures.translate(error) from error
    return [Applied(1) if row[1] == "accepted" else refused(row) for row in sorted(rows)]


async def _call(connection: Any, location: Location, text: str, now: int | None) -> list[Row]:
    driver = type(connection).__module__.partition(".")[0]
    match driver:
        case "psycopg":
            answer = connection.execute(_said(location, "%s::jsonb", "%s::bigint"), (text, now))
        case "sqlalchemy":
            from sqlalchemy import text as statement

            said = _said(location, "CAST(:jobs AS jsonb)", "CAST(:now AS bigint)")
            answer = connection.execute(statement(said), {"jobs": text, "now": now})
        case "asyncpg":
            return [
                tuple(row)
                for row in await connection.fetch(
                    _said(location, "$1::text::jsonb", "$2::bigint"), text, now
                )
            ]
        case _:
            raise StoreMisconfigured(
                f"A connection of {driver!r} cannot carry a submit to PostgreSQL.",
                next_step="Use one of psycopg, asyncpg or SQLAlchemy 2.",
            )
    result = await answer if inspect.isawaitable(answer) else answer
    rows = result.fetchall()
    found = await rows if inspect.isawaitable(rows) else rows
    if len(found) == 0:
        raise StoreError("The database has not answered to a submit.")
    return [tuple(row) for row in found]


def _said(location: Location, jobs: str, now: str) -> str:
    return location.sql(_SUBMIT.format(jobs, now)).decode()


def _exact_seconds(span: timedelta) -> str:
    """As text: a float would round the microseconds of a long span."""
    seconds, micros = divmod(span_micros(span), 1_000_000)
    return f"{seconds}.{micros:06}"


def _envelope(new: NewJob) -> dict[str, Any]:
    job, key = new.job, new.request_key
    return {
        "jobId": job.job_id,
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
        "delaySeconds": _exact_seconds(new.delay),
        "createdBy": job.created_by,
        "parentJobId": job.parent_job_id,
        "traceContext": job.trace_context,
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

"""Between rows and structs: the one place that knows how a job is spelt in columns."""

from functools import lru_cache
from typing import Final

import msgspec

from gantline.contract.clock import from_micros
from gantline.contract.job import Job
from gantline.contract.snapshot import LogEntry, Run
from gantline.stores.postgres.lanes import Place
from gantline.stores.postgres.sql import Row
from gantline.stores.sql.rows import log_entry, trace_context

JOB_COLUMNS: Final = (
    "job.id, job.tenant, job.subject, job.correlation, job.idempotency_key, job.attempt, "
    "job.max_attempts, job.payload, job.payload_version, job.priority, job.created_at, "
    "job.scheduled_at, job.created_by, job.parent, job.trace_context"
)
JOB_WIDTH: Final = 15

RUN_COLUMNS: Final = (
    "lease.token, lease.fence, lease.session, lease.version, lease.attempt, lease.crashes, "
    "lease.snoozes, lease.priority, lease.started_at, lease.until, lease.cancel_requested"
)
RUN_WIDTH: Final = 11

LOG_COLUMNS: Final = (
    "log.job_id, log.version, log.event::text, log.status::text, log.reason, log.at, log.attempt, "
    "log.fence, log.session, log.started_at, log.error_code, log.error_message, log.error_detail, "
    "log.result, log.result_omitted, log.actor, log.percent, log.phase"
)
LOG_WIDTH: Final = 18

IS_OUTCOME: Final = "event NOT IN ('submitted', 'started', 'progressed')"
"""Whether a row of the log says how a job stands, and not only what it went through."""


# The rows of one claim share their instants.
_instant = lru_cache(maxsize=64)(from_micros)


def job_from_row(row: Row, place: Place) -> Job:
    """Read JOB_COLUMNS."""
    return Job(
        job_id=row[0],
        tenant_id=row[1],
        subject_id=row[2],
        correlation_id=row[3],
        idempotency_key=row[4],
        attempt=row[5],
        max_attempts=row[6],
        payload=msgspec.Raw(row[7]),
        payload_version=row[8],
        priority=row[9],
        created_at=from_micros(row[10]),
        scheduled_at=None if row[11] is None else from_micros(row[11]),
        created_by=row[12],
        parent_job_id=row[13],
        trace_context=trace_context(row[14]),
        queue=place[0],
        job_type=place[1],
    )


def run_from_row(row: Row, job: Job, *, waited_seconds: float | None = None) -> Run:
    """Read RUN_COLUMNS."""
    return Run(
        job=job,
        token=row[0],
        fence=row[1],
        session=row[2],
        version=row[3],
        attempt=row[4],
        crashes=row[5],
        snoozes=row[6],
        priority=row[7],
        started_at=_instant(row[8]),
        lease_until=_instant(row[9]),
        cancel_requested=row[10],
        waited_seconds=waited_seconds,
    )


def log_from_row(row: Row) -> LogEntry:
    """Read LOG_COLUMNS."""
    return log_entry(row[0], row)

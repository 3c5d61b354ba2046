"""Between rows and structs, for all SQL stores."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

import msgspec

from gantline.contract.clock import from_micros
from gantline.contract.errors import StoreCorrupt
from gantline.contract.job import Job
from gantline.contract.outcome import ErrorInfo
from gantline.contract.query import DeadCount
from gantline.contract.records import Record
from gantline.contract.snapshot import CurrentRun, JobSnapshot, LogEntry, Run
from gantline.contract.status import Event, JobStatus
from gantline.contract.stored import Dumped, Stored, StoredKey
from gantline.contract.submission import KeyKind

Row = tuple[Any, ...]
ToUuid = Callable[[Any], UUID]
"""How to read a UUID; None where the driver gives it as one."""

JOB_COLUMNS: Final = (
    "job.id, job.tenant, job.subject, job.correlation, job.idempotency_key, job.attempt, "
    "job.max_attempts, job.payload, job.payload_version, job.priority, job.created_at, "
    "job.scheduled_at, job.created_by, job.parent, job.trace_context, job.external_id, "
    "job.expires_at, job.group_name"
)
JOB_WIDTH: Final = 18

RUN_COLUMNS: Final = (
    "lease.token, lease.fence, lease.session, lease.version, lease.attempt, lease.crashes, "
    "lease.snoozes, lease.priority, lease.started_at, lease.until, lease.cancel_requested"
)
RUN_WIDTH: Final = 11

LOG_WIDTH: Final = 19

read_position: Final = msgspec.json.Decoder(list[Any]).decode
"""Read where a page ended, as `make_page` wrote it."""

# The rows of one claim share their instants.
_instant = lru_cache(maxsize=64)(from_micros)


def job_from_row(row: Row, lane: Sequence[str], to_uuid: ToUuid | None = None) -> Job:
    """Read JOB_COLUMNS; a lane is a queue and a job type."""
    parent, external = row[13], row[15]
    return Job(
        job_id=to_uuid(row[0]) if to_uuid else row[0],
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
        parent_job_id=to_uuid(parent) if to_uuid and parent is not None else parent,
        trace_context=read_trace_context(row[14]),
        external_id=to_uuid(external) if to_uuid and external is not None else external,
        expires_at=None if row[16] is None else from_micros(row[16]),
        group=row[17],
        queue=lane[0],
        job_type=lane[1],
    )


def run_from_row(
    row: Row, job: Job, to_uuid: ToUuid | None = None, *, waited_seconds: float | None = None
) -> Run:
    """Read RUN_COLUMNS."""
    return Run(
        job=job,
        token=to_uuid(row[0]) if to_uuid else row[0],
        fence=row[1],
        session=row[2],
        version=row[3],
        attempt=row[4],
        crashes=row[5],
        snoozes=row[6],
        priority=row[7],
        started_at=_instant(row[8]),
        lease_until=_instant(row[9]),
        cancel_requested=bool(row[10]),
        waited_seconds=waited_seconds,
    )


def dead_count_from_row(row: Row) -> DeadCount:
    """Read job type, status, reason, number of jobs, when the newest ended."""
    kind, status, reason, jobs, newest = row
    return DeadCount(
        job_type=kind,
        status=JobStatus(status),
        reason=reason,
        jobs=jobs,
        newest_at=from_micros(newest),
    )


def record_from_row(row: Row) -> Record:
    """Read namespace, key, value, version, expires_at, replaced."""
    namespace, key, value, version, until, replaced = row
    expires_at = None if until is None else from_micros(until)
    return Record(namespace, key, value, version, expires_at, replaced)


def read_trace_context(text: str | None) -> dict[str, str] | None:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError:
        return None  # a hint for tracing; never a reason to lose a job


def log_from_row(row: Row, to_uuid: ToUuid | None = None) -> LogEntry:
    """Read a store's LOG_COLUMNS."""
    return LogEntry(
        job_id=to_uuid(row[0]) if to_uuid else row[0],
        version=row[1],
        event=Event(row[2]),
        status=JobStatus(row[3]),
        reason=row[4],
        at=from_micros(row[5]),
        attempt=row[6],
        fence=row[7],
        session=row[8],
        started_at=None if row[9] is None else from_micros(row[9]),
        error=None if row[10] is None else ErrorInfo(row[10], row[11], row[12] or ""),
        result=row[13],
        result_omitted=row[14],
        actor=row[15],
        percent=row[16],
        phase=row[17] or "",
        emitted=row[18],
    )


def read_current_run(row: Row) -> CurrentRun:
    """Read session, started_at, until, percent, phase, cancel_requested."""
    return CurrentRun(
        session=row[0],
        started_at=from_micros(row[1]),
        lease_until=from_micros(row[2]),
        percent=row[3],
        phase=row[4],
        cancel_requested=bool(row[5]),
    )


def make_snapshot(job: Job, last: LogEntry | None, rest: Row) -> JobSnapshot:
    """Read the columns after the last log row: its crashes, snoozes and priority; then the row of
    the queue (run_at, counters), then that of the lease (counters, run), or NULLs."""
    ready, lease = rest[3:], rest[10:]
    more: dict[str, Any] = {}
    if ready[0] is not None:
        status, counters, more["run_at"] = JobStatus.QUEUED, ready[1:7], from_micros(ready[0])
    elif lease[0] is not None:
        status, counters, more["run"] = JobStatus.RUNNING, lease[:6], read_current_run(lease[6:])
    elif last is not None and last.status.is_terminal:
        crashes, snoozes, priority = rest[:3]
        status = last.status
        counters = (last.version, last.attempt, crashes, snoozes, last.fence, priority)
    else:
        raise StoreCorrupt(
            f"Job {job.job_id} is neither queued, running nor ended.",
            next_step="Restore a backup, or delete the job's row.",
        )
    version, attempt, crashes, snoozes, fence, priority = counters
    return JobSnapshot(
        job=job,
        last=last,
        status=status,
        version=version,
        attempt=attempt,
        crashes=crashes,
        snoozes=snoozes,
        fence=fence,
        priority=priority,
        **more,
    )


def make_page(items: Sequence[Stored], rows: Sequence[Row], width: int, limit: int) -> Dumped:
    """Make a page; its position is the first columns, `width` many, of its last row."""
    is_last = len(rows) < limit
    return Dumped(tuple(items), "" if is_last else msgspec.json.encode(rows[-1][:width]).decode())


def key_from_row(row: Row, to_uuid: ToUuid | None = None) -> StoredKey:
    """Read kind, tenant, scope, key, job_id, fingerprint, until."""
    kind, tenant_id, scope, key, job_id, fingerprint, until = row
    return StoredKey(
        kind=KeyKind(kind),
        tenant_id=tenant_id,
        scope=scope,
        key=key,
        job_id=to_uuid(job_id) if to_uuid else job_id,
        fingerprint=fingerprint,
        until=None if until is None else from_micros(until),
    )

"""Between rows and structs, where the SQL stores spell them alike."""

from typing import Any
from uuid import UUID

import msgspec

from gantline.contract.clock import from_micros
from gantline.contract.errors import StoreCorrupt
from gantline.contract.job import Job
from gantline.contract.outcome import ErrorInfo
from gantline.contract.snapshot import CurrentRun, JobSnapshot, LogEntry
from gantline.contract.status import Event, JobStatus

Row = tuple[Any, ...]


def trace_context(text: str | None) -> dict[str, str] | None:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError:
        return None  # a hint for tracing; never a reason to lose a job


def log_entry(job_id: UUID, row: Row) -> LogEntry:
    """Read LOG_COLUMNS; the first of them is the id, as the store spells it."""
    return LogEntry(
        job_id=job_id,
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
    )


def current_run(row: Row) -> CurrentRun:
    """Read session, started_at, until, percent, phase, cancel_requested."""
    return CurrentRun(
        session=row[0],
        started_at=from_micros(row[1]),
        lease_until=from_micros(row[2]),
        percent=row[3],
        phase=row[4],
        cancel_requested=bool(row[5]),
    )


def snapshot(job: Job, last: LogEntry | None, rest: Row) -> JobSnapshot:
    """Read what stands behind the last log row: its crashes, snoozes and priority; then the row of
    the queue (run_at, counters), and that of the lease (counters, run): each empty elsewhere."""
    ready, lease = rest[3:], rest[10:]
    more: dict[str, Any] = {}
    if ready[0] is not None:
        status, counters, more["run_at"] = JobStatus.QUEUED, ready[1:7], from_micros(ready[0])
    elif lease[0] is not None:
        status, counters, more["run"] = JobStatus.RUNNING, lease[:6], current_run(lease[6:])
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

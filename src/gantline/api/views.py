"""Views: a job as documents show it. Never more than the contract says, never operator's detail."""

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from gantline.api.documents import (
    AcceptedDocument,
    AttemptDocument,
    DeadCountDocument,
    DeadSummary,
    HistoryEntry,
    JobDocument,
    ListedJob,
    StatusDocument,
    WhyDocument,
    WhyReason,
)
from gantline.contract.classify import exception_name
from gantline.contract.domain_event import read_emitted
from gantline.contract.job_id import uuid_text
from gantline.contract.query import DeadCount
from gantline.contract.snapshot import JobSnapshot, LogEntry
from gantline.contract.status import DEAD, ON_REQUEST, Event, JobStatus
from gantline.contract.webhook import RESERVED_TYPES
from gantline.why.explain import Why

LONGEST_RETRY_AFTER_SECONDS: Final = 3600
"""A job that is due in a month may be cancelled today."""
_DURING_A_RUN: Final = ON_REQUEST | {Event.CANCEL_REQUESTED}


def status_url(root: str, job_id: UUID) -> str:
    return f"{root}/api/jobs/{uuid_text(job_id)}/status"


def accepted_document(
    root: str, job_id: UUID, subject_id: str, status: JobStatus | None, *, duplicate: bool
) -> AcceptedDocument:
    """`root` is where the API is mounted."""
    return AcceptedDocument(
        job_id=job_id,
        subject_id=subject_id,
        status_url=status_url(root, job_id),
        status=status,
        duplicate=duplicate,
    )


def entity_tag(job: JobSnapshot, now: datetime) -> str:
    """Changes with all that a client could see; a Scheduled job turns due by time alone.

    In its quotes, as it is sent.
    """
    return f'"{uuid_text(job.job.job_id)}-{job.version}-{state_of(job, now)}"'


def state_of(job: JobSnapshot, now: datetime) -> str:
    return job.derived(now) or job.status.value


def poll_headers(job: JobSnapshot, now: datetime, usual_seconds: int) -> dict[str, str]:
    """Say when it is worth asking again for a job that has not ended: not before it is due."""
    if job.status.is_terminal:
        return {}
    waits = 0.0 if job.run_at is None else (job.run_at - now).total_seconds()
    seconds = max(usual_seconds, math.ceil(min(waits, LONGEST_RETRY_AFTER_SECONDS)))
    return {"retry-after": str(seconds)}


def status_document(job: JobSnapshot, now: datetime) -> StatusDocument:
    return StatusDocument(**_status_fields(job, now))


def listed_job(job: JobSnapshot, now: datetime, *, with_error_type: bool) -> ListedJob:
    return ListedJob(**_listed_fields(job, now, with_error_type))


def job_document(
    job: JobSnapshot, now: datetime, *, with_payload: bool, with_error_type: bool
) -> JobDocument:
    envelope = job.job
    return JobDocument(
        **_listed_fields(job, now, with_error_type),
        # Mostly made of the payload's fields, so the same callers may see it.
        idempotency_key=envelope.idempotency_key if with_payload else None,
        payload_version=envelope.payload_version,
        payload=envelope.payload if with_payload else None,
        payload_omitted=None if with_payload else "reading payloads is not allowed",
        created_by=envelope.created_by,
        parent_job_id=envelope.parent_job_id,
        trace_context=envelope.trace_context,
    )


def error_type_of(row: LogEntry | None) -> str | None:
    """The class of the exception that caused the error of a row; None where there was none."""
    return (exception_name(row.error) or None) if row and row.error else None


def _listed_fields(job: JobSnapshot, now: datetime, with_error_type: bool) -> dict[str, Any]:
    return _status_fields(job, now) | {
        "tenant_id": job.job.tenant_id,
        "queue": job.job.queue,
        "priority": job.priority,
        "group": job.job.group,
        "error_type": error_type_of(job.last) if with_error_type else None,
    }


def _status_fields(job: JobSnapshot, now: datetime) -> dict[str, Any]:
    envelope, run, last = job.job, job.run, job.last
    error = last.error if last else None
    result = last.result if last and job.status is JobStatus.COMPLETED else None
    omitted = last.result_omitted if last else None
    if result is not None and envelope.job_type.startswith(RESERVED_TYPES):
        # What a receiver answered is for callers who may manage webhooks.
        result, omitted = None, "shown with the webhook's deliveries"
    return {
        "job_id": envelope.job_id,
        "job_type": envelope.job_type,
        "subject_id": envelope.subject_id,
        "correlation_id": envelope.correlation_id,
        "status": job.status,
        "state": state_of(job, now),
        "attempt": job.shown_attempt,
        "max_attempts": envelope.max_attempts,
        "created_at": envelope.created_at,
        "scheduled_at": job.run_at or envelope.scheduled_at,
        "expires_at": envelope.expires_at,
        "started_at": job.started_at,
        "completed_at": job.completed_at,
        "updated_at": _updated_at(job),
        "progress": run.percent if run else _progress_without_run(job),
        "phase": (run.phase or None) if run else None,
        "reason": last.reason if last else None,
        "error_code": error.code if error else None,
        "error_message": error.message if error else None,
        "result": None if result is None else msgspec.Raw(result),
        "result_omitted": omitted,
        "version": job.version,
        "external_id": envelope.external_id,
    }


def _updated_at(job: JobSnapshot) -> datetime:
    instants = [job.job.created_at]
    if job.last:
        instants.append(job.last.at)
    if job.run:
        instants.append(job.run.started_at)
    return max(instants)


def _progress_without_run(job: JobSnapshot) -> float | None:
    return 100.0 if job.status is JobStatus.COMPLETED else None


def history_entry(row: LogEntry, *, with_session: bool, with_error_type: bool) -> HistoryEntry:
    return HistoryEntry(
        version=row.version,
        event=row.event,
        status=row.status,
        reason=row.reason,
        at=row.at,
        attempt=row.attempt,
        started_at=row.started_at,
        error_code=row.error.code if row.error else None,
        error_message=row.error.message if row.error else None,
        error_type=error_type_of(row) if with_error_type else None,
        actor=row.actor,
        session=row.session if with_session else None,
        progress=row.percent,
        phase=row.phase or None,
        emitted=[one.type for one in read_emitted(row.emitted) if not one.is_audit],
    )


def attempts_of(
    job: JobSnapshot, history: list[LogEntry], *, with_session: bool, with_error_type: bool
) -> list[AttemptDocument]:
    """The runs that ended, and the one that goes on."""
    attempts = [
        AttemptDocument(
            attempt=row.attempt,
            outcome=row.event,
            reason=row.reason,
            started_at=row.started_at,
            ended_at=row.at,
            error_code=row.error.code if row.error else None,
            error_message=row.error.message if row.error else None,
            error_type=error_type_of(row) if with_error_type else None,
            progress=None,
            phase=None,
            session=row.session if with_session else None,
        )
        for row in history
        if row.started_at is not None and row.event not in _DURING_A_RUN
    ]
    if job.run:
        attempts.append(
            AttemptDocument(
                attempt=job.attempt,
                outcome=None,
                reason=None,
                started_at=job.run.started_at,
                ended_at=None,
                error_code=None,
                error_message=None,
                error_type=None,
                progress=job.run.percent,
                phase=job.run.phase or None,
                session=job.run.session if with_session else None,
            )
        )
    return attempts


def why_document(why: Why) -> WhyDocument:
    job_id = why.job.job.job_id
    return WhyDocument(
        job_id=job_id,
        job_type=why.job.job.job_type,
        queue=why.job.job.queue,
        status=why.job.status,
        state=state_of(why.job, why.at),
        at=why.at,
        reasons=[
            WhyReason(
                code=one.code,
                detail=one.text(why.at),
                next_steps=[*one.next_steps(job_id)],
                facts=one.facts,
            )
            for one in why.reasons
        ],
    )


def dead_summary(counted: Sequence[DeadCount]) -> DeadSummary:
    by_status = {
        status: sum(one.jobs for one in counted if one.status is status) for status in DEAD
    }
    return DeadSummary(
        total=sum(by_status.values()),
        failed=by_status[JobStatus.FAILED],
        poisoned=by_status[JobStatus.POISONED],
        reasons=[DeadCountDocument(**msgspec.structs.asdict(one)) for one in counted],
    )

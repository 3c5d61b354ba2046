"""Whether a job is one that a filter selects, for the stores that compare in Python."""

from datetime import datetime

from gantline.contract.query import JobFilter
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.webhook import RESERVED_TYPES


def matches(filter: JobFilter, found: JobSnapshot, now: datetime | None) -> bool:
    """`now` is the store's; it may be None for a filter that does not ask for time."""
    job, last = found.job, found.last
    equal = (
        (filter.tenant_id, job.tenant_id),
        (filter.subject_id, job.subject_id),
        (filter.created_by, job.created_by),
        (filter.correlation_id, job.correlation_id),
        (filter.parent_job_id, job.parent_job_id),
    )
    among = (
        (filter.job_types, job.job_type),
        (filter.queues, job.queue),
        (filter.reasons, last.reason if last else None),
        (filter.error_codes, last.error.code if last and last.error else None),
    )
    return (
        all(expected is None or expected == actual for expected, actual in equal)
        and all(not choices or actual in choices for choices, actual in among)
        and _is_in_a_state(filter, found, now)
        and found.attempt >= filter.min_attempts
        and not (filter.created_from and job.created_at < filter.created_from)
        and not (filter.created_before and job.created_at >= filter.created_before)
        and not (filter.due_before and not _is_due(found, filter.due_before))
        and (filter.internal or not job.job_type.startswith(RESERVED_TYPES))
        and filter.admits(job)
    )


def _is_in_a_state(filter: JobFilter, found: JobSnapshot, now: datetime | None) -> bool:
    if not filter.statuses or found.status in filter.statuses:
        return True
    return now is not None and found.derived(now) in filter.statuses


def _is_due(found: JobSnapshot, before: datetime) -> bool:
    return found.run_at is not None and found.run_at < before

"""Whether a job is one that a filter selects, for the stores that compare in Python."""

from gantline.contract.job import Job
from gantline.contract.query import JobFilter
from gantline.contract.snapshot import LogEntry
from gantline.contract.status import JobStatus
from gantline.contract.webhook import RESERVED_TYPES


def matches(
    filter: JobFilter, job: Job, *, status: JobStatus, attempt: int, last: LogEntry | None
) -> bool:
    """`last` is the newest row of the log that is an outcome."""
    equal = (
        (filter.tenant_id, job.tenant_id),
        (filter.subject_id, job.subject_id),
        (filter.created_by, job.created_by),
        (filter.correlation_id, job.correlation_id),
        (filter.parent_job_id, job.parent_job_id),
    )
    among = (
        (filter.statuses, status),
        (filter.job_types, job.job_type),
        (filter.queues, job.queue),
        (filter.reasons, last.reason if last else None),
        (filter.error_codes, last.error.code if last and last.error else None),
    )
    return (
        all(expected is None or expected == actual for expected, actual in equal)
        and all(not choices or actual in choices for choices, actual in among)
        and attempt >= filter.min_attempts
        and not (filter.created_from and job.created_at < filter.created_from)
        and not (filter.created_before and job.created_at >= filter.created_before)
        and (filter.internal or not job.job_type.startswith(RESERVED_TYPES))
        and filter.admits(job)
    )

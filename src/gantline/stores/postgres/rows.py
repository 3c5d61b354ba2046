"""Between rows and structs, as far as PostgreSQL differs."""

from collections.abc import Sequence
from typing import Final

import msgspec

from gantline.contract.clock import to_micros
from gantline.contract.job import DEFAULT_TENANT, Job
from gantline.contract.submission import NewJob
from gantline.stores.postgres.arrays import Array, Bigints, Bytes, Integers, Texts, Uuids

LOG_COLUMNS: Final = (
    "log.job_id, log.version, log.event::text, log.status::text, log.reason, log.at, log.attempt, "
    "log.fence, log.session, log.started_at, log.error_code, log.error_message, log.error_detail, "
    "log.result, log.result_omitted, log.actor, log.percent, log.phase, log.emitted"
)
IS_OUTCOME: Final = "event NOT IN ('submitted', 'started', 'progressed')"
"""Whether a row of the log is an outcome, and not an event on request."""


def expiries(jobs: Sequence[Job]) -> Array:
    """Write when jobs expire."""
    return Bigints([job.expires_at and to_micros(job.expires_at) for job in jobs])


def groups(jobs: Sequence[Job]) -> Array | None:
    """Write the groups of jobs; None where all are plain, so that these cost nothing."""
    if all(job.tenant_id == DEFAULT_TENANT and not job.group for job in jobs):
        return None
    return Texts([job.group for job in jobs])


def job_columns(jobs: Sequence[NewJob], lanes: Sequence[int]) -> list[Array | None]:
    """Write the columns of the job table, in their order, but for the last three."""
    envelopes = [new.job for new in jobs]
    traces = [job.trace_context for job in envelopes]
    return [
        Uuids([job.job_id for job in envelopes]),
        Texts([job.tenant_id for job in envelopes]),
        Bigints(lanes),
        Texts([job.subject_id for job in envelopes]),
        Texts([job.correlation_id for job in envelopes]),
        Texts([job.idempotency_key for job in envelopes]),
        Bytes([new.fingerprint for new in jobs]),
        Integers([job.attempt for job in envelopes]),
        Integers([job.max_attempts for job in envelopes]),
        Bytes([bytes(job.payload) for job in envelopes]),
        Integers([job.payload_version for job in envelopes]),
        Integers([job.priority for job in envelopes]),
        Bigints([to_micros(job.created_at) for job in envelopes]),
        Bigints([job.scheduled_at and to_micros(job.scheduled_at) for job in envelopes]),
        Texts([job.created_by for job in envelopes]),
        Uuids([job.parent_job_id for job in envelopes]),
        Texts([msgspec.json.encode(trace).decode() if trace else None for trace in traces]),
    ]

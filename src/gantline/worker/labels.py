"""What every log line of a run is labelled with; never a payload."""

import logging
from typing import Final

from gantline.contract.snapshot import Run
from gantline.contract.trace import trace_id_of

LABELS: Final = ("correlation_id", "tenant_id", "job_id", "job_type", "attempt", "trace_id")

Plain = str | int | float | bool | None

_OWN: Final = frozenset(
    {*vars(logging.makeLogRecord({})), "asctime", "message", "taskName"}  # a task since Python 3.12
)


def labels_of(run: Run) -> dict[str, object]:
    """For `extra=` of a logger: attributes of the record."""
    job = run.job
    labels: dict[str, object] = {
        "job_id": str(job.job_id),
        "job_type": job.job_type,
        "tenant_id": job.tenant_id,
        "correlation_id": job.correlation_id,
        "attempt": run.attempt,
    }
    if (trace_id := trace_id_of(job.trace_context)) is not None:
        labels["trace_id"] = trace_id
    return labels


def plain_extras(record: logging.LogRecord) -> dict[str, Plain]:
    """What the caller added to a record with `extra=`, as far as it is plain data."""
    return {
        name: value
        for name, value in vars(record).items()
        if name not in _OWN and isinstance(value, str | int | float | bool | None)
    }

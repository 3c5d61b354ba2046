"""What every log line of a run is labelled with; never a payload."""

import logging
from typing import Final

from windlass.contract.snapshot import Run

Plain = str | int | float | bool | None

_OWN: Final = frozenset(
    {*vars(logging.makeLogRecord({})), "asctime", "message", "taskName"}  # a task since Python 3.12
)


def labels_of(run: Run) -> dict[str, object]:
    """For `extra=` of a logger: attributes of the record."""
    return {
        "job_id": str(run.job.job_id),
        "job_type": run.job.job_type,
        "tenant_id": run.job.tenant_id,
        "correlation_id": run.job.correlation_id,
        "attempt": run.attempt,
    }


def plain_extras(record: logging.LogRecord) -> dict[str, Plain]:
    """What the caller added to a record with `extra=`, as far as it is plain data."""
    return {
        name: value
        for name, value in vars(record).items()
        if name not in _OWN and isinstance(value, str | int | float | bool | None)
    }

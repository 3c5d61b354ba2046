"""Windlass: durable background jobs for Python. One contract, one lifecycle, any store."""

from windlass.app import (
    Handle,
    JobCancelled,
    JobFailed,
    JobGroup,
    JobPoisoned,
    JobType,
    Require,
    Windlass,
)
from windlass.contract.errors import (
    InvalidInput,
    Permanent,
    QueueFull,
    Retry,
    Snooze,
    SubmitConflict,
    WindlassError,
)
from windlass.contract.job_event import JobEvent
from windlass.contract.retry import Backoff, Fixed, Linear, Table
from windlass.contract.status import JobStatus
from windlass.contract.version import __version__
from windlass.worker.context import Context, current_job
from windlass.worker.handler import provide
from windlass.worker.settings import WorkerSettings

__all__ = [
    "Backoff",
    "Context",
    "Fixed",
    "Handle",
    "InvalidInput",
    "JobCancelled",
    "JobEvent",
    "JobFailed",
    "JobGroup",
    "JobPoisoned",
    "JobStatus",
    "JobType",
    "Linear",
    "Permanent",
    "QueueFull",
    "Require",
    "Retry",
    "Snooze",
    "SubmitConflict",
    "Table",
    "Windlass",
    "WindlassError",
    "WorkerSettings",
    "__version__",
    "current_job",
    "provide",
]

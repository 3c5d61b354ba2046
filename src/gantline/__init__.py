"""Gantline: durable background jobs for Python. One contract, one lifecycle, any store."""

from gantline.app import (
    Gantline,
    Handle,
    JobCancelled,
    JobFailed,
    JobGroup,
    JobPoisoned,
    JobType,
    Require,
)
from gantline.contract.errors import (
    GantlineError,
    InvalidInput,
    Permanent,
    QueueFull,
    Retry,
    Snooze,
    SubmitConflict,
)
from gantline.contract.job_event import JobEvent
from gantline.contract.retry import Backoff, Fixed, Linear, Table
from gantline.contract.status import JobStatus
from gantline.contract.version import __version__
from gantline.worker.context import Context, current_job
from gantline.worker.handler import provide
from gantline.worker.settings import WorkerSettings

__all__ = [
    "Backoff",
    "Context",
    "Fixed",
    "Gantline",
    "GantlineError",
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
    "WorkerSettings",
    "__version__",
    "current_job",
    "provide",
]

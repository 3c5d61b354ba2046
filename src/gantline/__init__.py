"""Gantline: durable background jobs for Python. One contract, one lifecycle, any store."""

from gantline.app.declare import JobGroup, JobOptions
from gantline.app.gantline import Gantline
from gantline.app.handle import Handle, SyncHandle
from gantline.app.job_type import JobType
from gantline.app.settings import JobDefaults
from gantline.audit.settings import AuditSettings
from gantline.contract.capabilities import StorageSettings
from gantline.contract.errors import (
    GantlineError,
    InvalidInput,
    JobNotFound,
    JobTypeDisabled,
    Permanent,
    QueueFull,
    Retry,
    Snooze,
    StoreClosed,
    StoreUnavailable,
    SubmitConflict,
    SubmitRefused,
    Throttled,
)
from gantline.contract.job_event import DomainEvent, JobEvent
from gantline.contract.not_completed import JobCancelled, JobFailed, JobNotCompleted, JobPoisoned
from gantline.contract.retention import Retention
from gantline.contract.retry import Backoff, Fixed, Linear, RetryTable
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.status import JobStatus
from gantline.contract.store import JobStore
from gantline.contract.submission import SubmitOptions
from gantline.contract.version import __version__
from gantline.flow.limit import Limit
from gantline.worker.context import Context, RunStopped, current_job
from gantline.worker.settings import WorkerSettings
from gantline.worker.signature import provide

__all__ = [
    "AuditSettings",
    "Backoff",
    "Context",
    "DomainEvent",
    "Fixed",
    "Gantline",
    "GantlineError",
    "Handle",
    "InvalidInput",
    "JobCancelled",
    "JobDefaults",
    "JobEvent",
    "JobFailed",
    "JobGroup",
    "JobNotCompleted",
    "JobNotFound",
    "JobOptions",
    "JobPoisoned",
    "JobSnapshot",
    "JobStatus",
    "JobStore",
    "JobType",
    "JobTypeDisabled",
    "Limit",
    "Linear",
    "Permanent",
    "QueueFull",
    "Retention",
    "Retry",
    "RetryTable",
    "RunStopped",
    "Snooze",
    "StorageSettings",
    "StoreClosed",
    "StoreUnavailable",
    "SubmitConflict",
    "SubmitOptions",
    "SubmitRefused",
    "SyncHandle",
    "Throttled",
    "WorkerSettings",
    "__version__",
    "current_job",
    "provide",
]

"""The application object and what it hands out."""

from gantline.app.declare import JobGroup
from gantline.app.gantline import Gantline, Require
from gantline.app.handle import (
    Handle,
    JobCancelled,
    JobFailed,
    JobNotCompleted,
    JobPoisoned,
    SyncHandle,
)
from gantline.app.job_type import JobType

__all__ = [
    "Gantline",
    "Handle",
    "JobCancelled",
    "JobFailed",
    "JobGroup",
    "JobNotCompleted",
    "JobPoisoned",
    "JobType",
    "Require",
    "SyncHandle",
]

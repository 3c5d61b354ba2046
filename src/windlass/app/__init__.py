"""The application object and what it hands out."""

from windlass.app.declare import JobGroup
from windlass.app.handle import Handle, JobCancelled, JobFailed, JobNotCompleted, JobPoisoned
from windlass.app.job_type import JobType
from windlass.app.windlass import Require, Windlass

__all__ = [
    "Handle",
    "JobCancelled",
    "JobFailed",
    "JobGroup",
    "JobNotCompleted",
    "JobPoisoned",
    "JobType",
    "Require",
    "Windlass",
]

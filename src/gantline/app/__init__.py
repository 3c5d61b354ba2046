"""The application object and what it hands out."""

from gantline.app.declare import JobGroup
from gantline.app.gantline import Gantline
from gantline.app.handle import Handle, JobCancelled, JobFailed, JobNotCompleted, JobPoisoned
from gantline.app.job_type import JobType
from gantline.app.settings import JobDefaults

__all__ = [
    "Gantline",
    "Handle",
    "JobCancelled",
    "JobDefaults",
    "JobFailed",
    "JobGroup",
    "JobNotCompleted",
    "JobPoisoned",
    "JobType",
]

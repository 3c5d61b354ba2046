"""The errors of those who wait for a result that there will never be."""

from typing import Any, Final
from uuid import UUID

from gantline.contract.errors import GantlineError
from gantline.contract.status import JobStatus


class JobNotCompleted(GantlineError):
    """A job ended, but not well. `status` has all that is known."""

    def __init__(self, job_id: UUID, known: Any, code: str | None, message: str | None) -> None:
        what = f": {code}, {(message or '').rstrip('.')}" if code else ""
        next_step = f"`gantline job get {job_id}` shows why."
        super().__init__(f"Job {job_id} is {known.status}{what}.", next_step=next_step)
        self.status = known


class JobFailed(JobNotCompleted):
    code = "JOB_FAILED"


class JobPoisoned(JobNotCompleted):
    code = "JOB_POISONED"


class JobCancelled(JobNotCompleted):
    code = "JOB_CANCELLED"


NOT_COMPLETED: Final = {
    JobStatus.FAILED: JobFailed,
    JobStatus.POISONED: JobPoisoned,
    JobStatus.CANCELLED: JobCancelled,
}

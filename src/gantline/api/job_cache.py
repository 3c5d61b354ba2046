"""The read cache: jobs that have ended, kept in this process for a moment. Off by default.

What has ended changes only by a redrive or a delete: one made here is seen at once, one made
elsewhere when the moment is over.
"""

from uuid import UUID

from gantline.api.port import Jobs
from gantline.contract.snapshot import JobSnapshot


class JobCache:
    """Read a job, from memory where it may."""

    def __init__(self, jobs: Jobs, *, seconds: float, most: int) -> None:
        self._jobs = jobs
        self._seconds = seconds
        self._most = most
        self._kept: dict[UUID, tuple[float, JobSnapshot]] = {}

    async def get(self, job_id: UUID) -> JobSnapshot | None:
        if self._seconds <= 0:
            return (await self._jobs.store.get([job_id], tenant_id=None))[0]
        kept = self._kept.get(job_id)
        if kept is not None and kept[0] > self._jobs.clock.monotonic():
            return kept[1]
        (job,) = await self._jobs.store.get([job_id], tenant_id=None)
        if job is not None and job.status.is_terminal:
            self._keep(job_id, job)
        return job

    def _keep(self, job_id: UUID, job: JobSnapshot) -> None:
        if len(self._kept) >= self._most:
            self._kept.clear()  # it is full of what is about to expire anyhow
        self._kept[job_id] = (self._jobs.clock.monotonic() + self._seconds, job)

    def forget(self, job_id: UUID) -> None:
        self._kept.pop(job_id, None)

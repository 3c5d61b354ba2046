"""What a stream is about: which jobs are asked for, and which of them may be seen."""

from uuid import UUID

import msgspec

from gantline.contract.job import Job
from gantline.contract.query import JobFilter, Visibility
from gantline.contract.snapshot import LoggedEvent
from gantline.contract.status import JobStatus


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Every given field must match; nothing is seen that `visible_to` does not admit."""

    tenant_id: str
    job_ids: frozenset[UUID] = frozenset()
    job_types: frozenset[str] = frozenset()
    subject_id: str | None = None
    visible_to: Visibility

    def may_concern(self, event: LoggedEvent) -> bool:
        """Whether an event may be wanted, as far as it tells by itself."""
        return (
            event.tenant_id == self.tenant_id
            and (not self.job_ids or event.entry.job_id in self.job_ids)
            and (not self.job_types or event.job_type in self.job_types)
        )

    def admits(self, job: Job) -> bool:
        """Whether a job is asked for and may be seen."""
        return (
            job.tenant_id == self.tenant_id
            and (not self.job_ids or job.job_id in self.job_ids)
            and (not self.job_types or job.job_type in self.job_types)
            and self.subject_id in (None, job.subject_id)
            and self.visible_to.admits(job)
        )

    @property
    def living(self) -> JobFilter:
        """The jobs that are meant and have not ended."""
        return JobFilter(
            tenant_id=self.tenant_id,
            statuses=frozenset({JobStatus.QUEUED, JobStatus.RUNNING}),
            job_types=self.job_types,
            subject_id=self.subject_id,
            visible_to=self.visible_to,
        )

"""The snapshot cache: jobs as they were read a moment ago, for all readers of a process. Off by
default.

What is read here is at most `seconds` old. A hint that jobs have ended, and every change that this
process makes itself, is seen at once. One reader never sees a job go back to an earlier version.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol
from uuid import UUID

from gantline.contract.snapshot import JobSnapshot
from gantline.contract.wakeup import Hint

MOST_JOBS: Final = 10_000
_ASK_EVERY_SECONDS: Final = 1.0

_Kept = dict[UUID, tuple[float, JobSnapshot]]


class JobGetter(Protocol):
    """Reads jobs by their ids."""

    async def get(
        self, job_ids: Sequence[UUID], *, tenant_id: str | None
    ) -> list[JobSnapshot | None]: ...


class SnapshotCache:
    """Reads jobs from memory where they are young enough; else it asks `jobs`."""

    def __init__(
        self,
        jobs: JobGetter,
        *,
        seconds: float,
        monotonic: Callable[[], float],
        ask: Callable[[], object],
        most: int = MOST_JOBS,
    ) -> None:
        """`ask` has workers notify of ends, as they do while somebody waits for one."""
        self._jobs = jobs
        self._seconds = seconds
        self._monotonic = monotonic
        self._ask = ask
        self._most = most
        self._ended: _Kept = {}
        self._others: _Kept = {}
        self._changes = 0
        """How often something was removed: a read that began before may be older."""
        self._asked_at = -_ASK_EVERY_SECONDS

    @property
    def is_on(self) -> bool:
        return self._seconds > 0

    async def get(
        self, job_ids: Sequence[UUID], *, tenant_id: str | None
    ) -> list[JobSnapshot | None]:
        """Read jobs of a tenant; for the system, None, they are always read anew."""
        if not self.is_on:
            return await self._jobs.get(job_ids, tenant_id=tenant_id)
        found = [self.find(job_id, tenant_id) for job_id in job_ids]
        missing = [index for index, job in enumerate(found) if job is None]
        if missing:
            read_at, changes = self._monotonic(), self._changes
            read = await self._jobs.get([job_ids[index] for index in missing], tenant_id=tenant_id)
            for index, job in zip(missing, read, strict=True):
                found[index] = job
                if job is not None:
                    self._keep(job, read_at, is_current=changes == self._changes)
        return found

    def find(self, job_id: UUID, tenant_id: str | None) -> JobSnapshot | None:
        """The job as it was read a moment ago, to a reader of its own tenant alone."""
        kept = self._ended.get(job_id) or self._others.get(job_id)
        if kept is None or kept[1].job.tenant_id != tenant_id:
            return None
        return kept[1] if 0 <= self._monotonic() - kept[0] < self._seconds else None

    def forget(self, job_ids: Iterable[UUID]) -> None:
        """They were changed here."""
        if self.is_on:
            self._changes += 1
            for job_id in job_ids:
                self._ended.pop(job_id, None)
                self._others.pop(job_id, None)

    def on_hint(self, hint: Hint) -> None:
        """Some jobs have ended, nobody says which."""
        if hint in (Hint.ENDED, Hint.CANCEL):
            self._changes += 1
            self._others = {}

    def _keep(self, job: JobSnapshot, read_at: float, *, is_current: bool) -> None:
        job_id = job.job.job_id
        kept = self._ended.get(job_id) or self._others.get(job_id)
        if kept is None and not is_current:
            return
        if kept is not None and kept[1].version > job.version:
            return
        self._ended.pop(job_id, None)
        self._others.pop(job_id, None)
        has_ended = job.status.is_terminal
        those = self._ended if has_ended else self._others
        if len(those) >= self._most // 2:
            those.clear()  # it is full of what is about to expire anyhow
        those[job_id] = (read_at, job)
        if not has_ended and read_at - self._asked_at >= _ASK_EVERY_SECONDS:
            self._asked_at = read_at
            self._ask()

"""Admission: whether a job may be submitted now, by the switches and the depth caps."""

from collections import Counter
from collections.abc import Callable
from typing import Final

from gantline.contract.errors import JobTypeDisabled, QueueFull
from gantline.contract.store import JobStore
from gantline.manager.switches import Switches
from gantline.runtime import monotonic

_COUNTS_MAX_AGE_SECONDS: Final = 1.0

TakeBack = Callable[[], None]


class _Waiting:
    """How many jobs wait, by type and by queue."""

    def __init__(self) -> None:
        self.of_type: Counter[str] = Counter()
        self.in_queue: Counter[str] = Counter()

    def add(self, job_type: str, queue: str, jobs: int) -> None:
        self.of_type[job_type] += jobs
        self.in_queue[queue] += jobs


class Admission:
    """Asks the store at most once a second; in between it counts what passes here itself.

    So a cap is not exact: in that second every process may fill it by itself, and what is just
    being stored while the store counts may come on top, or be counted twice.
    """

    def __init__(
        self,
        store: JobStore,
        switches: Switches,
        *,
        max_depth_of: Callable[[str], int | None] = lambda job_type: None,
    ) -> None:
        """`max_depth_of`: how many jobs of a type may wait, as its declaration says."""
        self._max_depth_of = max_depth_of
        self._store = store
        self._switches = switches
        self._read_at: float | None = None
        self._known = _Waiting()
        self._being_read: list[_Waiting] = []

    async def check(self, job_type: str, queue: str, *, jobs: int = 1) -> TakeBack | None:
        """Raise StoreClosed, JobTypeDisabled or QueueFull; count what passes, if anything is
        capped. What is returned is to be called for each that is not stored after all."""
        await self._switches.refuse_if_closed()
        if job_type in self._switches.disabled_types:
            raise JobTypeDisabled(
                f"The job type {job_type!r} is switched off.",
                next_step=f"Try again later, or switch it on: gantline type enable {job_type}.",
            )
        max_depth = self._max_depth_of(job_type)
        most_in_queue = self._switches.depth_caps.get(queue)
        if max_depth is None and most_in_queue is None:
            return None
        await self._refresh()
        if max_depth is not None and self._known.of_type[job_type] + jobs > max_depth:
            raise QueueFull(
                f"{_jobs(max_depth)} of type {job_type!r} may wait, and no more.",
                next_step="Try again later.",
            )
        if most_in_queue is not None and self._known.in_queue[queue] + jobs > most_in_queue:
            raise QueueFull(
                f"{_jobs(most_in_queue)} may wait in the queue {queue!r}, and no more.",
                next_step="Try again later.",
            )
        counts = (self._known, *self._being_read)
        for waiting in counts:
            waiting.add(job_type, queue, jobs)

        def take_back() -> None:
            for waiting in counts:
                waiting.add(job_type, queue, -1)

        return take_back

    async def _refresh(self) -> None:
        before, now = self._read_at, monotonic()
        if before is not None:
            if now - before < _COUNTS_MAX_AGE_SECONDS:
                return
            self._read_at = now  # callers meanwhile use what is known
        waiting = _Waiting()
        self._being_read.append(waiting)  # what passes meanwhile may not be in what is read
        try:
            for lane in await self._store.counts(tenant_id=None):
                waiting.add(lane.job_type, lane.queue, lane.queued)
        except BaseException:
            self._read_at = before
            raise
        finally:
            self._being_read.remove(waiting)
        self._known, self._read_at = waiting, now


def _jobs(number: int) -> str:
    return "1 job" if number == 1 else f"{number} jobs"

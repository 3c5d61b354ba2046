"""The reaper: takes runs whose lease has run out away from workers that are taken to be dead."""

import random
from collections.abc import Callable
from typing import Final
from uuid import UUID

import msgspec

from windlass.contract.outcome import LeaseLost
from windlass.contract.status import JobStatus
from windlass.contract.store import JobStore
from windlass.manager.manager import Ending, JobManager, Settled
from windlass.manager.observer import Observer

_PAGE: Final = 200


class Reaped(msgspec.Struct, frozen=True):
    """What one sweep did; `skipped` runs were renewed or ended by their worker just in time."""

    requeued: int = 0
    poisoned: int = 0
    cancelled: int = 0
    skipped: int = 0


class Reaper:
    """Sweep expired leases. Needs only what is stored on the job, never a handler."""

    def __init__(
        self,
        store: JobStore,
        *,
        jitter: Callable[[], float] = random.random,
        observer: Observer | None = None,
    ) -> None:
        self._store = store
        # Its own manager: no type's policy, which this process may not know, only the defaults.
        self._manager = JobManager(store, jitter=jitter, observer=observer)

    async def run_once(self) -> Reaped:
        """Sweep page by page until nothing is left, so that no page can hide what is behind it."""
        settled: list[Settled] = []
        after: UUID | None = None
        while runs := await self._store.expired(limit=_PAGE, after=after):
            after = runs[-1].job.job_id
            settled += await self._manager.settle([Ending(run, LeaseLost()) for run in runs])
        ended = [answer.transition.to for answer in settled if answer.accepted]
        return Reaped(
            requeued=ended.count(JobStatus.QUEUED),
            poisoned=ended.count(JobStatus.POISONED),
            cancelled=ended.count(JobStatus.CANCELLED),
            skipped=len(settled) - len(ended),
        )

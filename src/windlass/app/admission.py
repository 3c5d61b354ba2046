"""Admission: whether a job may be submitted now, by its kill switch and the depth caps."""

import time
from collections import Counter
from typing import Final

from windlass.contract.errors import JobTypeDisabled, QueueFull
from windlass.contract.store import JobStore
from windlass.manager.switches import Switches

_COUNTS_MAX_AGE_SECONDS: Final = 1.0


class Admission:
    """Asks the store at most once a second; in between it counts what passes here itself."""

    def __init__(self, store: JobStore, switches: Switches) -> None:
        self._store = store
        self._switches = switches
        self._read_at: float | None = None
        self._waiting: Counter[str] = Counter()
        self._waiting_in: Counter[str] = Counter()

    async def check(self, job_type: str, *, queue: str, jobs: int, max_depth: int | None) -> None:
        """Raise JobTypeDisabled or QueueFull."""
        await self._switches.refresh()
        if job_type in self._switches.disabled_types:
            raise JobTypeDisabled(
                f"The job type {job_type!r} is switched off.", next_step="Try again later."
            )
        most_in_queue = self._switches.depth_caps.get(queue)
        if max_depth is None and most_in_queue is None:
            return
        await self._refresh()
        if max_depth is not None and self._waiting[job_type] + jobs > max_depth:
            raise QueueFull(
                f"{max_depth} jobs of type {job_type!r} may wait, and no more.",
                next_step="Try again later.",
            )
        if most_in_queue is not None and self._waiting_in[queue] + jobs > most_in_queue:
            raise QueueFull(
                f"{most_in_queue} jobs may wait in the queue {queue!r}, and no more.",
                next_step="Try again later.",
            )
        self._waiting[job_type] += jobs
        self._waiting_in[queue] += jobs

    async def _refresh(self) -> None:
        now = time.monotonic()
        if self._read_at is not None and now - self._read_at < _COUNTS_MAX_AGE_SECONDS:
            return
        self._read_at = now
        waiting: Counter[str] = Counter()
        waiting_in: Counter[str] = Counter()
        for lane in await self._store.counts(tenant_id=None):
            waiting[lane.job_type] += lane.queued
            waiting_in[lane.queue] += lane.queued
        self._waiting, self._waiting_in = waiting, waiting_in

"""Admission: whether a job may be submitted now, by its kill switch and its depth cap."""

import time
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
        self._waiting: dict[str, int] = {}

    async def check(self, job_type: str, *, jobs: int, max_depth: int | None) -> None:
        """Raise JobTypeDisabled or QueueFull."""
        await self._switches.refresh()
        if job_type in self._switches.disabled_types:
            raise JobTypeDisabled(
                f"The job type {job_type!r} is switched off.", next_step="Try again later."
            )
        if max_depth is None:
            return
        await self._refresh()
        if self._waiting.get(job_type, 0) + jobs > max_depth:
            raise QueueFull(
                f"{max_depth} jobs of type {job_type!r} may wait, and no more.",
                next_step="Try again later.",
            )
        self._waiting[job_type] = self._waiting.get(job_type, 0) + jobs

    async def _refresh(self) -> None:
        now = time.monotonic()
        if self._read_at is not None and now - self._read_at < _COUNTS_MAX_AGE_SECONDS:
            return
        self._read_at = now
        waiting: dict[str, int] = {}
        for lane in await self._store.counts(tenant_id=None):
            waiting[lane.job_type] = waiting.get(lane.job_type, 0) + lane.queued
        self._waiting = waiting

"""The pruner: removes what is older than its retention, in bounded steps."""

from datetime import timedelta
from typing import Final

import msgspec

from windlass.contract.query import Pruned, PruneRule
from windlass.contract.status import TERMINAL, JobStatus
from windlass.contract.store import JobStore
from windlass.manager.cursors import slowest_position

_BATCH: Final = 500
_BATCHES_AT_ONCE: Final = 20


class Retention(msgspec.Struct, frozen=True):
    """How long ended jobs are kept."""

    completed: timedelta
    dead: timedelta

    def for_status(self, status: JobStatus) -> timedelta:
        return self.completed if status is JobStatus.COMPLETED else self.dead


class Pruner:
    """Remove old jobs, keys and records, never past what a durable consumer has yet to read."""

    def __init__(self, store: JobStore, *, retention: Retention | None = None) -> None:
        self._store = store
        self._retention = retention

    async def run_once(self) -> Pruned:
        """Prune some batches; what is left waits for the next time, so others get their turn."""
        keep_after = await slowest_position(self._store)
        rules = await self._rules()
        total = Pruned()
        for _ in range(_BATCHES_AT_ONCE):
            step = await self._store.prune(rules, limit=_BATCH, keep_events_after=keep_after)
            total = Pruned(
                total.jobs + step.jobs, total.keys + step.keys, total.records + step.records
            )
            if max(step.jobs, step.keys, step.records) < _BATCH:
                break
        return total

    async def _rules(self) -> list[PruneRule]:
        now = await self._store.ping()
        known = self._store.capabilities
        retention = self._retention or Retention(known.retention_completed, known.retention_dead)
        return [PruneRule(status, now - retention.for_status(status)) for status in TERMINAL]

"""The pruner: removes what is older than its retention, in paced steps until it has caught up."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

from gantline.contract.query import Pruned, PruneRule
from gantline.contract.retention import Retention
from gantline.contract.status import JobStatus
from gantline.contract.store import JobStore
from gantline.manager.cursors import slowest_position
from gantline.manager.switches import Switches
from gantline.runtime import monotonic

_log = logging.getLogger("gantline.manager")

# Completed jobs are the most, and come last: else the others would wait until it has caught up.
_IN_ORDER: Final = (
    JobStatus.CANCELLED,
    JobStatus.FAILED,
    JobStatus.POISONED,
    JobStatus.COMPLETED,
)
# In proportion to how late the oldest job is: the first of each pair while all is in time, the
# second once it is a minute late. Claims wait for a step where a store has one writer.
_STEP_SECONDS: Final = (0.020, 0.050)
_SHARE_OF_THE_TIME: Final = (0.25, 0.75)
_LATE: Final = timedelta(minutes=1)
_FIRST_LIMIT: Final = 500
_LEAST_LIMIT: Final = 100
_GREATEST_LIMIT: Final = 5_000
_LONGEST_PAUSE_SECONDS: Final = 5.0
_AGAIN_SECONDS: Final = 5.0
_IDLE_SECONDS: Final = 30.0
# A busy event loop comes to each answer late, so a step asks for nothing that can be remembered.
_RULES_MAX_AGE_SECONDS: Final = 1.0


class Pace:
    """How many to remove in the next step, and how long to leave the store to others before it."""

    def __init__(self) -> None:
        self.limit = _FIRST_LIMIT

    def pause_after(self, step: Pruned) -> float:
        """Learn from a full step."""
        lateness = min(1.0, step.overdue / _LATE)
        aim, share = (
            least + lateness * (most - least) for least, most in (_STEP_SECONDS, _SHARE_OF_THE_TIME)
        )
        fitting = self.limit * aim / max(step.busy_seconds, aim / 2)
        self.limit = max(_LEAST_LIMIT, min(round(max(fitting, self.limit / 2)), _GREATEST_LIMIT))
        return min(step.busy_seconds * (1 / share - 1), _LONGEST_PAUSE_SECONDS)


class Pruner:
    """Remove old jobs, keys and records, never past what a durable consumer has yet to read.

    A closed store is left alone: what is being copied must not go.
    """

    def __init__(
        self,
        store: JobStore,
        switches: Switches,
        *,
        retention: Retention | None = None,
        monotonic: Callable[[], float] = monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`retention`: what it leaves open is not removed; None for that of the store."""
        self._store = store
        self._retention = retention
        self._monotonic = monotonic
        self._sleep = sleep
        self._switches = switches
        self._pace = Pace()

    async def run_for_ever(self) -> None:
        """Catch up again and again; less often while nothing becomes old."""
        while True:
            wait = _AGAIN_SECONDS
            try:
                if (await self.run_once()).most == 0:
                    wait = _IDLE_SECONDS
            except Exception as error:
                _log.warning("pruning failed, trying again: %s", error)
            await self._sleep(wait)

    async def run_once(self) -> Pruned:
        """Prune until nothing old is left; return what was removed in all steps together."""
        total, read_at = Pruned(), -math.inf
        while True:
            if self._monotonic() >= read_at + _RULES_MAX_AGE_SECONDS:
                if await self._is_closed():
                    return total
                keep_after = await slowest_position(self._store)
                rules = await _rules(self._store, self._retention)
                read_at = self._monotonic()
            limit = self._pace.limit
            step = await self._store.prune(rules, limit=limit, keep_events_after=keep_after)
            total = Pruned(
                total.jobs + step.jobs,
                total.keys + step.keys,
                total.records + step.records,
                step.overdue,
                total.busy_seconds + step.busy_seconds,
            )
            if step.most < limit:
                return total
            await self._sleep(self._pace.pause_after(step))

    async def _is_closed(self) -> bool:
        await self._switches.refresh()
        return self._switches.closed is not None


async def retention_lag(store: JobStore, retention: Retention | None = None) -> timedelta:
    """Return how long the oldest job that should be gone has been past its retention."""
    return (await store.prune(await _rules(store, retention), limit=0)).overdue


async def _rules(store: JobStore, retention: Retention | None) -> list[PruneRule]:
    now = await store.ping()
    kept = retention or store.capabilities.retention
    spans = {status: kept.of(status) for status in _IN_ORDER}
    return [PruneRule(status, now - span) for status, span in spans.items() if span is not None]

"""Depths: how full the store's queues are, how far consumers have read, and what is overdue.

Asked of the store at most once in a few seconds.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from time import monotonic
from typing import Final, NamedTuple

import msgspec

from gantline.contract.query import LaneCounts
from gantline.contract.retention import Retention
from gantline.contract.store import JobStore
from gantline.manager.cursors import lags
from gantline.manager.pruner import retention_lag
from gantline.telemetry.names import OTHER

_log = logging.getLogger("gantline.telemetry")

MAX_AGE_SECONDS: Final = 5.0
_DEADLINE_SECONDS: Final = 3.0


class Depth(msgspec.Struct):
    """One queue and type, or all that are not known together."""

    queue: str
    job_type: str
    queued: int = 0
    scheduled: int = 0
    running: int = 0
    failed: int = 0
    poisoned: int = 0
    oldest_seconds: float = 0.0


class Counted(NamedTuple):
    """What the store has."""

    depths: list[Depth]
    lags: Mapping[str, int]
    """How many events each durable consumer has still to read."""
    retention_lag_seconds: float
    """How long the oldest ended job has been past its retention."""


class Known(msgspec.Struct, frozen=True):
    """Which types and queues get labels of their own."""

    job_types: Collection[str]
    queues: Collection[str]


class Depths:
    """The counts as last read; None while the store cannot be counted. For one event loop."""

    def __init__(
        self,
        store: Callable[[], JobStore],
        known: Callable[[], Known],
        retention: Callable[[], Retention],
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._store = store
        self._known = known
        self._retention = retention
        self._clock = clock
        self._reading = asyncio.Lock()
        self._read_at: float | None = None
        self._last: Counted | None = None

    async def read(self) -> Counted | None:
        """Ask the store, unless it was asked lately; those who ask at once share the answer."""
        async with self._reading:
            if self._read_at is None or self._clock() - self._read_at >= MAX_AGE_SECONDS:
                self._last = await self._ask()
                self._read_at = self._clock()
            return self._last

    async def _ask(self) -> Counted | None:
        store = self._store()
        try:
            async with asyncio.timeout(_DEADLINE_SECONDS):
                lanes, now = await store.counts(tenant_id=None), await store.ping()
                behind, overdue = await lags(store), await retention_lag(store, self._retention())
        except Exception as error:
            _log.warning("the queues cannot be counted: %s", str(error) or type(error).__name__)
            return None
        depths = summed(lanes, now, self._known())
        return Counted(depths, behind, overdue.total_seconds())


def summed(lanes: Collection[LaneCounts], now: datetime, known: Known) -> list[Depth]:
    """Sum the lanes by their labels."""
    found: dict[tuple[str, str], Depth] = {}
    for lane in lanes:
        queue = lane.queue if lane.queue in known.queues else OTHER
        job_type = lane.job_type if lane.job_type in known.job_types else OTHER
        depth = found.setdefault((queue, job_type), Depth(queue, job_type))
        depth.queued += lane.queued
        depth.scheduled += lane.scheduled
        depth.running += lane.running
        depth.failed += lane.failed
        depth.poisoned += lane.poisoned
        if lane.oldest_due_at is not None:
            age = (now - lane.oldest_due_at).total_seconds()
            depth.oldest_seconds = max(depth.oldest_seconds, age)
    return list(found.values())

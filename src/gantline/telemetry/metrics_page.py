"""The metrics page: what this process has counted, and what the store holds."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Final, NamedTuple, Protocol

import msgspec

from gantline.contract.query import LaneCounts
from gantline.contract.retention import Retention
from gantline.contract.store import JobStore
from gantline.flow.limits import Limits
from gantline.flow.pressure import Pressure, measure_pressure
from gantline.manager.cursors import lags, unread_since
from gantline.manager.pruner import retention_lag
from gantline.runtime import monotonic
from gantline.telemetry.health import WatchedApp
from gantline.telemetry.health_server import Response
from gantline.telemetry.loop_watch import LoopWatch
from gantline.telemetry.metrics import OTHER, Figures

_log = logging.getLogger("gantline.telemetry")

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
NOT_INSTALLED: Final = Response.of(
    404, {"message": "Metrics need prometheus-client: pip install 'gantline[prometheus]'."}
)
MAX_AGE_SECONDS: Final = 5.0
_DEADLINE_SECONDS: Final = 3.0


class Depth(msgspec.Struct):
    """How full one lane is; unknown queues and types are counted together."""

    queue: str
    job_type: str
    queued: int = 0
    scheduled: int = 0
    running: int = 0
    failed: int = 0
    poisoned: int = 0
    oldest_seconds: float = 0.0


class StoreCounts(NamedTuple):
    """What the store holds."""

    depths: list[Depth]
    lags: Mapping[str, int]
    """How many events each durable consumer has still to read."""
    lag_seconds: Mapping[str, float]
    """How long the oldest of them has waited."""
    retention_lag_seconds: float
    """How long the oldest ended job has been past its retention."""
    pressure: Pressure
    """What limits hold back."""


class KnownLabels(msgspec.Struct, frozen=True):
    """The job types and queues that get labels of their own."""

    job_types: Collection[str]
    queues: Collection[str]


class Depths:
    """Reads the counts of the store at most once in a few seconds. For one event loop."""

    def __init__(
        self,
        store: Callable[[], JobStore],
        known: Callable[[], KnownLabels],
        retention: Callable[[], Retention],
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._store = store
        self._known = known
        self._retention = retention
        self._clock = clock
        self._lock = asyncio.Lock()
        self._read_at: float | None = None
        self._last: StoreCounts | None = None

    async def read(self) -> StoreCounts | None:
        """Return the counts; None where the store cannot be read. Callers at once share a read."""
        async with self._lock:
            if self._read_at is None or self._clock() - self._read_at >= MAX_AGE_SECONDS:
                self._last = await self._read()
                self._read_at = self._clock()
            return self._last

    async def _read(self) -> StoreCounts | None:
        store = self._store()
        try:
            async with asyncio.timeout(_DEADLINE_SECONDS):
                lanes, now = await store.counts(tenant_id=None), await store.ping()
                consumer_lags, since = await lags(store), await unread_since(store)
                overdue = await retention_lag(store, self._retention())
                limits = Limits(store)
                await limits.refresh()
                pressure = await measure_pressure(store, limits, lanes, now)
        except Exception as error:
            _log.warning("the queues cannot be counted: %s", str(error) or type(error).__name__)
            return None
        depths = sum_by_label(lanes, now, self._known())
        waits = {name: max(0.0, (now - at).total_seconds()) for name, at in since.items()}
        return StoreCounts(depths, consumer_lags, waits, overdue.total_seconds(), pressure)


def sum_by_label(lanes: Collection[LaneCounts], now: datetime, known: KnownLabels) -> list[Depth]:
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


class MeasuredApp(WatchedApp, Protocol):
    """What metrics need of an application."""

    @property
    def figures(self) -> Figures: ...

    @property
    def known_labels(self) -> KnownLabels: ...

    @property
    def retention(self) -> Retention: ...


class MetricsPage:
    """Builds the page on request."""

    def __init__(self, measured: MeasuredApp, *, watch: LoopWatch | None = None) -> None:
        self._measured = measured
        self._watch = watch
        self._figures = measured.figures  # counting begins here
        self._depths = Depths(
            lambda: measured.store, lambda: measured.known_labels, lambda: measured.retention
        )

    async def page(self) -> Response:
        try:
            from gantline.telemetry import prometheus  # only its users have the library
        except ModuleNotFoundError:
            return NOT_INSTALLED
        slots: dict[str, tuple[int, int]] = {}
        for worker in self._measured.workers:
            for queue, (total, free) in worker.slots.items():
                before = slots.get(queue, (0, 0))
                slots[queue] = (before[0] + total, before[1] + free)
        bridge = self._measured.bridge
        families = [
            *prometheus.job_families(self._figures.by_type),
            *prometheus.bridge_families(bridge.taken if bridge else {}),
            *prometheus.slot_families(slots),
            *prometheus.loop_families(self._watch),
            *prometheus.store_families(await self._depths.read()),
            *prometheus.application_families(),
        ]
        return Response(200, prometheus.encode_page(families), METRICS_TYPE)

"""The metrics page, in the text format of Prometheus. The only importer of prometheus_client."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client import REGISTRY, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from gantline.contract.status import JobStatus
from gantline.contract.webhook import DELIVERY_TYPE
from gantline.flow.pressure import NO_PRESSURE
from gantline.telemetry import metrics
from gantline.telemetry.loop_watch import LoopWatch
from gantline.telemetry.metrics import Histogram, TypeFigures
from gantline.telemetry.metrics_page import StoreCounts

LabelledRows = Iterable[tuple[Sequence[str], float]]


class Families:
    """What prometheus_client expects of a registry."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def encode_page(families: Iterable[Metric]) -> bytes:
    return generate_latest(Families(families))


def application_families() -> Iterable[Metric]:
    """Collect the default registry: metrics of the process, and what handlers count themselves."""
    return REGISTRY.collect()


def job_families(figures: Mapping[str, TypeFigures]) -> Iterator[Metric]:
    """Build what this process has counted."""
    yield _family(metrics.SUBMITTED, (((kind,), of.submitted) for kind, of in figures.items()))
    yield _family(metrics.DUPLICATES, (((kind,), of.duplicates) for kind, of in figures.items()))
    yield _family(
        metrics.FINISHED,
        (
            ((kind, status), count)
            for kind, of in figures.items()
            for status, count in ((JobStatus.COMPLETED, of.completed), *of.finished.items())
        ),
    )
    yield _family(metrics.RETRIES, (((kind,), of.retried) for kind, of in figures.items()))
    yield _family(metrics.LEASES_LOST, (((kind,), of.leases_lost) for kind, of in figures.items()))
    yield _webhook_counter(figures.get(DELIVERY_TYPE))
    yield _histogram(metrics.WAIT, {kind: of.wait for kind, of in figures.items()})
    yield _histogram(metrics.RUN, {kind: of.run for kind, of in figures.items()})
    yield _histogram(metrics.SCHEDULE_LATENESS, {kind: of.lateness for kind, of in figures.items()})


def _webhook_counter(deliveries: TypeFigures | None) -> Metric:
    """Deliveries are jobs of one type, so they are counted already."""
    if deliveries is None:
        return _family(metrics.WEBHOOK_DELIVERIES, ())
    counts = {
        "delivered": deliveries.completed,
        "retried": deliveries.retried,
        "failed": sum(deliveries.finished.values()),
    }
    rows = [((outcome,), count) for outcome, count in counts.items()]
    return _family(metrics.WEBHOOK_DELIVERIES, rows)


def bridge_families(taken: Mapping[str, int]) -> Iterator[Metric]:
    yield _family(metrics.BRIDGED, [((outcome,), count) for outcome, count in taken.items()])


def slot_families(slots: Mapping[str, tuple[int, int]]) -> Iterator[Metric]:
    """`slots`: how many a queue has, and how many of them are free."""
    yield _family(
        metrics.SLOTS,
        [
            ((queue, state), count)
            for queue, (total, free) in slots.items()
            for state, count in (("busy", total - free), ("free", free))
        ],
    )


def loop_families(watch: LoopWatch | None) -> Iterator[Metric]:
    if watch is not None:
        yield _family(metrics.LOOP_LAG, [((), watch.lag_seconds)])
        blocked = {job_type or metrics.OTHER: s for job_type, s in watch.blocked_seconds.items()}
        yield _family(metrics.LOOP_BLOCKED, [((one,), s) for one, s in blocked.items()])


def store_families(counted: StoreCounts | None) -> Iterator[Metric]:
    """Build what the store holds; nothing while it cannot be read, rather than old values."""
    yield _family(metrics.STORE_UP, [((), float(counted is not None))])
    depths = counted.depths if counted else []
    for metric, field in (
        (metrics.DEPTH, "queued"),
        (metrics.SCHEDULED, "scheduled"),
        (metrics.RUNNING, "running"),
        (metrics.OLDEST, "oldest_seconds"),
    ):
        rows = [((one.queue, one.job_type), getattr(one, field)) for one in depths]
        yield _family(metric, rows)
    dead = [
        ((one.queue, one.job_type, status), count)
        for one in depths
        for status, count in (("Failed", one.failed), ("Poisoned", one.poisoned))
    ]
    yield _family(metrics.DEAD, dead)
    lags = counted.lags if counted else {}
    yield _family(metrics.CONSUMER_LAG, [((name,), lag) for name, lag in lags.items()])
    waits = counted.lag_seconds if counted else {}
    yield _family(metrics.CONSUMER_LAG_SECONDS, [((name,), waits.get(name, 0.0)) for name in lags])
    overdue = [((), counted.retention_lag_seconds)] if counted else []
    yield _family(metrics.RETENTION_LAG, overdue)
    pressure = counted.pressure if counted else NO_PRESSURE
    seconds = [((gate,), wait) for gate, wait in pressure.gates.items()]
    yield _family(metrics.GATE_CLOSED, [(gate, float(wait > 0)) for gate, wait in seconds])
    yield _family(metrics.GATE_OPENS, seconds)
    groups = [((kind,), count) for kind, count in pressure.groups.items()]
    yield _family(metrics.GROUPS_WAITING, groups)
    yield _family(metrics.HELD_BACK, list(pressure.held_back.items()))


def _family(metric: metrics.Metric, rows: LabelledRows) -> Metric:
    """Build the gauge or the counter that a metric is."""
    kind = GaugeMetricFamily if metric.kind == "gauge" else CounterMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in rows:
        family.add_metric(labels, value)
    return family


def _histogram(metric: metrics.Metric, rows: Mapping[str, Histogram]) -> Metric:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    bounds = [*map(str, metrics.BOUNDS), "+Inf"]
    for kind, histogram in rows.items():
        sums = histogram.cumulative()
        if sums[-1]:  # else seventeen zeros for every type that this process never runs
            buckets = list(zip(bounds, sums, strict=True))
            family.add_metric([kind], buckets, histogram.seconds)
    return family

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
from gantline.telemetry import names
from gantline.telemetry.depths import Counted
from gantline.telemetry.figures import Histogram, TypeFigures
from gantline.telemetry.loop_watch import LoopWatch

Labelled = Iterable[tuple[Sequence[str], float]]


class Families:
    """Something that a registry of prometheus_client can be made of."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def text_of(families: Iterable[Metric]) -> bytes:
    return generate_latest(Families(families))


def families_of_the_application() -> Iterable[Metric]:
    """What the default registry has: the process's own, and what handlers count themselves."""
    return REGISTRY.collect()


def families_of(figures: Mapping[str, TypeFigures]) -> Iterator[Metric]:
    """What this process has counted."""
    yield _counter(names.SUBMITTED, (((kind,), of.submitted) for kind, of in figures.items()))
    yield _counter(
        names.FINISHED,
        (
            ((kind, status), count)
            for kind, of in figures.items()
            for status, count in ((JobStatus.COMPLETED, of.completed), *of.finished.items())
        ),
    )
    yield _counter(names.RETRIES, (((kind,), of.retried) for kind, of in figures.items()))
    yield _counter(names.LEASES_LOST, (((kind,), of.leases_lost) for kind, of in figures.items()))
    yield _webhooks(figures.get(DELIVERY_TYPE))
    yield _histogram(names.WAIT, {kind: of.wait for kind, of in figures.items()})
    yield _histogram(names.RUN, {kind: of.run for kind, of in figures.items()})
    yield _histogram(names.SCHEDULE_LATENESS, {kind: of.lateness for kind, of in figures.items()})


def _webhooks(deliveries: TypeFigures | None) -> Metric:
    """Deliveries are jobs of a type, so they have been counted already."""
    if deliveries is None:
        return _counter(names.WEBHOOK_DELIVERIES, ())
    counts = {
        "delivered": deliveries.completed,
        "retried": deliveries.retried,
        "failed": sum(deliveries.finished.values()),
    }
    rows = [((outcome,), count) for outcome, count in counts.items()]
    return _counter(names.WEBHOOK_DELIVERIES, rows)


def families_of_bridge(taken: Mapping[str, int]) -> Iterator[Metric]:
    yield _counter(names.BRIDGED, [((outcome,), count) for outcome, count in taken.items()])


def families_of_slots(slots: Mapping[str, tuple[int, int]]) -> Iterator[Metric]:
    """`slots`: how many a queue has, and how many of them are free."""
    yield _gauge(
        names.SLOTS,
        [
            ((queue, state), count)
            for queue, (total, free) in slots.items()
            for state, count in (("busy", total - free), ("free", free))
        ],
    )


def families_of_lag(watch: LoopWatch | None) -> Iterator[Metric]:
    if watch is not None:
        yield _gauge(names.LOOP_LAG, [((), watch.lag_seconds)])


def families_of_the_store(counted: Counted | None) -> Iterator[Metric]:
    """What the store has; nothing of it while it cannot be counted, rather than something old."""
    yield _gauge(names.STORE_UP, [((), float(counted is not None))])
    depths = counted.depths if counted else []
    for metric, field in (
        (names.DEPTH, "queued"),
        (names.SCHEDULED, "scheduled"),
        (names.RUNNING, "running"),
        (names.OLDEST, "oldest_seconds"),
    ):
        rows = [((one.queue, one.job_type), getattr(one, field)) for one in depths]
        yield _gauge(metric, rows)
    dead = [
        ((one.queue, one.job_type, status), count)
        for one in depths
        for status, count in (("Failed", one.failed), ("Poisoned", one.poisoned))
    ]
    yield _gauge(names.DEAD, dead)
    lags = counted.lags.items() if counted else ()
    yield _gauge(names.CONSUMER_LAG, [((name,), lag) for name, lag in lags])
    overdue = [((), counted.retention_lag_seconds)] if counted else []
    yield _gauge(names.RETENTION_LAG, overdue)


def _gauge(metric: names.Metric, rows: Labelled) -> Metric:
    family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in rows:
        family.add_metric(labels, value)
    return family


def _counter(metric: names.Metric, rows: Labelled) -> Metric:
    family = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in rows:
        family.add_metric(labels, value)
    return family


def _histogram(metric: names.Metric, rows: Mapping[str, Histogram]) -> Metric:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    bounds = [*map(str, names.BOUNDS), "+Inf"]
    for kind, histogram in rows.items():
        sums = histogram.cumulative()
        if sums[-1]:  # else seventeen zeros for every type that this process never runs
            buckets = list(zip(bounds, sums, strict=True))
            family.add_metric([kind], buckets, histogram.seconds)
    return family

"""Watching: what monitoring may ask of an application, and what observes its jobs."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gantline.contract.retention import Retention
from gantline.contract.store import JobStore
from gantline.manager.observer import Relay
from gantline.wakeups.remote import RemoteWakeup
from gantline.worker.worker import Worker

if TYPE_CHECKING:
    from gantline.api.application import Api
    from gantline.app.gantline import Gantline
    from gantline.bridge.bridge import Bridge
    from gantline.telemetry.health_server import Routes
    from gantline.telemetry.loop_watch import LoopWatch
    from gantline.telemetry.metrics import Figures
    from gantline.telemetry.metrics_page import KnownLabels


class Watching:
    """Counts nothing, and imports nothing for it, before the metrics are asked for."""

    def __init__(self, app: "Gantline") -> None:
        self._app = app
        self._workers: list[Worker] = []
        self._figures: Figures | None = None
        self._loop_watch: LoopWatch | None = None
        self.observer = Relay()

    @property
    def store(self) -> JobStore:
        return self._app.store

    @property
    def retention(self) -> Retention:
        return self._app.storage.retention.over(self.store.capabilities.retention)

    @property
    def broker(self) -> RemoteWakeup | None:
        return self._app.broker

    @property
    def bridge(self) -> "Bridge | None":
        return self._app.bridge.running if self._app.bridge else None

    @property
    def workers(self) -> Sequence[Worker]:
        return tuple(self._workers)

    @contextmanager
    def of(self, worker: Worker) -> Iterator[Worker]:
        """Watch a worker as long as it is there."""
        self._workers.append(worker)
        try:
            with self.loop_watch.watching():
                yield worker
        finally:
            self._workers.remove(worker)

    @property
    def loop_watch(self) -> "LoopWatch":
        """That of the running event loop."""
        loop = asyncio.get_running_loop()
        if self._loop_watch is None or self._loop_watch.loop is not loop:
            from gantline.telemetry.loop_watch import LoopWatch

            self._loop_watch = LoopWatch(
                loop, self._app.registry, blocked_after=self._app.worker.blocked_after
            )
        return self._loop_watch

    @property
    def figures(self) -> "Figures":
        """What this process counts, from the first time that somebody asks."""
        if self._figures is None:
            from gantline.telemetry.metrics import Figures

            self._figures = Figures(self._app.registry.job_types)
            self.observer.observer = self._figures
        return self._figures

    def know(self, job_types: Iterable[str]) -> None:
        """Take in types that were declared after the counting began."""
        if self._figures is not None:
            self._figures.know(job_types)

    @property
    def known_labels(self) -> "KnownLabels":
        """Which types and queues metrics may name."""
        from gantline.telemetry.metrics_page import KnownLabels

        served = [queue for worker in self._workers for queue in worker.slots]
        queues = {*served, *self._app.default_queues()}
        return KnownLabels(frozenset(self._app.registry.job_types), queues)

    def pages(
        self, *, live_path: str, ready_path: str, with_metrics: bool, api: "Callable[[], Api]"
    ) -> "dict[str, Routes]":
        """What an API serves beside itself, by path."""
        served = self.health_app(
            live_path=live_path, ready_path=ready_path, with_metrics=with_metrics, api=api
        )
        return dict.fromkeys(served.pages, served)

    def health_app(
        self,
        *,
        watch: "LoopWatch | None" = None,
        live_path: str = "/healthz",
        ready_path: str = "/readyz",
        with_metrics: bool = True,
        **expected: Any,
    ) -> "Routes":
        """`expected`: those of HealthPages."""
        from gantline.telemetry.health import HealthPages
        from gantline.telemetry.health_server import METRICS_PATH, HealthPaths, Routes
        from gantline.telemetry.metrics_page import MetricsPage

        health = HealthPages(self, watch=watch, **expected)
        pages = HealthPaths(live_path, ready_path).pages(health.alive, health.ready)
        if with_metrics:
            pages[METRICS_PATH] = MetricsPage(self, watch=watch).page
        return Routes(pages)

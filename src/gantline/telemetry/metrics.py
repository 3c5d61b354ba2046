"""Metrics: all that monitoring may want to know of this process and of its store."""

from typing import Final, Protocol

from gantline.contract.retention import Retention
from gantline.telemetry.checks import Watched
from gantline.telemetry.depths import Depths, Known
from gantline.telemetry.figures import Figures
from gantline.telemetry.loop_watch import LoopWatch
from gantline.telemetry.routes import Response

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
NOT_INSTALLED: Final = Response.of(
    404, {"message": "Metrics need prometheus-client: pip install 'gantline[prometheus]'."}
)


class Measured(Watched, Protocol):
    """What is measured: an application."""

    @property
    def figures(self) -> Figures: ...

    @property
    def known_labels(self) -> Known: ...

    @property
    def retention(self) -> Retention: ...


class Metrics:
    """Makes the page when somebody asks for it."""

    def __init__(self, measured: Measured, *, watch: LoopWatch | None = None) -> None:
        self._measured = measured
        self._watch = watch
        self._figures = measured.figures  # counting begins here
        self._depths = Depths(
            lambda: measured.store, lambda: measured.known_labels, lambda: measured.retention
        )

    async def page(self) -> Response:
        try:
            from gantline.telemetry import page  # only its users have the library
        except ModuleNotFoundError:
            return NOT_INSTALLED
        slots: dict[str, tuple[int, int]] = {}
        for worker in self._measured.workers:
            for queue, (total, free) in worker.slots.items():
                before = slots.get(queue, (0, 0))
                slots[queue] = (before[0] + total, before[1] + free)
        bridge = self._measured.bridge
        families = [
            *page.families_of(self._figures.by_type),
            *page.families_of_bridge(bridge.taken if bridge else {}),
            *page.families_of_slots(slots),
            *page.families_of_lag(self._watch),
            *page.families_of_the_store(await self._depths.read()),
            *page.families_of_the_application(),
        ]
        return Response(200, page.text_of(families), METRICS_TYPE)

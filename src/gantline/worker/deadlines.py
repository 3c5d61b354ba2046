"""Deadlines: one timer for all running jobs, set to the earliest of them."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from gantline.worker.active import ActiveRun, Cause


class Deadlines:
    """Stop runs whose time is up, and report those that do not stop within the grace."""

    def __init__(
        self,
        *,
        grace: timedelta = timedelta(0),
        overran: Callable[[ActiveRun], None] = lambda active: None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._grace = grace.total_seconds()
        self._overran = overran
        self._running: dict[ActiveRun, float] = {}
        self._stopped: dict[ActiveRun, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, active: ActiveRun) -> None:
        at = self._loop.time() + active.handler.timeout.total_seconds()
        self._running[active] = at
        if self._timer is None or at < self._timer.when():
            self._set_timer(at)

    def remove(self, active: ActiveRun) -> None:
        """The timer stays: ringing for nothing is cheaper than setting it once more."""
        self._running.pop(active, None)
        self._stopped.pop(active, None)

    def _set_timer(self, at: float) -> None:
        self.close()
        self._timer = self._loop.call_at(at, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = self._loop.time()
        for active in [active for active, at in self._stopped.items() if at <= now]:
            self.remove(active)
            self._overran(active)
        for active in [active for active, at in self._running.items() if at <= now]:
            self.remove(active)
            self._stopped[active] = now + self._grace
            active.stop(Cause.TIMEOUT)
        if pending := [*self._running.values(), *self._stopped.values()]:
            self._set_timer(min(pending))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

"""Deadlines: one timer for all running jobs, set to the earliest of them."""

import asyncio

from windlass.worker.active import ActiveRun, Cause


class Deadlines:
    """Stop runs whose time is up. Holds those that run, and no others."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._running: dict[ActiveRun, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, active: ActiveRun) -> None:
        at = self._loop.time() + active.handler.timeout.total_seconds()
        self._running[active] = at
        if self._timer is None or at < self._timer.when():
            self._set_timer(at)

    def remove(self, active: ActiveRun) -> None:
        """The timer stays: ringing for nothing once in a while is cheaper than setting it anew."""
        self._running.pop(active, None)

    def _set_timer(self, at: float) -> None:
        self.close()
        self._timer = self._loop.call_at(at, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = self._loop.time()
        for active in [active for active, at in self._running.items() if at <= now]:
            self.remove(active)
            active.stop(Cause.TIMEOUT)
        if self._running:
            self._set_timer(min(self._running.values()))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

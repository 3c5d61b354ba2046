"""Deadlines: one timer for all running jobs, set to the earliest of them."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from gantline.worker.active_run import ActiveRun, Cause

_LATE_SECONDS: Final = 0.5
_LONGEST_WAIT_SECONDS: Final = 10.0


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
        self._has_waited = False

    def add(self, active: ActiveRun) -> None:
        at = self._loop.time() + active.handler.timeout.total_seconds()
        self._running[active] = at
        if self._timer is None or at < self._timer.when():
            self._set_timer(at)

    def remove(self, active: ActiveRun) -> None:
        """The timer stays: a call for nothing is cheaper than setting it once more."""
        self._running.pop(active, None)
        self._stopped.pop(active, None)

    def _set_timer(self, at: float) -> None:
        self.close()
        self._timer = self._loop.call_at(at, self._ring)

    def _ring(self) -> None:
        now = self._loop.time()
        late = 0.0 if self._timer is None else now - self._timer.when()
        self._timer = None
        self._has_waited = late > _LATE_SECONDS and not self._has_waited
        if self._has_waited:
            # A handler has blocked the loop. The others get that time back, but not for ever.
            self._set_timer(now + min(late, _LONGEST_WAIT_SECONDS))
            return
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

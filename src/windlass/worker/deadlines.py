"""Deadlines: one timer for all running jobs, set to the earliest of them."""

import asyncio
import heapq
from itertools import count

from windlass.worker.active import ActiveRun, Cause


class Deadlines:
    """Stop runs whose time is up. A heap costs a fifth of a timer for each of them."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[float, int, ActiveRun]] = []
        self._order = count()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, active: ActiveRun) -> None:
        at = self._loop.time() + active.handler.timeout.total_seconds()
        heapq.heappush(self._waiting, (at, next(self._order), active))
        if self._timer is None or at < self._timer.when():
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # Those that have ended meanwhile need no timer.
        while self._waiting and self._waiting[0][2].is_over:
            heapq.heappop(self._waiting)
        self._timer = None
        if self._waiting:
            self._timer = self._loop.call_at(self._waiting[0][0], self._ring)

    def _ring(self) -> None:
        now = self._loop.time()
        while self._waiting and self._waiting[0][0] <= now:
            heapq.heappop(self._waiting)[2].stop(Cause.TIMEOUT)
        self._set_timer()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

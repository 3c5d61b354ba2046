"""The announcer: what a worker lets others know, by hints and by the numbers of events."""

import asyncio
import math
from typing import Final
from uuid import UUID

from gantline.contract.store import JobStore
from gantline.contract.wakeup import Hint, Wakeup
from gantline.worker.numberer import Numberer

# Who waits repeats itself well within this time.
_WATCHED_SECONDS: Final = 5.0


class Announcer:
    """Notify of work, and of ended runs while somebody waits for them."""

    def __init__(self, store: JobStore, wakeup: Wakeup) -> None:
        self._wakeup = wakeup
        self._numberer = Numberer(store, told=self._notify_who_waits)
        self._watched_until = -math.inf

    def work(self, job_id: UUID | None = None) -> None:
        """There are jobs to claim, among them this one."""
        self._wakeup.notify(job_id=job_id)

    def events(self) -> None:
        """There are new events: have them numbered, and notify who waits."""
        self._notify_who_waits()
        self._numberer.soon()

    def number(self) -> None:
        """Have events numbered."""
        self._numberer.soon()

    def watched(self) -> None:
        """Somebody waits: notify from now on, and at once, for what ended just before."""
        now = asyncio.get_running_loop().time()
        if now >= self._watched_until:
            self._wakeup.notify(Hint.ENDED)
        self._watched_until = now + _WATCHED_SECONDS

    async def finish(self) -> None:
        await self._numberer.finish()

    def _notify_who_waits(self) -> None:
        """Only while somebody does: on a server, every hint has its cost."""
        if asyncio.get_running_loop().time() < self._watched_until:
            self._wakeup.notify(Hint.ENDED)

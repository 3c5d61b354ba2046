"""The announcer: what a worker lets others know, by hints and by the numbers of events."""

import asyncio
import logging
import math
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Final
from uuid import UUID

from gantline.contract.store import JobStore
from gantline.contract.wakeup import Hint, Wakeup
from gantline.manager.sequencer import number_events

_log = logging.getLogger("gantline.worker")

# Waiters repeat their hint well within this time.
_WATCHED_SECONDS: Final = 5.0


class Announcer:
    """Notify of work, and of ended runs while a client waits for them."""

    def __init__(self, store: JobStore, wakeup: Wakeup) -> None:
        self._wakeup = wakeup
        self._numberer = Numberer(store, on_numbers=self._notify_waiters)
        self.number = self._numberer.soon
        """Have events numbered."""
        self.finish = self._numberer.finish
        self._watched_until = -math.inf

    def work(self, job_id: UUID | None = None) -> None:
        """There are jobs to claim, among them this one."""
        self._wakeup.notify(job_id=job_id)

    def events(self) -> None:
        """There are new events: have them numbered, and notify waiters."""
        self._notify_waiters()
        self._numberer.soon()

    def watched(self) -> None:
        """A client waits: notify from now on, and at once, for what ended just before."""
        now = asyncio.get_running_loop().time()
        if now >= self._watched_until:
            self._wakeup.notify(Hint.ENDED)
        self._watched_until = now + _WATCHED_SECONDS

    def _notify_waiters(self) -> None:
        """Only while a client waits: on a server, every hint has its cost."""
        if asyncio.get_running_loop().time() < self._watched_until:
            self._wakeup.notify(Hint.ENDED)


_PAUSE_SECONDS: Final = 0.15
# A store that is away must not hold up a worker that stops.
_LAST_TIME_SECONDS: Final = 2.0


class Numberer:
    """Has events numbered soon after the runs that made them were settled.

    Quiet, number at once; busy, a few times a second. Idle, ask nothing.

    The leader of the maintenance does that as well, for workers that died in between; several at
    once do no harm.
    """

    def __init__(self, store: JobStore, *, on_numbers: Callable[[], None]) -> None:
        """`on_numbers` is called when there are new numbers."""
        self._store = store
        self._is_needed = store.capabilities.event_lag > timedelta(0)
        self._on_numbers = on_numbers
        self._is_asked = False
        self._numbering: asyncio.Task[None] | None = None

    def soon(self) -> None:
        """There may be events without a number. Costs nothing where the store numbers itself."""
        if not self._is_needed:
            return
        self._is_asked = True
        if self._numbering is None:
            self._numbering = asyncio.create_task(self._number_while_asked())

    async def finish(self) -> None:
        """Number what is left, and ask nothing more."""
        self._is_needed = False
        numbering, self._numbering = self._numbering, None
        if numbering is not None:
            numbering.cancel()
            await asyncio.gather(numbering, return_exceptions=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_TIME_SECONDS):
                    await self._number()

    async def _number_while_asked(self) -> None:
        while self._is_asked:
            self._is_asked = False
            await self._number()
            await asyncio.sleep(_PAUSE_SECONDS)
        self._numbering = None

    async def _number(self) -> None:
        try:
            numbered = await number_events(self._store)
        except Exception as error:
            _log.warning("could not number events, leaving it to the leader: %s", error)
            return
        if numbered:
            self._on_numbers()

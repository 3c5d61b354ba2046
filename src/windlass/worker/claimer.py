"""The claimer: one per process. Claims into free slots, again at once while work is found.

While the batches come back full, two claims of half the slots each are under way: what one has
brought is run while the store works on the other (25 instead of 21 thousand jobs/s on PostgreSQL).
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from time import monotonic
from typing import Final
from uuid import uuid4

from windlass.contract.query import LaneRequest
from windlass.contract.snapshot import Run
from windlass.contract.status import Event
from windlass.manager.manager import JobManager
from windlass.manager.switches import Switches
from windlass.worker.registry import HandlerRegistry
from windlass.worker.slots import Slots

_log = logging.getLogger("windlass.worker")

_FIRST_WAIT_SECONDS: Final = 0.02
SWITCHES_SECONDS: Final = 5.0


class Claimer:
    """Find work. An idle poll is jittered, and waits longer the longer nothing is found."""

    def __init__(
        self,
        manager: JobManager,
        registry: HandlerRegistry,
        slots: Slots,
        switches: Switches,
        session: str,
        *,
        lease: timedelta,
        longest_wait: Callable[[], timedelta],
        keeps_up: asyncio.Event,
        start: Callable[[list[Run]], None],
    ) -> None:
        """`keeps_up` is set while what has ended is being written in time."""
        self._manager = manager
        self._registry = registry
        self._slots = slots
        self._switches = switches
        self._session = session
        self._lease = lease
        self._longest_wait = longest_wait
        self._keeps_up = keeps_up
        self._start = start
        self._woken = asyncio.Event()
        self._may_claim = asyncio.Event()
        self._may_claim.set()
        self._there_is_more = asyncio.Event()
        self._claiming: set[asyncio.Task[None] | None] = set()
        self._is_over = False
        self.looked_at = monotonic()
        """When it last asked the store for work and got an answer, or had no need to ask."""

    @property
    def has_room(self) -> bool:
        """Whether it is to look for work at all now."""
        return (
            self._may_claim.is_set()
            and self._keeps_up.is_set()
            and any(self._slots.without_a_run.values())
        )

    def wake(self) -> None:
        """There may be work."""
        self._woken.set()

    def hold_back(self) -> None:
        """Claim nothing until `go_on`."""
        self._may_claim.clear()

    @property
    def is_held_back(self) -> bool:
        return not self._may_claim.is_set()

    def go_on(self) -> None:
        self.looked_at = monotonic()
        self._may_claim.set()

    async def claim_for_ever(self) -> None:
        """Until cancelled. A claim that is under way is then ended, and what it brings handed on:
        what nobody takes would be counted as crashed."""
        loops = [asyncio.create_task(loop()) for loop in (self._look_for_work, self._claim_beside)]
        try:
            await asyncio.wait(loops, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            self._is_over = True
            for loop in loops:
                if loop not in self._claiming:
                    loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
        for loop in loops:
            if not loop.cancelled():
                loop.result()

    async def _look_for_work(self) -> None:
        wait = _FIRST_WAIT_SECONDS
        while not self._is_over:
            await self._may_claim.wait()
            await self._keeps_up.wait()
            if self._slots.are_full:
                await self._slots.changed()
                self.looked_at = monotonic()
                # Runs tend to end together: let those of this turn of the loop end first.
                await asyncio.sleep(0)
            self._woken.clear()
            if await self._claim():
                wait = _FIRST_WAIT_SECONDS
                await asyncio.sleep(0)  # what has started goes first
            elif not self._is_over:
                await self._idle(wait)
                wait = min(2 * wait, self._longest_wait().total_seconds())

    async def _claim_beside(self) -> None:
        """The second claim; of no use where the slots become free one by one."""
        while not self._is_over:
            await self._may_claim.wait()
            await self._keeps_up.wait()
            await self._there_is_more.wait()
            if self._slots.are_half_free:
                await self._claim()
            else:
                await self._slots.changed()

    async def _claim(self) -> bool:
        """Claim once; False when nothing was found, for whatever reason."""
        try:
            return await self._claim_some()
        except Exception as error:
            _log.warning("could not claim, trying again: %s", error)
            self._there_is_more.clear()
            return False

    async def _claim_some(self) -> bool:
        # A switch that is thrown comes with a hint of its own, where hints come at all.
        await self._switches.refresh(max_age_seconds=SWITCHES_SECONDS)
        job_types = self._switches.running(self._registry.job_types)
        logged = self._registry.logging(Event.STARTED)
        wanted = self._slots.requests(job_types, self._switches.paused_queues, logged)
        if not wanted or not job_types:
            self._there_is_more.clear()
            self.looked_at = monotonic()
            return False
        with self._slots.kept_for(wanted):
            runs = await self._claimed(wanted)
        self.looked_at = monotonic()
        if len(runs) < sum(request.limit for request in wanted):
            self._there_is_more.clear()
        else:
            self._there_is_more.set()
        if runs:
            self._start(runs)
        return bool(runs)

    async def _claimed(self, wanted: Sequence[LaneRequest]) -> list[Run]:
        """Without a shielded task for it, which takes two more turns of the loop, and 0.1 ms."""
        task = asyncio.current_task()
        self._claiming.add(task)
        try:
            return await self._manager.claim(self._session, uuid4(), wanted, lease=self._lease)
        finally:
            self._claiming.discard(task)

    async def _idle(self, seconds: float) -> None:
        jittered = seconds * random.uniform(0.8, 1.2)  # noqa: S311  # not a secret
        # Not wait_for, which in Python 3.11 can swallow a cancellation that meets the wake-up.
        with suppress(TimeoutError):
            async with asyncio.timeout(jittered):
                await self._woken.wait()

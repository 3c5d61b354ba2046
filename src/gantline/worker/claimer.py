"""The claimer: one per process. Claims into free slots, again at once while work is found.

While the batches come back full, two claims of half the slots each are under way: what one has
brought is run while the store works on the other (25 instead of 21 thousand jobs/s on PostgreSQL).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from gantline.contract.errors import Forbidden, SessionNotRegistered, StoreUnavailable
from gantline.contract.query import LaneRequest
from gantline.contract.snapshot import Run
from gantline.contract.status import Event
from gantline.flow.limits import Limits
from gantline.manager.manager import JobManager
from gantline.manager.switches import Switches
from gantline.runtime import jittered, monotonic, new_uuid
from gantline.worker.handler import HandlerRegistry
from gantline.worker.slots import Slots
from gantline.worker.suspects import Suspects

_log = logging.getLogger("gantline.worker")

_FIRST_WAIT_SECONDS: Final = 0.02
_SUSPECTS_SECONDS: Final = 3.0
SWITCHES_SECONDS: Final = 5.0


class Claimer:
    """Find work. An idle poll is jittered, and waits longer the longer nothing is found."""

    def __init__(
        self,
        manager: JobManager,
        registry: HandlerRegistry,
        slots: Slots,
        switches: Switches,
        limits: Limits,
        session: str,
        *,
        lease: timedelta,
        longest_wait: Callable[[], timedelta],
        keeps_up: asyncio.Event,
        start: Callable[[list[Run], float], None],
        register: Callable[[], Awaitable[None]],
        suspects: Suspects,
    ) -> None:
        """`keeps_up` is set while what has ended is being written in time.

        `start` is given what was claimed, and when the claim was sent. `register` is called where
        the registration is over; where it is refused, the worker ends.
        """
        self._manager = manager
        self._registry = registry
        self._slots = slots
        self._switches = switches
        self._limits = limits
        self._session = session
        self._lease = lease
        self._longest_wait = longest_wait
        self._keeps_up = keeps_up
        self._start = start
        self._register = register
        self._suspects = suspects
        self._woken = asyncio.Event()
        self._suspects_woken = asyncio.Event()
        self._may_claim = asyncio.Event()
        self._may_claim.set()
        self._there_is_more = asyncio.Event()
        self._claiming: set[asyncio.Task[None] | None] = set()
        self.is_quiet = asyncio.Event()
        self.is_quiet.set()
        self._has_looked_for_suspects = asyncio.Event()
        self._suspect_turn = 0
        self._is_closed = False
        self._over = asyncio.Event()
        self.looked_at = monotonic()
        """When it last asked the store for work and got an answer, or had no need to ask."""

    @property
    def has_room(self) -> bool:
        """Whether there is a slot to claim into."""
        return any(self._slots.without_a_run.values())

    @property
    def _is_over(self) -> bool:
        return self._over.is_set()

    def wake(self) -> None:
        """There may be work."""
        self._woken.set()

    def wake_for_suspects(self) -> None:
        """There may be suspects, or they may run now."""
        self._suspects_woken.set()

    def hold_back(self) -> None:
        """Claim nothing until `go_on`. Claims may be under way: wait until it `is_quiet`."""
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
        loops = [
            asyncio.create_task(loop())
            for loop in (self._look_for_suspects, self._look_for_work, self._claim_beside)
        ]
        try:
            await asyncio.wait(loops, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            self._over.set()
            for loop in loops:
                if loop not in self._claiming:
                    loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
        for loop in loops:
            if not loop.cancelled():
                loop.result()

    async def _look_for_work(self) -> None:
        wait = _FIRST_WAIT_SECONDS
        await self._has_looked_for_suspects.wait()
        while not self._is_over:
            await self._may_claim.wait()
            await self._keeps_up.wait()
            if self._slots.are_full:
                await self._slots.changed()
                self.looked_at = monotonic()
                # Runs tend to end together: let those of this turn of the loop end first.
                await asyncio.sleep(0)
            self._woken.clear()
            asked_at = monotonic()
            if await self._claim():
                wait = _FIRST_WAIT_SECONDS
                await asyncio.sleep(0)  # what has started goes first
            elif self._slots.was_asked_everywhere and not self._is_over:
                self._slots.ask_again()
                shortened = await self._limits.shortened(
                    _about(wait), self._registry.job_types, asked_at=asked_at
                )
                await self._wait_for(self._woken, shortened)
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

    async def _look_for_suspects(self) -> None:
        """A group at a time. First of all, and then now and then: there are few, or none."""
        while not self._is_over:
            await self._may_claim.wait()
            await self._keeps_up.wait()
            self._suspects_woken.clear()
            if self._suspects.next_group:
                self._slots.reserve_full()
                await self._claim(suspects=True)
            self._has_looked_for_suspects.set()
            if self._slots.is_reserved and self._suspects.next_group and not self._is_over:
                await self._wait_for(self._slots.reserved_is_free, _about(_SUSPECTS_SECONDS))
                if self._slots.reserved_is_free.is_set() and not self.is_held_back:
                    await self._claim(suspects=True)
            self._slots.release()
            self.wake()
            if not self._is_over:
                await self._wait_for(self._suspects_woken, _about(_SUSPECTS_SECONDS))

    async def _claim(self, *, suspects: bool = False) -> bool:
        """Claim once; False when nothing was found, for whatever reason."""
        try:
            return await (self._claim_suspects() if suspects else self._claim_some())
        except Forbidden:
            raise
        except Exception as error:
            _log.warning("could not claim, trying again: %s", error)
            self._there_is_more.clear()
            self._slots.found_nothing_to_ask()
            return False

    async def _claim_some(self) -> bool:
        # A switch that is changed comes with a hint of its own, where hints come at all.
        await self._switches.refresh(max_age_seconds=SWITCHES_SECONDS)
        await self._limits.refresh()
        if (is_closed := self._switches.closed is not None) != self._is_closed:
            self._is_closed = is_closed
            closed = f"{self._switches.refusal} Nothing is claimed."
            _log.warning("%s", closed if is_closed else "The store is open again.")
        job_types = self._switches.running(self._registry.job_types)
        logged = self._registry.logging(Event.STARTED)
        requests = self._slots.requests(job_types, self._switches.paused_queues, logged)
        if not requests or not job_types or self.is_held_back:
            self._there_is_more.clear()
            if not self._slots.are_full:  # else what is left is asked for when a slot is free
                self._slots.found_nothing_to_ask()
            self.looked_at = monotonic()
            return False
        asked_at = monotonic()
        with self._slots.kept_for(requests):
            runs = await self._claimed(self._limits.applied_to(requests))
        self._slots.found(requests, runs)
        self.looked_at = monotonic()
        if len(runs) < sum(request.limit for request in requests):
            self._there_is_more.clear()
        else:
            self._there_is_more.set()
        if runs:
            self._start(runs, asked_at)
        return bool(runs)

    async def _claim_suspects(self) -> bool:
        """From one queue after the other, since a group is as large as all slots allow."""
        await self._switches.refresh(max_age_seconds=SWITCHES_SECONDS)
        await self._limits.refresh()
        job_types = self._switches.running(self._registry.job_types)
        logged = self._registry.logging(Event.STARTED)
        paused = self._switches.paused_queues
        if not (group := self._suspects.next_group):
            return False
        self._suspect_turn += 1
        for queue in [one for one in self._slots.queues if one not in paused]:
            turn = self._suspect_turn
            request = self._slots.request_suspects(queue, job_types, logged, group, turn)
            if self.is_held_back or self._is_over:
                break
            if request is None:
                continue
            asked_at = monotonic()
            with self._slots.kept_for([request]):
                runs = await self._claimed(self._limits.applied_to([request]))
            if runs:
                self._start(runs, asked_at)
                return True
        return False

    async def _claimed(self, requests: Sequence[LaneRequest]) -> list[Run]:
        """Without a shielded task for it, which takes two more turns of the loop, and 0.1 ms.

        A claim whose answer was lost may have started runs that nobody has: so it is repeated under
        its own id, which gives just those, until the store answers. A worker that was frozen or cut
        off for longer than its registration lasts registers, at once, and claims again.
        """
        claim_id, wait, registers = new_uuid(), _FIRST_WAIT_SECONDS, False
        task = asyncio.current_task()
        self._claiming.add(task)
        self.is_quiet.clear()
        try:
            while True:
                try:
                    if registers:
                        await self._register()
                    return await self._manager.claim(
                        self._session, claim_id, requests, lease=self._lease
                    )
                except (StoreUnavailable, SessionNotRegistered) as error:
                    if self._is_over:
                        raise
                    has_registered, registers = registers, isinstance(error, SessionNotRegistered)
                    _log.warning("could not claim, trying again: %s", error)
                if registers and not has_registered:
                    continue
                await self._wait_for(self._over, _about(wait))
                wait = min(2 * wait, self._longest_wait().total_seconds())
        finally:
            self._claiming.discard(task)
            if not self._claiming:
                self.is_quiet.set()

    async def _wait_for(self, woken: asyncio.Event, seconds: float) -> None:
        # Not wait_for, which in Python 3.11 can swallow a cancellation that meets the wake-up.
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await woken.wait()


def _about(seconds: float) -> float:
    """So that the workers of a fleet do not all ask at once."""
    return jittered(seconds, by=0.2)

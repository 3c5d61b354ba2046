"""The schedule task: keeps a scheduler looking, as often as there is something to look for."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from gantline.contract.store import JobStore
from gantline.contract.wakeup import Hint, Wakeup
from gantline.manager.manager import JobManager
from gantline.manager.observer import Observer
from gantline.runtime import jittered, monotonic
from gantline.schedules.schedule import Schedule
from gantline.schedules.scheduler import SCHEDULER_LEASE, Look, Scheduler
from gantline.schedules.schedules import Schedules, key_of, synchronise
from gantline.schedules.upkeep import mark_of, settle

_log = logging.getLogger("gantline.scheduler")

# A change by others comes with a hint; this is for hints that are lost, and for clocks that are
# set.
_LONGEST_LOOK_SECONDS: Final = 1.0
_NOTHING_THERE_SECONDS: Final = 15.0
_RETRY_SECONDS: Final = 1.0
_LAST_TIME_SECONDS: Final = 2.0
_SETTLE_EVERY_SECONDS: Final = 60.0


class ScheduleTask:
    """One task a worker. Where there are no schedules, it looks a few times a minute."""

    def __init__(
        self,
        store: JobStore,
        manager: JobManager,
        owner: str,
        *,
        declared: Sequence[Schedule],
        wakeup: Wakeup,
        observer: Observer,
    ) -> None:
        self._store = store
        self._declared = declared
        self._schedules = Schedules(store, manager, changed=lambda: wakeup.notify(Hint.SCHEDULED))
        self._scheduler = Scheduler(store, manager, owner, observer=observer)
        self.mark = mark_of(declared)
        """The same for all workers that declare the same."""
        self._settled_at = 0.0
        self._look = asyncio.Event()
        self._is_stopping = False
        self._task: asyncio.Task[None] | None = None

    @property
    def declared_keys(self) -> tuple[str, ...]:
        return tuple(key_of(one.tenant_id, one.name) for one in self._declared)

    async def begin(self) -> None:
        """Store what code declares, where it is not stored so."""
        await synchronise(self._schedules, self._store, self._declared)
        self._settled_at = monotonic()

    def start(self) -> None:
        self._task = asyncio.create_task(self._look_for_ever())

    def wake(self) -> None:
        """A schedule may have changed."""
        self._look.set()

    async def stop(self) -> None:
        """Finish what is being fired, and let another process fire."""
        self._is_stopping = True
        self.wake()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_LAST_TIME_SECONDS)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        try:
            async with asyncio.timeout(_LAST_TIME_SECONDS):
                await self._scheduler.resign()
        except Exception as error:
            _log.warning("the lead of the schedules was not given back: %s", error)

    async def _look_for_ever(self) -> None:
        while not self._is_stopping:
            self._look.clear()
            try:
                seconds = _rest_seconds(await self._scheduler.run_once())
                await self._settle_now_and_then()
            except Exception as error:
                _log.warning("schedules could not be fired, trying again: %s", error)
                seconds = _RETRY_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._look.wait()

    async def _settle_now_and_then(self) -> None:
        if self._declared and monotonic() - self._settled_at >= _SETTLE_EVERY_SECONDS:
            self._settled_at = monotonic()
            await settle(self._schedules, self._store, self._declared)


def _rest_seconds(look: Look) -> float:
    if look.is_empty:
        return jittered(_NOTHING_THERE_SECONDS)
    if not look.leads:
        return jittered(SCHEDULER_LEASE.total_seconds() / 3)
    if look.wait is None:
        return _LONGEST_LOOK_SECONDS
    return min(look.wait.total_seconds(), _LONGEST_LOOK_SECONDS)

"""The job waiter: waits for jobs to end, for all waiters of a process together.

Workers are asked to notify when they have written endings; their hints make us look at once. Since
a hint may be lost, we also look by ourselves: once a second, more often where no hints come.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final
from uuid import UUID

from gantline.contract.errors import JobNotFound, StoreUnavailable
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.wakeup import Hint, Wakeup
from gantline.wakeups.snapshot_cache import JobGetter

_log = logging.getLogger("gantline.wakeup")

_FIRST_LOOK_SECONDS: Final = 0.02
_LONGEST_LOOK_SECONDS: Final = 0.25
_LONGEST_LOOK_WITH_HINTS_SECONDS: Final = 1.0
# Where hints come in floods, many of them are one look, and looking takes a third of the time.
_SHORTEST_PAUSE_SECONDS: Final = 0.005
_PAUSE_PER_LOOK: Final = 2
_LONGEST_PAUSE_SECONDS: Final = 1.0
_ASK_EVERY_SECONDS: Final = 1.0
# Without hints, waiters are served by polling.
_LISTEN_WITHIN_SECONDS: Final = 1.0
# For the next waiter: to listen anew takes a connection where hints come from a server.
_LISTEN_ON_SECONDS: Final = 10.0


class JobWaiter:
    """Waits for jobs to end, for handles and HTTP requests. One an application, for all its loops.

    Looks at the store only while there are waiters.
    """

    def __init__(
        self,
        reader: JobGetter,
        new_wakeup: Callable[[], Wakeup],
        is_open: Callable[[], bool] = lambda: True,
    ) -> None:
        """While the application is not open, nobody waits."""
        self._make = partial(_LoopWaiter, reader, new_wakeup, is_open)
        self._by_loop: dict[asyncio.AbstractEventLoop, _LoopWaiter] = {}

    async def wait(
        self, job_id: UUID, seconds: float | None, *, is_on_its_way: bool = False
    ) -> JobSnapshot | None:
        """The job once it has ended; as it was last seen, if at all, when the time is up before.

        `is_on_its_way`: it may not be in the store yet; otherwise raise JobNotFound. Raise
        StoreUnavailable when the application is closed meanwhile.
        """
        loop = asyncio.get_running_loop()
        if loop not in self._by_loop:
            for ended in [one for one in list(self._by_loop) if one.is_closed()]:
                self._by_loop.pop(ended, None)
            self._by_loop[loop] = self._make()
        return await self._by_loop[loop].wait(job_id, seconds, is_on_its_way=is_on_its_way)

    def look(self) -> None:
        """Look at once: something has changed that may be an ending."""
        for loop, one in list(self._by_loop.items()):
            with suppress(RuntimeError):  # that loop is closed: nobody waits any more
                loop.call_soon_threadsafe(one.look)

    async def close(self) -> None:
        """Release all waiters."""
        for loop, one in list(self._by_loop.items()):
            if loop is asyncio.get_running_loop():
                await one.close()
            else:
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(one.stop)


class _Waiting:
    """One waiter for one job."""

    def __init__(self, *, is_on_its_way: bool) -> None:
        self.ended: asyncio.Future[JobSnapshot] = asyncio.get_running_loop().create_future()
        self.is_on_its_way = is_on_its_way
        self.seen: JobSnapshot | None = None

    def take(self, job_id: UUID, job: JobSnapshot | None) -> None:
        """Take what was read of the job."""
        if self.ended.done():
            return
        if job is not None:
            self.seen, self.is_on_its_way = job, False
            if job.status.is_terminal:
                self.ended.set_result(job)
        elif not self.is_on_its_way:
            self.ended.set_exception(JobNotFound(job_id))


class _LoopWaiter:
    """Looks for all waiters of one event loop."""

    def __init__(
        self,
        reader: JobGetter,
        new_wakeup: Callable[[], Wakeup],
        is_open: Callable[[], bool],
    ) -> None:
        self._reader = reader
        self._new_wakeup = new_wakeup
        self._is_open = is_open
        self._waiting: dict[UUID, set[_Waiting]] = {}
        self._look = asyncio.Event()
        self._has_heard = False
        self._looking: asyncio.Task[None] | None = None

    async def wait(
        self, job_id: UUID, seconds: float | None, *, is_on_its_way: bool
    ) -> JobSnapshot | None:
        waiting = _Waiting(is_on_its_way=is_on_its_way)
        self._waiting.setdefault(job_id, set()).add(waiting)
        self._look.set()
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_while_waited_for())
        try:
            async with asyncio.timeout(seconds):
                return await waiting.ended
        except TimeoutError:
            return waiting.seen
        finally:
            others = self._waiting[job_id]
            others.discard(waiting)
            if not others:
                del self._waiting[job_id]

    def look(self) -> None:
        self._look.set()

    def stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()

    async def close(self) -> None:
        if (looking := self._looking) is not None:
            self.stop()
            await asyncio.wait([looking])

    async def _look_while_waited_for(self) -> None:
        wakeup = self._new_wakeup()
        try:
            await self._listen(wakeup)
            await self._look_for_endings(wakeup)
        finally:
            self._looking = None  # who comes from now on begins anew
            for waiting in [one for those in self._waiting.values() for one in those]:
                if not waiting.ended.done():
                    waiting.ended.set_exception(
                        StoreUnavailable("The application was closed while a job was waited for.")
                    )
            await wakeup.close()

    async def _listen(self, wakeup: Wakeup) -> None:
        try:
            async with asyncio.timeout(_LISTEN_WITHIN_SECONDS):
                await wakeup.open(self._on_hint)
        except Exception as error:
            _log.warning("no hints about jobs that end, only polling: %r", error)

    async def _look_for_endings(self, wakeup: Wakeup) -> None:
        loop = asyncio.get_running_loop()
        pause, asked_at, leave_at = 0.0, -math.inf, loop.time() + _LISTEN_ON_SECONDS
        while self._is_open() and (self._waiting or loop.time() < leave_at):
            if self._waiting:
                leave_at = loop.time() + _LISTEN_ON_SECONDS
                if not self._has_heard or loop.time() - asked_at >= _ASK_EVERY_SECONDS:
                    wakeup.notify(Hint.WATCHED)
                    asked_at = loop.time()
                pause = self._next_pause(pause)
                self._look.clear()
                await self._look_once()
            else:
                pause = leave_at - loop.time()
                self._look.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._look.wait()

    def _next_pause(self, pause: float) -> float:
        if self._has_heard:
            return _LONGEST_LOOK_WITH_HINTS_SECONDS
        return _FIRST_LOOK_SECONDS if self._look.is_set() else min(2 * pause, _LONGEST_LOOK_SECONDS)

    async def _look_once(self) -> None:
        ids, loop = list(self._waiting), asyncio.get_running_loop()
        began = loop.time()
        try:
            jobs = await self._reader.get(ids, tenant_id=None)
        except Exception as error:
            _log.warning("could not look for jobs that ended, trying again: %s", error)
        else:
            for job_id, job in zip(ids, jobs, strict=True):
                for waiting in self._waiting.get(job_id, ()):
                    waiting.take(job_id, job)
        took = loop.time() - began
        pause = max(_SHORTEST_PAUSE_SECONDS, _PAUSE_PER_LOOK * took)
        await asyncio.sleep(min(pause, _LONGEST_PAUSE_SECONDS))

    def _on_hint(self, hint: Hint) -> None:
        """A job that did not run has ended when it is cancelled."""
        if hint is Hint.ENDED:
            self._has_heard = True
        if hint in (Hint.ENDED, Hint.CANCEL):
            self._look.set()

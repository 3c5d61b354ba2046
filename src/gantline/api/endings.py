"""Endings: waiting for jobs to end, for all waiting requests of a process together.

Workers are asked to tell when they have written endings; their hints make us look at once. Since a
hint may be lost, we also look by ourselves, ever less often.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from uuid import UUID

from gantline.contract.snapshot import JobSnapshot
from gantline.contract.store import JobReader
from gantline.contract.wakeup import Hint, Wakeup

_log = logging.getLogger("gantline.api")

_FIRST_LOOK_SECONDS: Final = 0.02
_LONGEST_LOOK_SECONDS: Final = 1.0
# Where hints come in floods, many of them are one look.
_SHORTEST_PAUSE_SECONDS: Final = 0.005
_ASK_EVERY_SECONDS: Final = 1.0


class Endings:
    """Tell when jobs have ended. Looks at the store only while somebody waits."""

    def __init__(
        self, reader: Callable[[], JobReader], new_wakeup: Callable[[], Wakeup], *, most: int
    ) -> None:
        self._reader = reader
        self._new_wakeup = new_wakeup
        self._most = most
        self._waiting: dict[UUID, set[asyncio.Future[JobSnapshot | None]]] = {}
        self._count = 0
        self._look = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._wakeup: Wakeup | None = None

    async def wait(self, job_id: UUID, seconds: float) -> JobSnapshot | None:
        """The job once it has ended; None when the time is up before, or it is gone."""
        if self._count >= self._most:
            return None
        future: asyncio.Future[JobSnapshot | None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(job_id, set()).add(future)
        self._count += 1
        self._begin_looking()
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            return None
        finally:
            self._count -= 1
            self._forget(job_id, future)

    def look(self) -> None:
        """Look at once: something has changed that may be an ending."""
        self._look.set()

    async def close(self) -> None:
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking
        wakeup, self._wakeup = self._wakeup, None
        if wakeup is not None:
            await wakeup.close()

    def _forget(self, job_id: UUID, future: "asyncio.Future[JobSnapshot | None]") -> None:
        waiting = self._waiting.get(job_id)
        if waiting is not None:
            waiting.discard(future)
            if not waiting:
                del self._waiting[job_id]

    def _begin_looking(self) -> None:
        self._look.set()
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_while_waited_for())

    async def _look_while_waited_for(self) -> None:
        wakeup, loop = await self._opened_wakeup(), asyncio.get_running_loop()
        pause, asked_at = _FIRST_LOOK_SECONDS, -math.inf
        while self._waiting:
            if loop.time() - asked_at >= _ASK_EVERY_SECONDS:
                wakeup.notify(Hint.WATCHED)
                asked_at = loop.time()
            if self._look.is_set():
                self._look.clear()
                pause = _FIRST_LOOK_SECONDS
            await self._look_once()
            await asyncio.sleep(_SHORTEST_PAUSE_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._look.wait()
            pause = min(2 * pause, _LONGEST_LOOK_SECONDS)

    async def _opened_wakeup(self) -> Wakeup:
        if self._wakeup is None:
            self._wakeup = self._new_wakeup()
            await self._wakeup.open(self._on_hint)
        return self._wakeup

    def _on_hint(self, hint: Hint) -> None:
        if hint is Hint.ENDED:
            self._look.set()

    async def _look_once(self) -> None:
        ids = list(self._waiting)
        try:
            jobs = await self._reader().get(ids, tenant_id=None)
        except Exception as error:
            _log.warning("could not look for jobs that ended, trying again: %s", error)
            return
        for job_id, job in zip(ids, jobs, strict=True):
            if job is None or job.status.is_terminal:
                for future in self._waiting.pop(job_id, ()):
                    if not future.done():
                        future.set_result(job)

"""The courier: hints handed in from any thread go out together, once a window at most.

Quiet, a hint goes out at once. Busy, the window bounds what a burst costs the server: on PostgreSQL
every NOTIFY takes a lock at its commit, on which all other notifiers wait.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from uuid import UUID

from gantline.contract.wakeup import Hint

Send = Callable[[Hint, UUID | None], Awaitable[bool]]
"""Gives False where it could not; it does not raise."""


class Courier:
    """Send each hint at most once a window. What cannot be sent is dropped: workers poll."""

    def __init__(self, send: Send, *, window_seconds: float, pause_seconds: float) -> None:
        """After a failure it pauses, so that a broken server is not asked a hundred times a second.

        Belongs to the event loop that makes it.
        """
        self._send = send
        self._window_seconds = window_seconds
        self._pause_seconds = pause_seconds
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._waiting: dict[Hint, UUID | None] = {}
        self._some = asyncio.Event()
        self._sending = asyncio.Lock()

    def take(self, hint: Hint, job_id: UUID | None) -> None:
        """Hand a hint in, from any thread. Only the first of a window costs more than a look."""
        with self._lock:
            is_first = not self._waiting
            self._waiting.setdefault(hint, job_id)
        if is_first:
            with suppress(RuntimeError):  # closed meanwhile
                self._loop.call_soon_threadsafe(self._some.set)

    async def carry_for_ever(self) -> None:
        while True:
            await self._some.wait()
            done = await self.carry()
            await asyncio.sleep(self._window_seconds if done else self._pause_seconds)

    async def carry(self) -> bool:
        """Send what is waiting; tell whether all of it could be sent."""
        async with self._sending:
            self._some.clear()
            with self._lock:
                waiting, self._waiting = self._waiting, {}
            return all([await self._send(hint, job_id) for hint, job_id in waiting.items()])

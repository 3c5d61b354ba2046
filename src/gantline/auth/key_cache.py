"""The key cache: keys as they were read a few seconds ago, so that not every request reads one."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from gantline.auth.api_key import StoredKey
from gantline.contract.clock import Clock

MAX_AGE_SECONDS: Final = 5.0
"""How long a key that another process revoked may still be good here."""
REFUSE_AGE_SECONDS: Final = 0.5
"""How long a secret that another process has just given a key may not be good here yet."""
_MOST: Final = 10_000

Read = Callable[[str], Awaitable[StoredKey | None]]


class KeyCache:
    """Remember keys, and that there is none, for a few seconds; ask once for all who wait.

    What is unknown is remembered like what is known: so the same is asked of the store for both.
    Nothing is told from memory beyond its age, also not while the store cannot be reached.
    """

    def __init__(
        self, read: Read, *, clock: Clock, max_age_seconds: float = MAX_AGE_SECONDS
    ) -> None:
        self._read = read
        self._clock = clock
        self._max_age_seconds = max_age_seconds
        self._kept: OrderedDict[str, tuple[float, StoredKey | None]] = OrderedDict()
        self._reading: dict[str, asyncio.Task[StoredKey | None]] = {}

    async def get(self, key_id: str, *, max_age_seconds: float | None = None) -> StoredKey | None:
        kept = self._kept.get(key_id)
        most = self._max_age_seconds if max_age_seconds is None else max_age_seconds
        # Younger than its age, and not from the future: a clock may have been set.
        if kept and 0 <= self._clock.monotonic() - kept[0] < most:
            self._kept.move_to_end(key_id)
            return kept[1]
        task = self._reading.get(key_id)
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            task = asyncio.ensure_future(self._read_and_keep(key_id))
            # All who waited may have given up: then nobody asks why it failed.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._reading[key_id] = task
        # One who gives up must not take the answer from the others.
        return await asyncio.shield(task)

    def forget(self, key_id: str) -> None:
        """Read it anew next time, also where it is just being read."""
        self._kept.pop(key_id, None)
        self._reading.pop(key_id, None)

    async def _read_and_keep(self, key_id: str) -> StoredKey | None:
        # Before the read: what is changed while we read counts as changed after it.
        read_at = self._clock.monotonic()
        this = asyncio.current_task()
        try:
            stored = await self._read(key_id)
            if self._reading.get(key_id) is this:
                self._keep(key_id, read_at, stored)
            return stored
        finally:
            if self._reading.get(key_id) is this:
                del self._reading[key_id]

    def _keep(self, key_id: str, read_at: float, stored: StoredKey | None) -> None:
        self._kept[key_id] = (read_at, stored)
        self._kept.move_to_end(key_id)
        while len(self._kept) > _MOST:
            self._kept.popitem(last=False)

"""Taking over at once from workers of this host that are known to have ended."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from gantline.contract.store import JobStore
from gantline.manager.observer import Observer
from gantline.manager.reaper import Reaper
from gantline.manager.sessions import store_id, unregister
from gantline.worker.session_lock import SessionLock

_log = logging.getLogger("gantline.worker")

_EVERY_SECONDS: Final = 1.0


class TakeOver:
    """Hold the lock of this session, and look at those of others."""

    def __init__(
        self,
        store: JobStore,
        session_id: str,
        *,
        lease: timedelta,
        observer: Observer,
        runs_ended: Callable[[], None],
    ) -> None:
        """`runs_ended` is called when runs of ended workers were taken away."""
        self._store = store
        self._session_id = session_id
        self._reaper = Reaper(store, lease=lease, observer=observer)
        self._runs_ended = runs_ended
        self._lock: SessionLock | None = None

    async def open(self) -> None:
        if self._store.capabilities.writers != "process":
            self._lock = SessionLock(await store_id(self._store), self._session_id)
            self._lock.take()
            # Before the first claim: what ended the worker before this one is judged by itself.
            await self._take_over(self._lock.ended())

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()

    async def watch_for_ever(self) -> None:
        """Act at the second look: so those that end together are seen together."""
        seen: list[str] = []
        while True:
            await asyncio.sleep(_EVERY_SECONDS)
            try:
                ended = [] if self._lock is None else self._lock.ended()
                if seen:
                    await self._take_over(ended)
                seen = [] if seen else ended
            except Exception as error:
                _log.warning("could not take over from ended workers, trying again: %s", error)

    async def _take_over(self, sessions: Sequence[str]) -> None:
        if not sessions:
            return
        for session in sessions:
            await self._store.expire_session(session)
        reaped = await self._reaper.run_once(sessions)
        for session in sessions:
            await unregister(self._store, session)
            if self._lock is not None:
                self._lock.forget(session)
        if reaped.ended:
            self._runs_ended()

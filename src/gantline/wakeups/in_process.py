"""Wake-ups inside one process, across its event loops."""

import asyncio
from contextlib import suppress
from uuid import UUID

from gantline.contract.wakeup import Hint, OnHint


class Hub:
    """Who listens in this process."""

    def __init__(self) -> None:
        self.listeners: dict[OnHint, asyncio.AbstractEventLoop] = {}


class InProcessWakeup:
    """Call back whoever listens at the same hub."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._own: OnHint | None = None

    async def open(self, on_hint: OnHint | None) -> None:
        if on_hint is not None:
            self._hub.listeners[on_hint] = asyncio.get_running_loop()
            self._own = on_hint

    def notify(self, hint: Hint = Hint.WORK, *, job_id: UUID | None = None) -> None:
        for listener, loop in list(self._hub.listeners.items()):
            with suppress(RuntimeError):  # that loop is closed: nobody listens any more
                loop.call_soon_threadsafe(listener, hint)

    @property
    def is_listening(self) -> bool:
        return False  # never from another host

    async def close(self) -> None:
        if self._own is not None:
            self._hub.listeners.pop(self._own, None)
            self._own = None

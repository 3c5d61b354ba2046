"""Opening once for all callers at the same time, whatever their threads and loops."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future


class Opening:
    """The first caller opens; the others wait for it, and get its error too."""

    def __init__(self, open_it: Callable[[], Awaitable[None]]) -> None:
        self._open_it = open_it
        self._lock = threading.Lock()
        self._under_way: Future[bool] | None = None
        self.is_done = False

    @property
    def is_begun(self) -> bool:
        return self._under_way is not None

    async def done(self) -> None:
        while True:
            with self._lock:
                under_way = self._under_way
                if under_way is None:
                    self._under_way = mine = Future[bool]()
                    # Running, or a waiter that gives up would cancel it for all.
                    mine.set_running_or_notify_cancel()
            if under_way is None:
                await self._open_for_all(mine)
                return
            if await asyncio.wrap_future(under_way):
                return

    async def _open_for_all(self, mine: "Future[bool]") -> None:
        """Open, and notify the waiters; if this caller gives up, one of them opens."""
        try:
            await self._open_it()
        except asyncio.CancelledError:
            self._under_way = None
            mine.set_result(False)
            raise
        except BaseException as error:
            self._under_way = None
            mine.set_exception(error)
            raise
        self.is_done = True
        mine.set_result(True)

    def forget(self) -> None:
        """It is closed now: the next caller opens anew."""
        self._under_way, self.is_done = None, False

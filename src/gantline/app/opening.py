"""Opening and closing one at a time for all callers, whatever their threads and loops."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager


class Opening:
    """The first caller opens; the others wait for it, and get its error too."""

    def __init__(self, open_it: Callable[[], Awaitable[None]]) -> None:
        self._open_it = open_it
        self._lock = threading.Lock()
        self._under_way: Future[bool] | None = None
        """Set while it is opened, is open, or is closed; its result is whether it is open then."""
        self.is_done = False

    async def done(self) -> None:
        while True:
            with self._lock:
                under_way = self._under_way
                if under_way is None:
                    self._under_way = mine = _new()
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

    @asynccontextmanager
    async def undone(self) -> AsyncIterator[bool]:
        """Close it in this block; who opens meanwhile waits for the end, and opens anew.

        Yields whether there is anything to close. `is_done` is for the block to take back.
        """
        mine = _new()
        while self._under_way is not mine:
            with self._lock:
                under_way = self._under_way
                if under_way is not None and (is_open := under_way.done()):
                    self._under_way = mine
            if under_way is None:
                yield False
                return
            if not is_open:  # others are opening or closing it
                await asyncio.gather(asyncio.wrap_future(under_way), return_exceptions=True)
        try:
            yield True
        finally:
            self._under_way, self.is_done = None, False
            mine.set_result(False)


def _new() -> "Future[bool]":
    future = Future[bool]()
    # Running, or a waiter that gives up would cancel it for all.
    future.set_running_or_notify_cancel()
    return future

"""Threads for `def` handlers.

Not a ThreadPoolExecutor: its threads keep the process from ending until every one of them has
returned, and a handler that never returns must not do that.
"""

import asyncio
import contextvars
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final

from gantline.runtime import start_thread

_STOP: Final = None


class _Call:
    """A function to be called in a thread, and where its caller waits for it."""

    __slots__ = ("context", "function", "future")

    def __init__(self, function: Callable[[], Any], future: "asyncio.Future[_Ended]") -> None:
        self.function = function
        self.future = future
        self.context = contextvars.copy_context()


class _Ended:
    """What a call returned or raised. A future cannot carry every exception: not StopIteration."""

    __slots__ = ("error", "value")

    def __init__(self, value: Any, error: BaseException | None) -> None:
        self.value = value
        self.error = error


class HandlerThreads:
    """Threads that are started when needed, used again, and end with the process."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._idle = 0
        self._started = 0

    async def call(self, function: Callable[[], Any]) -> Any:
        """Call a function in a thread. A thread cannot be cancelled: waits whatever happens."""
        loop = asyncio.get_running_loop()
        call = _Call(function, loop.create_future())
        if self._idle > 0:
            self._idle -= 1
        else:
            self._started += 1
            name = f"gantline-job-{self._started}"
            start_thread(lambda: self._serve(loop), name)
        self._calls.put(call)
        ended = await call.future
        if ended.error is not None:
            raise ended.error
        return ended.value

    def close(self) -> None:
        """Let idle threads end; one that runs does when its function has returned."""
        for _ in range(self._started):
            self._calls.put(_STOP)

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        while (call := self._calls.get()) is not _STOP:
            try:
                ended = _Ended(call.context.run(call.function), None)
            except BaseException as error:  # a handler may raise anything, SystemExit included
                ended = _Ended(None, error)
            try:
                loop.call_soon_threadsafe(self._hand_over, call.future, ended)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return
            del call, ended  # an idle thread keeps nothing of the last run alive

    def _hand_over(self, future: "asyncio.Future[_Ended]", ended: _Ended) -> None:
        self._idle += 1
        if not future.done():
            future.set_result(ended)

"""Threads for `def` handlers.

Not a ThreadPoolExecutor: its threads keep the process from ending until every one of them has
returned, and a handler that never returns must not do that.
"""

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, Final

from gantline.runtime import start_thread

_STOP: Final = None

Function = Callable[[], Any]
Call = tuple[Function, "asyncio.Future[Function]"]
"""A function to be called elsewhere, and where its caller waits for what it `ended` with."""


def new_call(function: Function, loop: asyncio.AbstractEventLoop) -> Call:
    return partial(copy_context().run, function), loop.create_future()


def ended(function: Function) -> Function:
    """Call a function; return one that returns or raises the same. A future cannot carry every
    exception: not StopIteration."""
    try:
        value = function()
    except BaseException as error:  # a handler may raise anything, SystemExit included
        return partial(_raise, error)
    return lambda: value


def _raise(error: BaseException) -> None:
    raise error


class HandlerThreads:
    """Threads that are started when needed, used again, and end with the process."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._idle = 0
        self._started = 0

    async def call(self, function: Function) -> Any:
        """Call a function in a thread. A thread cannot be cancelled: waits whatever happens."""
        loop = asyncio.get_running_loop()
        if self._idle > 0:
            self._idle -= 1
        else:
            self._started += 1
            name = f"gantline-job-{self._started}"
            start_thread(lambda: self._serve(loop), name)
        self._calls.put(call := new_call(function, loop))
        return (await call[1])()

    def close(self) -> None:
        """Let idle threads end; one that runs does when its function has returned."""
        for _ in range(self._started):
            self._calls.put(_STOP)

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        while (call := self._calls.get()) is not _STOP:
            try:
                loop.call_soon_threadsafe(self._hand_over, call[1], ended(call[0]))
            except RuntimeError:  # the loop is closed: nobody waits any more
                return
            del call  # an idle thread keeps nothing of the last run alive

    def _hand_over(self, waiting: "asyncio.Future[Function]", end: Function) -> None:
        self._idle += 1
        if not waiting.done():
            waiting.set_result(end)

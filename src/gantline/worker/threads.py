"""Threads for `def` handlers.

Not a ThreadPoolExecutor: its threads keep the process from ending until every one of them has
returned, and a handler that never returns must not do that.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any

from gantline.runtime import Inbox, start_inbox

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
        self._idle: list[Inbox[Call]] = []
        self._threads: list[Inbox[Call]] = []

    async def call(self, function: Function) -> Any:
        """Call a function in a thread. A thread cannot be cancelled: waits whatever happens."""
        loop = asyncio.get_running_loop()
        thread = self._idle.pop() if self._idle else self._start(loop)
        thread.put(call := new_call(function, loop))
        return (await call[1])()

    def close(self) -> None:
        """Let idle threads end; one that runs does when its function has returned."""
        for thread in self._threads:
            thread.end()

    def _start(self, loop: asyncio.AbstractEventLoop) -> Inbox[Call]:
        def serve(calls: list[Call]) -> None:
            for function, waiting in calls:
                end = ended(function)
                with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                    loop.call_soon_threadsafe(self._hand_over, thread, waiting, end)

        thread = start_inbox(serve, name=f"gantline-job-{len(self._threads) + 1}")
        self._threads.append(thread)
        return thread

    def _hand_over(
        self, thread: Inbox[Call], waiting: "asyncio.Future[Function]", end: Function
    ) -> None:
        self._idle.append(thread)
        if not waiting.done():
            waiting.set_result(end)

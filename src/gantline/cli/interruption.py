"""Ctrl-C that is always heard."""

import asyncio
import signal
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

R = TypeVar("R")


def run_interruptible(main: Coroutine[Any, Any, R]) -> R:
    """Run a command's coroutine; a Ctrl-C cancels it, and a second one ends it at once.

    `asyncio.run` alone loses the Ctrl-C that comes just before the loop falls asleep: it gives
    signals no descriptor that would wake the loop, as a handler of the loop's own does.
    """
    interrupted = False

    async def cancelled_by_signal() -> R:
        task, loop = asyncio.create_task(main), asyncio.get_running_loop()

        def cancel() -> None:
            nonlocal interrupted
            interrupted = True
            loop.remove_signal_handler(signal.SIGINT)  # the second one raises where it arrives
            task.cancel()

        if threading.current_thread() is threading.main_thread():  # only it may ask for signals
            loop.add_signal_handler(signal.SIGINT, cancel)
        return await task

    try:
        return asyncio.run(cancelled_by_signal())
    except asyncio.CancelledError:
        if interrupted:
            raise KeyboardInterrupt from None
        raise

"""An event loop in a thread, for callers that have none."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

A = TypeVar("A")


class LoopThread:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="gantline-sync", daemon=True
        )
        self._thread.start()

    def run(self, make: Callable[[], Awaitable[A]]) -> A:
        async def call() -> A:
            return await make()

        running = asyncio.run_coroutine_threadsafe(call(), self._loop)
        try:
            return running.result()
        finally:
            running.cancel()  # where the caller was interrupted; else it is over

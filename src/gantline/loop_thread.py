"""An event loop in a thread, for callers that have none."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import TypeVar

from gantline.runtime import start_thread

A = TypeVar("A")


class LoopThread:
    """Runs coroutines for other threads, until it is stopped."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        # Reentrant: the garbage collector may close something here while the lock is held.
        self._lock = threading.RLock()
        self._is_stopping = False
        self._thread = start_thread(self._serve, "gantline-sync")

    def run(self, make: Callable[[], Awaitable[A]]) -> A:
        """Wait for what `make` makes; who is interrupted while waiting cancels it.

        Raise CancelledError (of concurrent.futures) where the loop is stopped.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError("A call that blocks would wait for its own thread.")
        future = self.start(make)
        try:
            return future.result()
        finally:
            future.cancel()
            del future  # else an error would keep itself alive by its traceback

    def start(self, make: Callable[[], Awaitable[A]]) -> "Future[A]":
        """As `run`, without waiting."""

        async def call() -> A:
            return await make()

        if self._process == os.getpid():  # else this is a copy, made by a fork, without its thread
            with self._lock:
                if not self._is_stopping:
                    return asyncio.run_coroutine_threadsafe(call(), self._loop)
        refused: Future[A] = Future()
        refused.cancel()
        return refused

    def stop(self, last: Callable[[], Awaitable[object]]) -> None:
        """Cancel what runs, run `last`, and end the thread; does not wait for that."""
        if self._process == os.getpid():
            with self._lock:
                self.start(lambda: self._end(last))
                self._is_stopping = True

    def join(self, timeout_seconds: float) -> None:
        """Wait until the thread has ended."""
        self._thread.join(timeout_seconds)

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop):
            self._loop.run_forever()

    async def _end(self, last: Callable[[], Awaitable[object]]) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        try:
            await last()
        finally:
            self._loop.stop()

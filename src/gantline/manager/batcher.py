"""The batcher: items handed in one by one go on together, as many as arrived while one was busy.

Quiet, an item goes on at once; busy, the batches grow by themselves. No timer, no setting.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
A = TypeVar("A")


class Batcher(Generic[T, A]):
    """Give every caller the answer to its own item, or the error of its batch."""

    def __init__(
        self, write: Callable[[list[T]], Awaitable[Sequence[A]]], *, most: int = 500
    ) -> None:
        self._write = write
        self._most = most
        self._waiting: list[tuple[T, asyncio.Future[A]]] = []
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._flushing: asyncio.Task[None] | None = None

    async def add(self, item: T) -> A:
        if not self._quiet.is_set():
            return await self._insert(len(self._waiting), item)
        self._quiet.clear()
        try:
            # Callers that are ready in this turn of the loop join this batch.
            await asyncio.sleep(0)
            if not self._waiting:
                # Alone: without a task, which would take two more turns of the loop, and 0.1 ms.
                (answer,) = await self._write([item])
                return answer
            future = self._insert(0, item)
        finally:
            if self._waiting:
                self._flushing = asyncio.create_task(self._flush())
            else:
                self._quiet.set()
        return await future

    def _insert(self, index: int, item: T) -> asyncio.Future[A]:
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.insert(index, (item, future))
        return future

    async def _flush(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
                await self._hand_on(batch)
        finally:
            self._flushing = None
            self._quiet.set()

    async def _hand_on(self, batch: list[tuple[T, asyncio.Future[A]]]) -> None:
        try:
            answers = await self._write([item for item, _ in batch])
        except BaseException as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():  # else its caller was cancelled
                future.set_result(answer)

    async def drained(self) -> None:
        """Wait until all that was handed in has been answered."""
        while not self._quiet.is_set():
            await self._quiet.wait()

"""The completer: writes what follows from ended runs, many at a time, and persistently.

Quiet, an ended run is written at once; busy, the batches grow by themselves.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from gantline.contract.errors import StoreUnavailable
from gantline.manager.manager import Ending, JobManager, Settled
from gantline.runtime import monotonic

_log = logging.getLogger("gantline.worker")

_MOST_AT_ONCE: Final = 500
_FIRST_WAIT_SECONDS: Final = 0.05
_LONGEST_WAIT_SECONDS: Final = 2.0

OnWritten = Callable[[Sequence[tuple[Ending, Settled | None]]], None]
"""Called with what the store said; None when it refused."""


class Completer:
    """Settle runs. A store that is away is asked again until it answers: what was done is kept."""

    def __init__(self, manager: JobManager, *, on_written: OnWritten, most_unwritten: int) -> None:
        self._manager = manager
        self._on_written = on_written
        self._most_unwritten = most_unwritten
        self._unwritten = 0
        self.keeps_up = asyncio.Event()
        """Cleared while too many ends wait to be written. A crash would run all of them again."""
        self.keeps_up.set()
        self._lagging_since: float | None = None
        self._waiting: list[Ending] = []
        self._flushing: asyncio.Task[None] | None = None

    def add(self, ending: Ending) -> None:
        """Hand an ended run in; `on_written` is called when it is written."""
        self._waiting.append(ending)
        self._unwritten += 1
        if self._unwritten >= self._most_unwritten and self.keeps_up.is_set():
            self.keeps_up.clear()
            self._lagging_since = monotonic()
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())

    @property
    def lagging_since(self) -> float | None:
        """Since when too many ends wait to be written, on the monotonic clock."""
        return self._lagging_since

    async def drained(self) -> None:
        """Wait until all that was handed in is written."""
        while self._flushing is not None:
            await asyncio.shield(self._flushing)

    async def give_up(self) -> int:
        """Write nothing more; return how many ends are not written, as far as is known."""
        if self._flushing is not None:
            self._flushing.cancel()
            await asyncio.gather(self._flushing, return_exceptions=True)
        return self._unwritten

    async def _flush(self) -> None:
        # Runs that end in this turn of the loop join this batch.
        await asyncio.sleep(0)
        while self._waiting:
            batch = self._waiting[:_MOST_AT_ONCE]
            self._waiting = self._waiting[_MOST_AT_ONCE:]
            try:
                settled = await self._manager.settle(batch)
            except Exception as error:
                _log.warning("could not settle %d runs, trying again: %s", len(batch), error)
                await asyncio.gather(*(self._persist(ending) for ending in batch))
            else:
                self._report(list(zip(batch, settled, strict=True)))
        self._flushing = None

    def _report(self, answers: Sequence[tuple[Ending, Settled | None]]) -> None:
        self._unwritten -= len(answers)
        if self._unwritten < self._most_unwritten:
            self.keeps_up.set()
            self._lagging_since = None
        self._on_written(answers)

    async def _persist(self, ending: Ending) -> None:
        """Alone, so that another run's trouble is not this one's."""
        wait = _FIRST_WAIT_SECONDS
        answer: Settled | None = None
        while answer is None:
            try:
                answer = (await self._manager.settle([ending]))[0]
            except StoreUnavailable as error:
                _log.warning("could not settle a run, trying again: %s", error)
                await asyncio.sleep(wait)
                wait = min(2 * wait, _LONGEST_WAIT_SECONDS)
            except Exception:
                _log.exception("the store refuses to settle job %s", ending.run.job.job_id)
                break
        self._report([(ending, answer)])

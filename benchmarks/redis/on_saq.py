"""SAQ. What a dead worker had is run again if the job may be tried again, so it is told to: at
least once then, at most once by default."""

from importlib import import_module
from typing import Any, Final

from benchmarks.contest import contender
from benchmarks.contest.meter import INVOICE

_OPTIONS: Final = {"retries": 3, "ttl": -1}


class Contender(contender.Contender):
    """With uvloop, and without results."""

    def __init__(self, url: str, *, more_types: int = 0) -> None:
        super().__init__(url, more_types=more_types)
        self.loop_factory = contender.uvloop()

    async def open(self) -> None:
        self._queue: Any = import_module("saq").Queue.from_url(self.url)
        await self._queue.connect()

    async def submit(self) -> None:
        await self._queue.enqueue("no_op", invoice=INVOICE, **_OPTIONS)

    async def submit_moment(self, submitted_ns: int) -> None:
        await self._queue.enqueue("timed", submitted_ns=submitted_ns, **_OPTIONS)

    async def work(self, slots: int) -> None:
        async def no_op(context: Any, *, invoice: dict[str, Any]) -> None:
            self.note_done()

        async def timed(context: Any, *, submitted_ns: int) -> None:
            self.note_delay(submitted_ns)

        functions = [("no_op", no_op), ("timed", timed)]
        await import_module("saq").Worker(self._queue, functions, concurrency=slots).start()

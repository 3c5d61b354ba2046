"""dramatiq with its default middleware. It acknowledges when a job has ended: at least once."""

import asyncio
from importlib import import_module
from typing import Any

from benchmarks.contest import contender
from benchmarks.contest.meter import INVOICE


class Contender(contender.Contender):
    """In threads, as its worker processes run jobs; eight of them are its default."""

    is_blocking = True

    def __init__(self, url: str, *, more_types: int = 0) -> None:
        super().__init__(url, more_types=more_types)
        self._module: Any = import_module("dramatiq")
        self._broker = import_module("dramatiq.brokers.redis").RedisBroker(url=url)

        @self._module.actor(broker=self._broker, actor_name="no_op")  # type: ignore[untyped-decorator]  # read without its types
        def no_op(invoice: dict[str, Any]) -> None:
            self.note_done()

        @self._module.actor(broker=self._broker, actor_name="timed")  # type: ignore[untyped-decorator]  # read without its types
        def timed(submitted_ns: int) -> None:
            self.note_delay(submitted_ns)

        self._no_op: Any = no_op
        self._timed: Any = timed

    async def submit(self) -> None:
        self._no_op.send(INVOICE)

    async def submit_moment(self, submitted_ns: int) -> None:
        self._timed.send(submitted_ns)

    async def work(self, slots: int) -> None:
        self._module.Worker(self._broker, worker_threads=slots).start()
        await asyncio.Event().wait()

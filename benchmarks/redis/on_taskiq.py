"""taskiq on streams, which acknowledge when a job has ended: at least once (its lists are not)."""

from importlib import import_module
from typing import Any

from benchmarks.contest import contender
from benchmarks.contest.meter import INVOICE


class Contender(contender.Contender):
    """With uvloop, and as many jobs read at once as run at once."""

    def __init__(self, url: str, *, more_types: int = 0) -> None:
        super().__init__(url, more_types=more_types)
        self.loop_factory = contender.uvloop()
        broker = import_module("taskiq_redis").RedisStreamBroker
        self._broker: Any = broker(url, xread_count=200, consumer_id="0")

        @self._broker.task(task_name="no_op")  # type: ignore[untyped-decorator]  # read without its types
        async def no_op(invoice: dict[str, Any]) -> None:
            self.note_done()

        @self._broker.task(task_name="timed")  # type: ignore[untyped-decorator]  # read without its types
        async def timed(submitted_ns: int) -> None:
            self.note_delay(submitted_ns)

        self._no_op: Any = no_op
        self._timed: Any = timed

    async def open(self) -> None:
        await self._broker.startup()

    async def submit(self) -> None:
        await self._no_op.kiq(INVOICE)

    async def submit_moment(self, submitted_ns: int) -> None:
        await self._timed.kiq(submitted_ns)

    async def work(self, slots: int) -> None:
        run = import_module("taskiq.api").run_receiver_task
        await run(self._broker, max_async_tasks=slots, max_prefetch=slots)

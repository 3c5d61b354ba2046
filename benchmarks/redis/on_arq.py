"""arq. A job leaves its queue when it has ended: at least once."""

from importlib import import_module
from typing import Any, Final

from benchmarks.contest import contender
from benchmarks.contest.meter import INVOICE

# Its default of half a second is what a job then waits for.
_POLL_SECONDS: Final = 0.01


class Contender(contender.Contender):
    """With uvloop, and without results."""

    def __init__(self, url: str, *, more_types: int = 0) -> None:
        super().__init__(url, more_types=more_types)
        self.loop_factory = contender.uvloop()
        self._settings = import_module("arq.connections").RedisSettings.from_dsn(url)

    async def open(self) -> None:
        self._redis: Any = await import_module("arq").create_pool(self._settings)

    async def submit(self) -> None:
        await self._redis.enqueue_job("no_op", INVOICE)

    async def submit_moment(self, submitted_ns: int) -> None:
        await self._redis.enqueue_job("timed", submitted_ns)

    async def work(self, slots: int) -> None:
        async def no_op(context: Any, invoice: dict[str, Any]) -> None:
            self.note_done()

        async def timed(context: Any, submitted_ns: int) -> None:
            self.note_delay(submitted_ns)

        module = import_module("arq.worker")
        worker = module.Worker(
            [module.func(no_op, name="no_op"), module.func(timed, name="timed")],
            redis_pool=self._redis,
            max_jobs=slots,
            poll_delay=_POLL_SECONDS,
            keep_result=0,
            handle_signals=False,
        )
        await worker.async_run()

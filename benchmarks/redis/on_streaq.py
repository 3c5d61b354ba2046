"""streaq on streams, which acknowledge when a job has ended: at least once."""

from importlib import import_module
from typing import Any, Final

from benchmarks.contest import contender
from benchmarks.contest.meter import INVOICE

_AT_ONCE: Final = 1_000


class Contender(contender.Contender):
    """With uvloop, and without results or a line in the log for each job."""

    def __init__(self, url: str, *, more_types: int = 0) -> None:
        super().__init__(url, more_types=more_types)
        self.loop_factory = contender.uvloop()

    async def open(self) -> None:
        """Open what submits; a worker opens its own."""
        self._client: Any = self._worker(concurrency=1)
        await self._client.__aenter__()

    def _worker(self, *, concurrency: int) -> Any:
        worker = import_module("streaq").Worker(
            redis_url=self.url, concurrency=concurrency, handle_signals=False
        )

        @worker.task(name="no_op", ttl=0, silent=True)  # type: ignore[untyped-decorator]  # read without its types
        async def no_op(invoice: dict[str, Any]) -> None:
            self.note_done()

        @worker.task(name="timed", ttl=0, silent=True)  # type: ignore[untyped-decorator]  # read without its types
        async def timed(submitted_ns: int) -> None:
            self.note_delay(submitted_ns)

        return worker

    def _job(self, name: str, *arguments: object) -> Any:
        return self._client.registry[name].enqueue(*arguments)

    async def submit(self) -> None:
        await self._job("no_op", INVOICE)

    async def submit_many(self, jobs: int) -> None:
        for some in contender.portions(jobs, _AT_ONCE):
            await self._client.enqueue_many([self._job("no_op", INVOICE) for _ in range(some)])

    async def submit_moment(self, submitted_ns: int) -> None:
        await self._job("timed", submitted_ns)

    async def work(self, slots: int) -> None:
        await self._worker(concurrency=slots).run_async()

"""PgQueuer: so many of an entrypoint at once. Of keys it knows nothing."""

from datetime import timedelta
from importlib import import_module
from typing import Any, Final

from benchmarks.contest import contender
from benchmarks.flow.player import Player, Shape

_BATCH: Final = 200
_AT_ONCE: Final = 1_000


class FlowPlayer(Player):
    def __init__(self, url: str, shape: Shape) -> None:
        super().__init__(url, shape)
        self.loop_factory = contender.uvloop()

    async def make(self) -> None:
        await self.open()
        await self._queries.install()

    async def open(self) -> None:
        connection = await import_module("asyncpg").connect(self.url)
        self._driver: Any = import_module("pgqueuer.db").AsyncpgDriver(connection)
        self._queries: Any = import_module("pgqueuer.queries").Queries(self._driver)

    async def fill(self, jobs: int) -> None:
        for some in contender.portions(jobs, _AT_ONCE):
            await self._queries.enqueue(["flow"] * some, [b""] * some, [0] * some)

    async def work(self, slots: int) -> None:
        queue = import_module("pgqueuer").PgQueuer(self._driver)
        limit = self.shape.running_in_all

        @queue.entrypoint("flow", concurrency_limit=limit)  # type: ignore[untyped-decorator]  # read without its types
        async def flow(job: Any) -> None:
            await self.handle("")

        # More than are at work at once would be picked and held back.
        await queue.run(batch_size=min(_BATCH, slots), dequeue_timeout=timedelta(seconds=0.1))

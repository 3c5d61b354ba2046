"""PgQueuer with asyncpg and uvloop; batches of 200 are three times as fast as its default of 10."""

import json
from datetime import timedelta
from importlib import import_module
from typing import Any, Final

from benchmarks.contest import contender
from benchmarks.contest.meter import INVOICE

_BATCH: Final = 200
_PAYLOAD: Final = json.dumps(INVOICE).encode()
# It enqueues through one statement, whatever the number; more at once is not faster.
_AT_ONCE: Final = 1_000


class Contender(contender.Contender):
    """Its payload is bytes, and the no-op job does not decode them."""

    def __init__(self, url: str, *, more_types: int = 0) -> None:
        super().__init__(url, more_types=more_types)
        self.loop_factory = contender.uvloop()

    async def make(self) -> None:
        await self.open()
        await self._queries.install()

    async def open(self) -> None:
        connection = await import_module("asyncpg").connect(self.url)
        self._driver: Any = import_module("pgqueuer.db").AsyncpgDriver(connection)
        self._queries: Any = import_module("pgqueuer.queries").Queries(self._driver)

    async def submit(self) -> None:
        await self._queries.enqueue("no_op", _PAYLOAD)

    async def submit_many(self, jobs: int) -> None:
        for some in contender.portions(jobs, _AT_ONCE):
            await self._queries.enqueue(["no_op"] * some, [_PAYLOAD] * some, [0] * some)

    async def submit_moment(self, submitted_ns: int) -> None:
        await self._queries.enqueue("timed", str(submitted_ns).encode())

    async def work(self, slots: int) -> None:
        queue = import_module("pgqueuer").PgQueuer(self._driver)

        @queue.entrypoint("no_op")  # type: ignore[untyped-decorator]  # read without its types
        async def no_op(job: Any) -> None:
            self.note_done()

        @queue.entrypoint("timed")  # type: ignore[untyped-decorator]  # read without its types
        async def timed(job: Any) -> None:
            self.note_delay(int(job.payload))

        await queue.run(batch_size=_BATCH, dequeue_timeout=timedelta(seconds=30))

"""PgQueuer with asyncpg and uvloop; batches of 200 are three times as fast as its default of 10."""

import asyncio
import json
import time
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from typing import Any, Final

from benchmarks.worker.meter import INVOICE

_BATCH: Final = 200
_PAYLOAD: Final = json.dumps(INVOICE).encode()
# It enqueues through one statement, whatever the number; more at once is not faster.
_AT_ONCE: Final = 1_000


class Contender:
    """See `contender.Contender`. Its payload is bytes, and the no-op job does not decode them."""

    def __init__(self, url: str, *, more_types: int) -> None:
        assert not more_types
        self.delays_ns: list[int] = []
        self.loop_factory: Callable[[], asyncio.AbstractEventLoop] = import_module(
            "uvloop"
        ).new_event_loop
        self._url = url
        self._done = 0

    def done(self) -> int:
        return self._done

    async def make(self) -> None:
        await self.open()
        await self._queries.install()

    async def open(self) -> None:
        connection = await import_module("asyncpg").connect(self._url)
        self._driver: Any = import_module("pgqueuer.db").AsyncpgDriver(connection)
        self._queries: Any = import_module("pgqueuer.queries").Queries(self._driver)

    async def submit(self) -> None:
        await self._queries.enqueue("no_op", _PAYLOAD)

    async def submit_many(self, jobs: int) -> None:
        for start in range(0, jobs, _AT_ONCE):
            some = min(_AT_ONCE, jobs - start)
            await self._queries.enqueue(["no_op"] * some, [_PAYLOAD] * some, [0] * some)

    async def submit_timed(self, jobs: int) -> None:
        payloads = [str(time.time_ns()).encode()] * jobs
        await self._queries.enqueue(["timed"] * jobs, payloads, [0] * jobs)

    async def work(self, slots: int) -> None:
        queue = import_module("pgqueuer").PgQueuer(self._driver)

        @queue.entrypoint("no_op")  # type: ignore[untyped-decorator]  # read without its types
        async def no_op(job: Any) -> None:
            self._done += 1

        @queue.entrypoint("timed")  # type: ignore[untyped-decorator]  # read without its types
        async def timed(job: Any) -> None:
            self.delays_ns.append(time.time_ns() - int(job.payload))

        await queue.run(batch_size=_BATCH, dequeue_timeout=timedelta(seconds=30))

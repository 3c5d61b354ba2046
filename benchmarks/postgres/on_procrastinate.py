"""Procrastinate with psycopg; it fetches jobs one by one."""

import time
from importlib import import_module
from typing import Any, Final

from benchmarks.worker.meter import INVOICE

_CONNECTIONS: Final = 20
_AT_ONCE: Final = 1_000


class Contender:
    """See `contender.Contender`."""

    loop_factory = None

    def __init__(self, url: str, *, more_types: int) -> None:
        assert not more_types
        self.delays_ns: list[int] = []
        self._done = 0
        module: Any = import_module("procrastinate")
        connector = module.PsycopgConnector(conninfo=url, min_size=1, max_size=_CONNECTIONS)
        self._app = module.App(connector=connector)

        @self._app.task(name="no_op")  # type: ignore[untyped-decorator]  # read without its types
        async def no_op(invoice: dict[str, Any]) -> None:
            self._done += 1

        @self._app.task(name="timed")  # type: ignore[untyped-decorator]  # read without its types
        async def timed(submitted_ns: int) -> None:
            self.delays_ns.append(time.time_ns() - submitted_ns)

        self._no_op: Any = no_op
        self._timed: Any = timed

    def done(self) -> int:
        return self._done

    async def make(self) -> None:
        await self.open()
        await self._app.schema_manager.apply_schema_async()

    async def open(self) -> None:
        await self._app.open_async()

    async def submit(self) -> None:
        await self._no_op.defer_async(invoice=INVOICE)

    async def submit_many(self, jobs: int) -> None:
        for start in range(0, jobs, _AT_ONCE):
            some = min(_AT_ONCE, jobs - start)
            await self._no_op.batch_defer_async(*[{"invoice": INVOICE}] * some)

    async def submit_timed(self, jobs: int) -> None:
        for _ in range(jobs):
            await self._timed.defer_async(submitted_ns=time.time_ns())

    async def work(self, slots: int) -> None:
        await self._app.run_worker_async(concurrency=slots, install_signal_handlers=False)

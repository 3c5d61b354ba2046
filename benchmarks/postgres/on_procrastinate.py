"""Procrastinate with psycopg; it fetches jobs one by one."""

from importlib import import_module
from typing import Any, Final

from benchmarks.contest import contender
from benchmarks.contest.meter import INVOICE

_CONNECTIONS: Final = 20
_AT_ONCE: Final = 1_000


class Contender(contender.Contender):
    """With its own connector and pool."""

    def __init__(self, url: str, *, more_types: int = 0) -> None:
        super().__init__(url, more_types=more_types)
        module: Any = import_module("procrastinate")
        connector = module.PsycopgConnector(conninfo=url, min_size=1, max_size=_CONNECTIONS)
        self._app = module.App(connector=connector)

        @self._app.task(name="no_op")  # type: ignore[untyped-decorator]  # read without its types
        async def no_op(invoice: dict[str, Any]) -> None:
            self.note_done()

        @self._app.task(name="timed")  # type: ignore[untyped-decorator]  # read without its types
        async def timed(submitted_ns: int) -> None:
            self.note_delay(submitted_ns)

        self._no_op: Any = no_op
        self._timed: Any = timed

    async def make(self) -> None:
        await self.open()
        await self._app.schema_manager.apply_schema_async()

    async def open(self) -> None:
        await self._app.open_async()

    async def submit(self) -> None:
        await self._no_op.defer_async(invoice=INVOICE)

    async def submit_many(self, jobs: int) -> None:
        for some in contender.portions(jobs, _AT_ONCE):
            await self._no_op.batch_defer_async(*[{"invoice": INVOICE}] * some)

    async def submit_moment(self, submitted_ns: int) -> None:
        await self._timed.defer_async(submitted_ns=submitted_ns)

    async def work(self, slots: int) -> None:
        await self._app.run_worker_async(concurrency=slots, install_signal_handlers=False)

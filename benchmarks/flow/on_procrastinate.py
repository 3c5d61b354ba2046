"""Procrastinate: one at a time of each lock. It has no other limit over all workers."""

from importlib import import_module
from typing import Any, Final

from benchmarks.contest import contender
from benchmarks.flow.player import Player, Shape

_CONNECTIONS: Final = 20
_AT_ONCE: Final = 100


class FlowPlayer(Player):
    def __init__(self, url: str, shape: Shape) -> None:
        super().__init__(url, shape)
        module: Any = import_module("procrastinate")
        connector = module.PsycopgConnector(conninfo=url, min_size=1, max_size=_CONNECTIONS)
        self._app = module.App(connector=connector)

        @self._app.task(name="flow")  # type: ignore[untyped-decorator]  # read without its types
        async def flow(key: str) -> None:
            await self.handle(key)

        self._flow: Any = flow

    async def make(self) -> None:
        await self.open()
        await self._app.schema_manager.apply_schema_async()

    async def open(self) -> None:
        await self._app.open_async()

    async def fill(self, jobs: int) -> None:
        """A lock is of one deferrer, which defers jobs that are alike; so each key is a batch."""
        of_key: dict[str, int] = {}
        for key in self.shape.keys_of(jobs):
            of_key[key] = of_key.get(key, 0) + 1
        while of_key:
            for key, left in list(of_key.items()):
                some = min(left, max(1, _AT_ONCE // len(of_key)))
                deferrer = self._flow.configure(lock=key)
                for portion in contender.portions(some, _AT_ONCE):
                    await deferrer.batch_defer_async(*[{"key": key}] * portion)
                if left == some:
                    del of_key[key]
                else:
                    of_key[key] = left - some

    async def work(self, slots: int) -> None:
        await self._app.run_worker_async(concurrency=slots, install_signal_handlers=False)

"""DBOS: a queue with a limit over all executors, of all its workflows or of each partition."""

import asyncio
import os
from importlib import import_module
from typing import Any, Final

from benchmarks.flow.player import Player, Shape

# It looks once a second by default, which for one at a time is one a second.
_LOOKS_SECONDS: Final = 0.02
_QUEUE: Final = "flow"
_CALLERS: Final = 10


class FlowPlayer(Player):
    def __init__(self, url: str, shape: Shape) -> None:
        super().__init__(url, shape)
        self._dbos: Any = import_module("dbos")

    async def make(self) -> None:
        await self._launch()

    async def open(self) -> None:
        """Launched, it would run what is submitted."""

    async def _launch(self) -> None:
        dbos = self._dbos
        dbos.DBOS(
            config={
                "name": "flow",
                "system_database_url": self.url,
                "application_version": "1",
                "executor_id": f"executor-{os.getpid()}",
                "log_level": "ERROR",
            }
        )

        @dbos.DBOS.workflow(name="flow")  # type: ignore[untyped-decorator]  # read without its types
        async def flow(key: str) -> None:
            await self.handle(key)

        self._flow: Any = flow
        await asyncio.to_thread(dbos.DBOS.launch)
        shape = self.shape
        await dbos.DBOS.register_queue_async(
            _QUEUE,
            global_concurrency=shape.running_in_all or None,
            partition_concurrency=shape.running or None,
            polling_interval_sec=_LOOKS_SECONDS,
            on_conflict="always_update",
        )

    async def fill(self, jobs: int) -> None:
        client = self._dbos.DBOSClient(system_database_url=self.url, application_name="flow")
        keys = self.shape.keys_of(jobs)

        async def call() -> None:
            for key in keys:
                options: dict[str, Any] = {"workflow_name": "flow", "queue_name": _QUEUE}
                if key:
                    options["queue_partition_key"] = key
                await client.enqueue_async(options, key)

        await asyncio.gather(*(call() for _ in range(_CALLERS)))

    async def work(self, slots: int) -> None:
        await self._launch()
        await asyncio.Event().wait()

"""Gantline, with its defaults; on whichever store the URL names."""

from typing import Any, Final

import msgspec

from benchmarks.contest.contender import portions
from benchmarks.flow.player import Player, Shape
from gantline import Gantline, Limit
from gantline.cli.process import fastest_loop, relax_collector
from gantline.flow.limit import rate_text
from gantline.worker.settings import WorkerSettings
from gantline.worker.worker import Worker

TYPE: Final = "flow"
_AT_ONCE: Final = 5_000
_NOTE: Final = "x" * 130


class Payload(msgspec.Struct):
    """As large as that of the other benchmarks."""

    key: str
    note: str = _NOTE


class FlowPlayer(Player):
    def __init__(self, url: str, shape: Shape) -> None:
        super().__init__(url, shape)
        self.loop_factory = fastest_loop()
        self.app = Gantline(url)
        self._worker: Worker | None = None

        async def flow(payload: Payload) -> None:
            await self.handle(payload.key)

        options: dict[str, Any] = {"group": "{key}"} if shape.keys else {}
        self._flow = self.app.job(TYPE, limits=_limits(shape), **options)(flow)

    def done(self) -> int:
        return self._worker.counts["completed"] if self._worker else 0

    async def open(self) -> None:
        await self.app.open()

    async def make(self) -> None:
        await self.open()

    async def fill(self, jobs: int) -> None:
        keys = list(self.shape.keys_of(jobs))
        first = 0
        for some in portions(jobs, _AT_ONCE):
            await self._flow.submit_many([Payload(key) for key in keys[first : first + some]])
            first += some

    async def work(self, slots: int) -> None:
        relax_collector()  # as `gantline worker` does
        async with self.app.working(WorkerSettings(queues={"default": slots})) as self._worker:
            await self._worker.run()


def _limits(shape: Shape) -> list[Limit] | None:
    found = []
    if shape.running:
        found.append(Limit(running=shape.running))
    if shape.running_in_all:
        found.append(Limit(running=shape.running_in_all, per="type"))
    if shape.per_second:
        found.append(Limit(rate=rate_text(shape.per_second), burst=shape.burst))
    return found or None

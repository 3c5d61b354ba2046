"""Gantline, with its defaults."""

import time
from typing import Any, Final

from benchmarks.contest import contender
from benchmarks.contest.meter import INVOICE
from gantline import Gantline
from gantline.cli.process import fastest_loop, relax_collector
from gantline.worker.settings import WorkerSettings
from gantline.worker.worker import Worker

NO_OP: Final = "no_op"


def type_names(types: int) -> tuple[str, ...]:
    return tuple(f"type-{number:04}" for number in range(types))


class Contender(contender.Contender):
    """On whichever store the URL names."""

    def __init__(self, url: str, *, more_types: int = 0) -> None:
        super().__init__(url)
        self.loop_factory = fastest_loop()
        self.app = Gantline(url)
        self._worker: Worker | None = None

        async def timed(submitted_ns: int) -> None:
            self.note_delay(submitted_ns)

        self._no_op = self.app.job(NO_OP)(no_op)
        self._timed = self.app.job("timed")(timed)
        for name in type_names(more_types):
            self.app.job(name)(no_op)

    def done(self) -> int:
        return self._worker.counts["completed"] if self._worker else 0

    async def make(self) -> None:
        await self.open()

    async def open(self) -> None:
        await self.app.open()

    async def submit(self) -> None:
        await self._no_op.submit(INVOICE)

    async def submit_many(self, jobs: int) -> None:
        await self._no_op.submit_many([INVOICE] * jobs)

    async def submit_timed(self, jobs: int) -> None:
        if jobs == 1:
            await super().submit_timed(jobs)
        else:
            await self._timed.submit_many([time.time_ns()] * jobs)

    async def submit_moment(self, submitted_ns: int) -> None:
        await self._timed.submit(submitted_ns)

    async def work(self, slots: int) -> None:
        relax_collector()  # as `gantline worker` does
        async with self.app.working(WorkerSettings(queues={"default": slots})) as self._worker:
            await self._worker.run()


async def no_op(invoice: dict[str, Any]) -> None:
    pass

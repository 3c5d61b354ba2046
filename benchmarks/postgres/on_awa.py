"""awa, whose core is Rust."""

import asyncio
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from benchmarks.contest import contender
from benchmarks.contest.meter import INVOICE

_AT_ONCE: Final = 5_000


@dataclass
class NoOp:
    """The payload of the job that does nothing."""

    invoice: int
    customer: str
    lines: list[int]
    note: str


@dataclass
class Timed:
    """The payload of the job that notes its delay."""

    submitted_ns: int


class Contender(contender.Contender):
    """awa as its documentation starts it."""

    def __init__(self, url: str, *, more_types: int = 0) -> None:
        super().__init__(url, more_types=more_types)
        self._payload = NoOp(**INVOICE)  # type: ignore[arg-type]  # the fields are those of INVOICE

    async def make(self) -> None:
        await self.open()
        await self._client.migrate()
        await self._client.install_queue_storage()

    async def open(self) -> None:
        self._client: Any = import_module("awa").AsyncClient(self.url)

    async def submit(self) -> None:
        await self._client.insert(self._payload)

    async def submit_many(self, jobs: int) -> None:
        for some in contender.portions(jobs, _AT_ONCE):
            await self._client.enqueue_many_copy([self._payload] * some)

    async def submit_moment(self, submitted_ns: int) -> None:
        await self._client.insert(Timed(submitted_ns))

    async def work(self, slots: int) -> None:
        @self._client.task(NoOp)  # type: ignore[untyped-decorator]  # read without its types
        async def no_op(job: Any) -> None:
            self.note_done()

        @self._client.task(Timed)  # type: ignore[untyped-decorator]  # read without its types
        async def timed(job: Any) -> None:
            self.note_delay(job.args.submitted_ns)

        await self._client.start([("default", slots)])
        await asyncio.Event().wait()

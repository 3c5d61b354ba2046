"""awa, whose core is Rust."""

import asyncio
import time
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from benchmarks.worker.meter import INVOICE

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


class Contender:
    """See `contender.Contender`."""

    loop_factory = None

    def __init__(self, url: str, *, more_types: int) -> None:
        assert not more_types
        self.delays_ns: list[int] = []
        self._url = url
        self._done = 0
        self._payload = NoOp(**INVOICE)  # type: ignore[arg-type]  # the fields are those of INVOICE

    def done(self) -> int:
        return self._done

    async def make(self) -> None:
        await self.open()
        await self._client.migrate()
        await self._client.install_queue_storage()

    async def open(self) -> None:
        self._client: Any = import_module("awa").AsyncClient(self._url)

    async def submit(self) -> None:
        await self._client.insert(self._payload)

    async def submit_many(self, jobs: int) -> None:
        for start in range(0, jobs, _AT_ONCE):
            some = min(_AT_ONCE, jobs - start)
            await self._client.enqueue_many_copy([self._payload] * some)

    async def submit_timed(self, jobs: int) -> None:
        for _ in range(jobs):
            await self._client.insert(Timed(time.time_ns()))

    async def work(self, slots: int) -> None:
        @self._client.task(NoOp)  # type: ignore[untyped-decorator]  # read without its types
        async def no_op(job: Any) -> None:
            self._done += 1

        @self._client.task(Timed)  # type: ignore[untyped-decorator]  # read without its types
        async def timed(job: Any) -> None:
            self.delays_ns.append(time.time_ns() - job.args.submitted_ns)

        await self._client.start([("default", slots)])
        await asyncio.Event().wait()

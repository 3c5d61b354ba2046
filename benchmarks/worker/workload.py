"""The jobs that a worker is measured with, and the application that declares them."""

import asyncio
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from gantline import Gantline, JobType

HANDLER_SECONDS: Final = 0.02

Invoice = dict[str, Any]


class Workload(NamedTuple):
    """An application, and its job types by where they run."""

    app: Gantline
    loop: JobType[[Invoice], None]
    thread: JobType[[Invoice], None]
    process: JobType[[Invoice], None]
    sleeping: JobType[[Invoice], None]
    timed: JobType[[int], None]
    busy: "BusyTime"
    delays_ns: list[int]


def open_workload(path: Path) -> Workload:
    """Declare everything on one SQLite file, with full sync and history: the defaults."""
    app = Gantline(f"sqlite:///{path}")
    busy = BusyTime()
    delays_ns: list[int] = []

    async def sleeping(invoice: Invoice) -> None:
        busy.add(1)
        await asyncio.sleep(HANDLER_SECONDS)
        busy.add(-1)

    async def timed(submitted_ns: int) -> None:
        delays_ns.append(time.time_ns() - submitted_ns)

    return Workload(
        app,
        loop=app.job("loop")(no_op),
        thread=app.job("thread")(no_op_in_thread),
        process=app.job("process", run_in="process")(no_op_in_process),
        sleeping=app.job("sleeping")(sleeping),
        timed=app.job("timed")(timed),
        busy=busy,
        delays_ns=delays_ns,
    )


async def no_op(invoice: Invoice) -> None:
    pass


def no_op_in_thread(invoice: Invoice) -> None:
    pass


def no_op_in_process(invoice: Invoice) -> None:
    pass


class BusyTime:
    """How long handlers have been running, added up over all of them."""

    def __init__(self) -> None:
        self._running = 0
        self._seconds = 0.0
        self._changed_at = time.perf_counter()

    def add(self, handlers: int) -> None:
        self.seconds()
        self._running += handlers

    def seconds(self) -> float:
        now = time.perf_counter()
        self._seconds += self._running * (now - self._changed_at)
        self._changed_at = now
        return self._seconds

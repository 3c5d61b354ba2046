"""Six workers with limits, and what is done to them and to their server."""

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.chaos.flow_app import FOLDER_VARIABLE
from tests.chaos.flow_tables import Tables
from tests.judging import history_in
from tests.worker_process import WorkerProcess

APP: Final = "tests.chaos.flow_app:jobs"
LEASE_SECONDS: Final = 3.0
SEED: Final = 36
WORKERS: Final = 6
SLOTS: Final = 50


class Plan(NamedTuple):
    """For how long faults are made, and how far they are apart."""

    seconds: float
    apart: float

    @property
    def faults(self) -> Iterator[str]:
        """At first one of each kind."""
        yield from ("freeze", "kill", "kill two", "freeze", "restart")
        chance = random.Random(SEED)
        while True:
            yield chance.choice(("kill", "kill", "freeze", "freeze", "kill two", "restart"))


class Fleet:
    """Workers that are started again when they end, and what is done to them."""

    def __init__(self, tables: Tables, folder: Path) -> None:
        self.tables = tables
        self.journals = folder / "journals"
        self.journals.mkdir()
        self.done: Counter[str] = Counter()
        self.killed: dict[int, float] = {}
        """When which process was killed, by the clock of the host."""
        self._chance = random.Random(SEED)
        self._freezing: set[asyncio.Task[None]] = set()
        self._frozen: set[WorkerProcess] = set()
        environment: Any = {
            FOLDER_VARIABLE: str(self.journals),
            "GANTLINE_HISTORY": str(history_in(folder)),
        }
        self._workers = [
            WorkerProcess(
                APP,
                tables.url,
                folder / f"worker-{number}.log",
                *("-q", f"default:{SLOTS}"),
                lease_seconds=LEASE_SECONDS,
                **environment,
            )
            for number in range(WORKERS)
        ]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for worker in self._workers:
                await stack.enter_async_context(worker.kept_running())
            for worker in self._workers:
                await worker.is_ready()
            yield

    async def suffer(self, plan: Plan) -> None:
        """Make faults for as long as the plan says, and wait for those that last."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + plan.seconds
        for fault in plan.faults:
            await asyncio.sleep(plan.apart)
            if loop.time() > ends_at:
                break
            await self._make(fault)
        if self._freezing:
            await asyncio.gather(*self._freezing)

    async def _make(self, fault: str) -> None:
        if fault == "restart" and not self.tables.restarts:
            fault = "kill all"
        self.done[fault] += 1
        match fault:
            case "restart":
                hard = bool(self.done[fault] % 2)
                await asyncio.to_thread(lambda: self.tables.restart(hard=hard))
            case "freeze":
                freezing = asyncio.create_task(self._freeze())
                self._freezing.add(freezing)
                freezing.add_done_callback(self._freezing.discard)
            case _:
                killed = {"kill": 1, "kill two": 2, "kill all": WORKERS}[fault]
                for worker in self._chance.sample(self._at_work(least=killed), killed):
                    if worker.is_running:
                        self.killed[worker.process.pid] = time.time()
                        worker.process.kill()

    async def _freeze(self) -> None:
        """Until others have taken its runs over; then its handlers go on, and end."""
        worker = self._chance.choice(self._at_work(least=1))
        process = worker.process
        self._frozen.add(worker)
        try:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(2 * LEASE_SECONDS)
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
        finally:
            self._frozen.discard(worker)

    def _at_work(self, *, least: int) -> list[WorkerProcess]:
        """Those that have begun to run jobs and are not frozen; all where these are too few."""
        found = [
            worker
            for worker in self._workers
            if worker not in self._frozen
            and worker.is_running
            and (self.journals / f"{worker.process.pid}.journal").exists()
        ]
        return found if len(found) >= least else self._workers

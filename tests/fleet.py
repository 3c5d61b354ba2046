"""Worker processes that are started anew when they were killed."""

import asyncio
import random
import signal
import sys
from datetime import timedelta
from pathlib import Path

from gantline.contract.clock import SystemClock
from gantline.contract.job import DEFAULT_QUEUE
from gantline.stores import store_from_url
from gantline.testing.factories import JOB_TYPE
from gantline.testing.liveness import watching
from tests.judging import judge
from tests.killed_worker import LEASE

# All processes may be killed or frozen at once: a lease, a freeze of two more, and a new start.
ENDS_WITHIN = 3 * LEASE + timedelta(seconds=10)


class Fleet:
    """Runs processes on one store until its work is done, and kills some of them on the way."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._number = 0
        self._kills_left = 0
        self._freezes_left = 0
        self.killed = 0
        self.frozen = 0
        self.journals: list[Path] = []

    async def run(self, *, processes: int, kills: int, freezes: int = 0) -> None:
        """Jobs must end all the while, whatever is done to the processes and the server."""
        self._kills_left, self._freezes_left = kills, freezes
        store = store_from_url(self._url, clock=SystemClock())
        await store.open()
        try:
            async with watching(
                store, within=ENDS_WITHIN, backlog=True, lanes=[(DEFAULT_QUEUE, JOB_TYPE)]
            ) as oracle:
                await asyncio.gather(*(self._keep_one_running() for _ in range(processes)))
            await judge(store, self._folder)
        finally:
            await store.close()
        oracle.check()

    async def _keep_one_running(self) -> None:
        """Run workers in one place, one after the other, until one ends by itself."""
        while True:
            process = await self._start()
            is_done = asyncio.create_task(process.wait())
            # Most are killed at work, some while they start.
            if random.random() < 0.8 and process.stdout is not None:
                await process.stdout.readline()
            await asyncio.wait({is_done}, timeout=random.uniform(0.1, 1.5))
            if process.returncode is None and self._freezes_left > 0 and random.random() < 0.5:
                self._freezes_left -= 1
                await self._freeze(process)
            if process.returncode is None and self._kills_left > 0:
                self._kills_left -= 1
                process.kill()
                self.killed += 1
                await is_done
                continue
            assert await is_done == 0
            return

    async def _freeze(self, process: asyncio.subprocess.Process) -> None:
        """Until others have taken its runs over: what it still says of them must be refused."""
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(2 * LEASE.total_seconds())
        process.send_signal(signal.SIGCONT)
        self.frozen += 1
        await asyncio.sleep(0.2)

    async def _start(self) -> asyncio.subprocess.Process:
        self._number += 1
        session = f"worker-{self._number}"
        journal = self._folder / f"{session}.journal"
        self.journals.append(journal)
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.killed_worker", self._url, session, str(journal)),
            stdout=asyncio.subprocess.PIPE,
        )

    def accepted(self) -> list[str]:
        """The tokens of all runs that some process was told were accepted."""
        return self._told("accepted")

    def refused(self) -> list[str]:
        """The tokens of those that had been taken over by others."""
        return self._told("refused")

    def _told(self, answer: str) -> list[str]:
        return [
            line.removeprefix(f"{answer} ")
            for journal in self.journals
            if journal.exists()
            for line in journal.read_text().splitlines()
            if line.startswith(f"{answer} ")
        ]

"""`gantline worker` in a process of its own, which a test may kill, freeze and start again."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from gantline.testing.readiness import Readiness, of_port
from tests.servers.api import REPOSITORY
from tests.servers.postgres import free_port

_START_SECONDS: Final = 60
_STOP_SECONDS: Final = 60


class WorkerProcess:
    """One worker, on the same health port however often it is started."""

    def __init__(
        self,
        app: str,
        url: str,
        log: Path,
        *options: str,
        lease_seconds: float | None = None,
        within: tuple[str, ...] = (),
        **environment: str,
    ) -> None:
        """The lease is the default one unless given. `within` is a program that starts it."""
        self.port = free_port()
        self._is_elsewhere = bool(within)
        self._log = log
        self._command = [
            *(*within, sys.executable, "-m", "gantline.cli.main", "worker", app),
            *("--health", f"127.0.0.1:{self.port}", *options),
        ]
        paths = [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
        self._environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "GANTLINE_STORE": url,
            **({} if lease_seconds is None else {"GANTLINE_LEASE_SECONDS": str(lease_seconds)}),
            **environment,
        }
        self._process: asyncio.subprocess.Process | None = None
        self._is_kept = False
        self.starts = 0

    @property
    def readiness(self) -> Readiness:
        return of_port(self.port)

    @property
    def process(self) -> asyncio.subprocess.Process:
        assert self._process is not None, "it was never started"
        return self._process

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def is_gone(self) -> bool:
        """It has ended, and nothing is about to start it again."""
        return not self._is_kept and not self.is_running

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    async def start(self) -> None:
        self.starts += 1
        with self._log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, env=self._environment, stdout=output, stderr=output
            )

    async def is_ready(self) -> None:
        """Wait until it says so."""
        async with asyncio.timeout(_START_SECONDS):
            while not (check := await self.readiness()).ok:
                assert not self.is_gone, f"{check.message} {self.log[-2000:]}"
                await asyncio.sleep(0.05)

    async def kill(self) -> None:
        if self.is_running:
            self.process.kill()
        await self.process.wait()

    async def stop(self) -> int:
        """Have it drain; killed where it does not end. Returns its exit code."""
        if self._is_elsewhere:  # what started it passes no signal on
            await self.kill()
        if self.is_running:
            with suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
                self.process.terminate()
            try:
                async with asyncio.timeout(_STOP_SECONDS):
                    await self.process.wait()
            except TimeoutError:
                self.process.kill()
        return await self.process.wait()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["WorkerProcess"]:
        await self.start()
        try:
            yield self
        finally:
            await self.stop()

    @asynccontextmanager
    async def kept_running(self) -> AsyncIterator["WorkerProcess"]:
        """Start it again at once whenever it ends, as a supervisor without patience does."""
        await self.start()
        self._is_kept = True
        keeping = asyncio.create_task(self._keep_running())
        try:
            yield self
        finally:
            self._is_kept = False
            keeping.cancel()
            await asyncio.wait({keeping})
            await self.stop()

    async def _keep_running(self) -> None:
        while True:
            await self.process.wait()
            await self.start()

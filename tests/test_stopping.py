"""A stop takes the drain and a few seconds, whatever the store, a handler or its children do."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from uuid import uuid4

import pytest

from gantline import JobType
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.stopping_app import Files, block, fork, hold, jobs

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(240)]

DRAIN_SECONDS = 2
A_FEW_SECONDS = 10
WITHOUT_THE_STORE = "stopping without it; runs left to their leases: "


class WorkerProcess:
    """A running worker and what it says."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def said(self) -> str:
        return self._log.read_text()

    async def until_it_says(self, text: str) -> None:
        async with asyncio.timeout(60):
            while text not in self.said:  # noqa: ASYNC110  # in another process
                await asyncio.sleep(0.02)

    async def exit_code(self, *, within: float) -> int:
        began = monotonic()
        try:
            async with asyncio.timeout(150):
                code = await self.process.wait()
        except TimeoutError:
            pytest.fail(f"it still runs:\n{self.said}")
        took = monotonic() - began
        assert took < within, f"it took {took:.1f} s:\n{self.said}"
        return code


@asynccontextmanager
async def worker(
    folder: Path, url: str, *options: str, drain: float = DRAIN_SECONDS
) -> AsyncIterator[WorkerProcess]:
    log = folder / "worker.log"
    command = [sys.executable, "-m", "gantline.cli.main", "worker", "tests.stopping_app:jobs"]
    environment = os.environ | {"GANTLINE_STORE": url, "GANTLINE_POLL_SECONDS": "0.1"}
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(*command, "--drain", str(drain), *options),
            env=environment,
            stdout=output,
            stderr=output,
        )
    running = WorkerProcess(process, log)
    try:
        await running.until_it_says("Working on")
        yield running
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


class Begun:
    """A job whose handler runs."""

    def __init__(self, folder: Path) -> None:
        self.files = Files(str(folder / "begun"), str(folder / "may_end"))

    async def run(self, job: JobType[[Files], None]) -> int:
        """Submit a job and wait until it runs; the number of the process that it runs in."""
        await job.submit(self.files)
        async with asyncio.timeout(60):
            while not (text := _text(Path(self.files.begun))):  # noqa: ASYNC110  # elsewhere
                await asyncio.sleep(0.02)
        return int(text)

    def let_end(self) -> None:
        Path(self.files.may_end).touch()


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@pytest.fixture
def begun(tmp_path: Path) -> Begun:
    return Begun(tmp_path)


@pytest.fixture(params=["postgres", pytest.param("redis", marks=pytest.mark.wide)])
def frozen_later(request: pytest.FixtureRequest) -> Iterator[PostgresServer | RedisServer]:
    server = PostgresServer() if request.param == "postgres" else RedisServer()
    yield server
    server.resume()
    server.stop()


def url_of(server: PostgresServer | RedisServer) -> str:
    name = f"w{uuid4().hex}"
    return (
        server.url(schema=name) if isinstance(server, PostgresServer) else server.url(prefix=name)
    )


@pytest.mark.parametrize(
    "what",
    [
        *(pytest.param(what, marks=pytest.mark.wide) for what in ("opening", "idle")),
        *("running", "ended"),
    ],
)
async def test_a_stop_without_the_store_takes_the_drain_and_a_few_seconds(
    tmp_path: Path, begun: Begun, frozen_later: PostgresServer | RedisServer, what: str
) -> None:
    url = url_of(frozen_later)
    jobs.move_to(url)
    async with worker(tmp_path, url) as running:
        if what == "idle":
            await running.until_it_says("completed in")
        elif what != "opening":
            async with jobs:
                await begun.run(hold)
        frozen_later.pause()
        if what == "ended":
            begun.let_end()
        running.process.terminate()
        assert await running.exit_code(within=DRAIN_SECONDS + A_FEW_SECONDS) == 0
    assert "Stopped." in running.said
    assert running.said.count(WITHOUT_THE_STORE) == 1
    if what in ("running", "ended"):
        assert f"{WITHOUT_THE_STORE}0" not in running.said


async def test_a_second_signal_does_not_wait_for_the_store(
    tmp_path: Path, begun: Begun, frozen_later: PostgresServer | RedisServer
) -> None:
    url = url_of(frozen_later)
    jobs.move_to(url)
    async with worker(tmp_path, url, drain=120) as running:
        async with jobs:
            await begun.run(hold)
        frozen_later.pause()
        running.process.terminate()
        await running.until_it_says("waiting up to 120 s for 1 running job; press Ctrl-C again")
        running.process.send_signal(signal.SIGINT)
        assert await running.exit_code(within=A_FEW_SECONDS) == 130


async def test_a_second_signal_ends_a_worker_whose_loop_is_blocked(
    tmp_path: Path, begun: Begun
) -> None:
    url = f"sqlite:///{tmp_path}/gantline.db"
    jobs.move_to(url)
    async with jobs, worker(tmp_path, url, drain=120) as running:
        await begun.run(block)
        running.process.terminate()
        running.process.send_signal(signal.SIGINT)
        assert await running.exit_code(within=A_FEW_SECONDS) == 130


async def test_a_second_signal_kills_all_that_a_handlers_process_has_started(
    tmp_path: Path, begun: Begun
) -> None:
    url = f"sqlite:///{tmp_path}/gantline.db"
    jobs.move_to(url)
    async with jobs, worker(tmp_path, url, drain=120) as running:
        pid = await begun.run(fork)
        running.process.terminate()
        running.process.send_signal(signal.SIGINT)
        assert await running.exit_code(within=A_FEW_SECONDS) == 130
    async with asyncio.timeout(5):
        while _state(pid) not in ("", "Z"):  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(0.01)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""

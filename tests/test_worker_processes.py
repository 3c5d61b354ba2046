"""Worker processes that are stopped, blocked, killed and drained, as an operator would see them."""

import asyncio
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from uuid import uuid4

import pytest

from gantline import Handle, JobStatus
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.status import Event
from gantline.worker.lease_keeper import EXIT_LOOP_BLOCKED
from tests.chaos_app import block_the_loop, hold, innocent, jobs, killer
from tests.servers.postgres import PostgresServer

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(120)]


class Place:
    """One database, our own application on it, and worker processes."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self._count = 0

    @asynccontextmanager
    async def worker(
        self, *options: str, lease_seconds: float = 1
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        self._count += 1
        log = self.folder / f"worker-{self._count}.log"
        environment = os.environ | {
            "GANTLINE_STORE": self.url,
            "GANTLINE_LEASE_SECONDS": str(lease_seconds),
            "GANTLINE_POLL_SECONDS": "0.1",
        }
        command = [sys.executable, "-m", "gantline.cli.main", "worker", "tests.chaos_app:jobs"]
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *command, *options, env=environment, stdout=output, stderr=output
            )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
                await process.wait()

    async def freeze(self, process: asyncio.subprocess.Process) -> None:
        """Stop a process between two writes: within one it would keep the file locked for all."""
        while True:
            process.send_signal(signal.SIGSTOP)
            await asyncio.to_thread(os.waitid, os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            if self._is_unlocked():
                return
            process.send_signal(signal.SIGCONT)
            await asyncio.sleep(0)

    def _is_unlocked(self) -> bool:
        path = self.folder / "gantline.db"
        with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            connection.execute("ROLLBACK")
            return True

    def log(self, number: int) -> str:
        return (self.folder / f"worker-{number}.log").read_text()


@pytest.fixture(params=["sqlite", "postgres"])
async def place(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/gantline.db"
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.url(schema=f"w{uuid4().hex}")
    place = Place(tmp_path, url)
    jobs.move_to(place.url)
    async with jobs:
        yield place


async def until(handle: Handle[int], reached: Callable[[JobSnapshot], bool]) -> JobSnapshot:
    async with asyncio.timeout(60):
        while not reached(job := await handle.status()):  # noqa: ASYNC110  # in another process
            await asyncio.sleep(0.02)
    return job


async def test_a_worker_that_wakes_after_its_job_was_taken_over_cannot_change_it(
    place: Place,
) -> None:
    flag = place.folder / "flag"
    handle = await hold.submit(str(flag))
    async with place.worker() as frozen:
        await until(handle, lambda job: job.status is JobStatus.RUNNING)
        await place.freeze(frozen)
        async with place.worker():
            await until(handle, lambda job: job.fence == 2 and job.run is not None)
            frozen.send_signal(signal.SIGCONT)
            async with asyncio.timeout(20):
                while "is discarded" not in place.log(1):  # noqa: ASYNC110  # in another process
                    await asyncio.sleep(0.05)
            assert (await handle.status()).fence == 2
            flag.touch()
            assert await handle.result(timeout=20) == 2
    rows = await jobs.store.history(handle.job_id, tenant_id=None)
    assert [row.event for row in rows] == [Event.CRASHED, Event.COMPLETED]


async def test_a_worker_whose_loop_is_blocked_for_a_lease_exits_with_stacks(place: Place) -> None:
    handle = await block_the_loop.submit(30.0)
    async with place.worker() as blocked:
        async with asyncio.timeout(30):
            assert await blocked.wait() == EXIT_LOOP_BLOCKED
    assert "block_the_loop" in place.log(1)
    assert "stood still for a whole lease" in place.log(1)
    async with place.worker():
        assert await handle.result(timeout=30) == 2
    job = await handle.status()
    assert (job.attempt, job.crashes) == (1, 1)


@pytest.mark.wide
async def test_of_one_killer_and_99_innocents_only_the_killer_is_poisoned(place: Place) -> None:
    innocents = await innocent.submit_many([0.05] * 50)
    guilty = await killer.submit(1)
    innocents += await innocent.submit_many([0.05] * 49)
    async with place.worker("--processes", "2"):
        async with asyncio.timeout(100):
            for handle in [*innocents, guilty]:
                await handle.wait()
    job = await guilty.status()
    assert job.status is JobStatus.POISONED
    assert job.crashes <= 10, "ten slots are halved four times, then three crashes alone"
    for handle in innocents:
        job = await handle.status()
        assert (job.status, job.attempt) == (JobStatus.COMPLETED, 1)
    assert "ended with -9" in place.log(1)


async def test_a_drain_under_load_loses_nothing_and_burns_no_attempt(place: Place) -> None:
    short, long = [0.01] * 60, [600.0] * 140
    handles = await innocent.submit_many(short + long)
    async with place.worker("-q", "default:20", "--drain", "0.1", lease_seconds=60) as process:
        for handle in handles[:60]:
            await handle.wait(timeout=60)
        process.terminate()
        async with asyncio.timeout(20):
            assert await process.wait() == 0
    seen = [await handle.status() for handle in handles]
    expected = [JobStatus.COMPLETED] * len(short) + [JobStatus.QUEUED] * len(long)
    assert [job.status for job in seen] == expected
    for job in seen:
        assert job.attempt == (1 if job.status is JobStatus.COMPLETED else 0)
        assert job.crashes == 0


async def test_a_second_signal_stops_at_once(place: Place) -> None:
    handle = await hold.submit(str(place.folder / "never"))
    async with place.worker(lease_seconds=60) as process:
        await until(handle, lambda job: job.status is JobStatus.RUNNING)
        process.terminate()
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(20):
            assert await process.wait() == 130
    job = await handle.status()
    assert (job.status, job.attempt) == (JobStatus.QUEUED, 0)

"""How soon the jobs of a killed worker are begun again, and that a living one keeps its lease."""

import asyncio
import math
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

import pytest

from gantline import Handle, JobStatus
from gantline.testing.liveness import watching
from tests.journal import JournalledRun
from tests.other_host import OtherHost, other_host, why_impossible
from tests.proof import DEFAULT_LEASE_SECONDS, Proof, proof_on, say, until
from tests.proof_app import hold, jobs
from tests.servers.gate import gate_to
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.worker_process import WorkerProcess

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(3600)]

ON_THIS_HOST_SECONDS: Final = 10.0
ELSEWHERE_SECONDS: Final = DEFAULT_LEASE_SECONDS + 5
STARTS_WITHIN: Final = timedelta(seconds=5)
_LAST_PID: Final = Path("/proc/sys/kernel/ns_last_pid")

on_each_store = pytest.mark.parametrize(
    ("kind", "kills"),
    [
        pytest.param("sqlite", 2, id="sqlite"),
        pytest.param("postgres", 2, id="postgres", marks=pytest.mark.wide),
        pytest.param("redis", 2, id="redis", marks=pytest.mark.wide),
        *(
            pytest.param(kind, 50, id=f"{kind}-often", marks=pytest.mark.chaos)
            for kind in ("sqlite", "postgres", "redis")
        ),
    ],
)
on_each_server = pytest.mark.parametrize("kind", ["postgres", "redis"])


def url_of(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    if kind == "sqlite":
        return f"sqlite:///{folder}/gantline.db"
    server: PostgresServer | RedisServer = request.getfixturevalue(kind)
    return server.url(**_place_in(server))


def _place_in(server: PostgresServer | RedisServer) -> dict[str, str]:
    name = f"w{uuid4().hex}"
    return {"schema": name} if isinstance(server, PostgresServer) else {"prefix": name}


class Holding:
    """A job that runs until the test lets it end."""

    def __init__(self, proof: Proof, handle: Handle[None], flag: Path) -> None:
        self._proof = proof
        self._handle = handle
        self._flag = flag

    @classmethod
    async def begun(cls, proof: Proof) -> "Holding":
        """Submit it, and wait until it runs."""
        flag = proof.folder / f"flag-{uuid4().hex}"
        holding = cls(proof, await hold.submit(str(flag)), flag)
        await holding.run(1, seconds=30)
        return holding

    @property
    def job_id(self) -> UUID:
        return self._handle.job_id

    async def run(self, number: int, *, seconds: float) -> JournalledRun:
        """Wait until its handler has begun so often; the newest run."""
        journal, job_id = self._proof.journal, self._handle.job_id
        await until(
            lambda: len(journal.of(job_id)) >= number,
            seconds=seconds,
            what=f"run {number} of the job has begun",
        )
        return journal.of(job_id)[number - 1]

    async def taken_over_after(self, killed_at: float, *, within: float) -> float:
        return (await self.run(2, seconds=within + 60)).began - killed_at

    async def end(self) -> None:
        self._flag.touch()
        assert (await self._handle.wait(timeout=60)).status is JobStatus.COMPLETED

    async def lease_until(self) -> datetime | None:
        """Of its first run, as long as that is the current one."""
        job = await self._handle.status()
        return job.run.lease_until if job.run is not None and job.fence == 1 else None

    async def started_at(self) -> datetime:
        job = await self._handle.status()
        assert job.run is not None
        return job.run.started_at


def p99(values: list[float]) -> float:
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


@on_each_store
async def test_on_the_same_host_a_killed_workers_job_is_begun_again_within_ten_seconds(
    kind: str, kills: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with proof_on(url_of(kind, request, tmp_path), tmp_path) as proof:
        workers = {name: proof.worker(name) for name in ("one", "other")}
        seconds: list[float] = []
        async with workers["one"].kept_running(), workers["other"].kept_running():
            readiness = [worker.readiness for worker in workers.values()]
            async with watching(jobs.store, readiness=readiness, within=STARTS_WITHIN) as oracle:
                for _ in range(kills):
                    for worker in workers.values():
                        await worker.is_ready()
                    holding = await Holding.begun(proof)
                    run = await holding.run(1, seconds=1)
                    killed_at = time.monotonic()
                    workers[run.worker].process.kill()
                    within = ON_THIS_HOST_SECONDS
                    seconds.append(await holding.taken_over_after(killed_at, within=within))
                    await holding.end()
        say(f"{kills} kills: p50 {sorted(seconds)[kills // 2]:.1f} s, p99 {p99(seconds):.1f} s")
        assert p99(seconds) <= ON_THIS_HOST_SECONDS
        assert {job.status for job in await proof.every_job()} == {JobStatus.COMPLETED}
        oracle.check()


@pytest.mark.skipif(not os.access(_LAST_PID, os.W_OK), reason="process ids cannot be chosen here")
@pytest.mark.wide
async def test_another_process_with_the_id_of_a_killed_worker_is_not_taken_for_it(
    tmp_path: Path,
) -> None:
    async with proof_on(f"sqlite:///{tmp_path}/gantline.db", tmp_path) as proof:
        victim, successor = proof.worker("victim"), proof.worker("successor")
        async with victim.running():
            holding = await Holding.begun(proof)
            async with successor.running():
                await successor.is_ready()
                killed_at = time.monotonic()
                await victim.kill()
                with _process_with_id(victim.process.pid):
                    within = ON_THIS_HOST_SECONDS
                    taken = await holding.taken_over_after(killed_at, within=within)
                await holding.end()
        assert taken <= ON_THIS_HOST_SECONDS


@contextmanager
def _process_with_id(pid: int) -> Iterator[None]:
    """Start processes until one has this id; others start some too, so it may take a few."""
    for _ in range(200):
        _LAST_PID.write_text(str(pid - 1))
        process = subprocess.Popen(["sleep", "600"])
        try:
            if process.pid == pid:
                yield
                return
        finally:
            process.kill()
            process.wait()
    raise AssertionError(f"no process got the id {pid}")


@on_each_server
@pytest.mark.parametrize(
    "lease_seconds",
    [
        pytest.param(4.0, id="short", marks=pytest.mark.chaos),
        pytest.param(None, id="default", marks=pytest.mark.chaos),
    ],
)
async def test_a_frozen_worker_keeps_its_whole_lease(
    kind: str, lease_seconds: float | None, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with proof_on(url_of(kind, request, tmp_path), tmp_path) as proof:
        frozen = proof.worker("frozen", lease_seconds=lease_seconds)
        successor = proof.worker("successor", lease_seconds=lease_seconds)
        async with frozen.running():
            holding = await Holding.begun(proof)
            async with successor.running():
                await successor.is_ready()
                frozen.process.send_signal(signal.SIGSTOP)
                await _keeps_its_lease(holding, lease_seconds or DEFAULT_LEASE_SECONDS)
                frozen.process.send_signal(signal.SIGCONT)
                await holding.end()


async def _keeps_its_lease(holding: Holding, lease_seconds: float) -> None:
    """Its last renewal may still be under way when the process stands still."""
    lease_until = await holding.lease_until()
    assert lease_until is not None
    async with asyncio.timeout(lease_seconds + 60):
        while (newer := await holding.lease_until()) is not None:
            lease_until = newer
            await asyncio.sleep(0.05)
    await holding.run(2, seconds=60)
    assert await holding.started_at() >= lease_until


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[OtherHost]:
    if reason := why_impossible():
        pytest.skip(reason)
    with other_host(tmp_path) as host:
        yield host


@on_each_server
@pytest.mark.parametrize(
    "kills", [pytest.param(1, marks=pytest.mark.wide), pytest.param(50, marks=pytest.mark.chaos)]
)
async def test_on_another_host_it_is_begun_again_within_the_lease_and_five_seconds(
    kind: str,
    kills: int,
    tmp_path: Path,
    elsewhere: OtherHost,
    request: pytest.FixtureRequest,
) -> None:
    server: PostgresServer | RedisServer = request.getfixturevalue(kind)
    place = _place_in(server)
    seconds: list[float] = []
    async with (
        gate_to(server, host=elsewhere.outside) as gate,
        proof_on(server.url(**place), tmp_path) as proof,
    ):
        far = proof.worker("far", url=gate.url(**place), within=elsewhere.command)
        near = proof.worker("near")
        for _ in range(kills):
            async with far.running():
                holding = await Holding.begun(proof)
                async with near.running():
                    await near.is_ready()
                    killed_at = time.monotonic()
                    await far.kill()
                    within = ELSEWHERE_SECONDS
                    seconds.append(await holding.taken_over_after(killed_at, within=within))
                    await holding.end()
        say(f"{kills} kills: p50 {sorted(seconds)[kills // 2]:.1f} s, p99 {p99(seconds):.1f} s")
        assert p99(seconds) <= ELSEWHERE_SECONDS
        assert {job.status for job in await proof.every_job()} == {JobStatus.COMPLETED}


@on_each_server
@pytest.mark.chaos
async def test_a_frozen_worker_of_another_host_keeps_its_whole_lease(
    kind: str, tmp_path: Path, elsewhere: OtherHost, request: pytest.FixtureRequest
) -> None:
    """Its process id means nothing here, and its locks cannot be seen."""
    server: PostgresServer | RedisServer = request.getfixturevalue(kind)
    place = _place_in(server)
    async with (
        gate_to(server, host=elsewhere.outside) as gate,
        proof_on(server.url(**place), tmp_path) as proof,
    ):
        url, lease = gate.url(**place), 4.0
        far = proof.worker("far", url=url, within=elsewhere.command, lease_seconds=lease)
        near = proof.worker("near", lease_seconds=lease)
        async with far.running():
            holding = await Holding.begun(proof)
            async with near.running():
                await near.is_ready()
                with _frozen(far):
                    await _keeps_its_lease(holding, lease)
                await holding.end()


@contextmanager
def _frozen(far: WorkerProcess) -> Iterator[None]:
    inner = OtherHost.process_in(far.process.pid)
    os.kill(inner, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(inner, signal.SIGCONT)

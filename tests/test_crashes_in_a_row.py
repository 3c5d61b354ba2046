"""A full worker is killed several times in a row, and its server stands still for longer than a
lease: nobody is blamed but the one job that kills, and the work is done in time."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import pytest

from gantline import JobStatus
from gantline.contract.errors import StoreUnavailable
from gantline.contract.status import Event
from gantline.testing.liveness import watching
from tests.proof import DEFAULT_LEASE_SECONDS, Proof, proof_on, say, until
from tests.proof_app import jobs, killer, work
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.worker_process import WorkerProcess

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(1800)]


class Plan(NamedTuple):
    """How much is done, and what is done to it."""

    slots: int
    jobs: int
    seconds: float
    kills: int
    freezes: int
    lease_seconds: float | None

    @property
    def lease(self) -> float:
        return self.lease_seconds or DEFAULT_LEASE_SECONDS

    @property
    def work_seconds(self) -> float:
        return self.jobs * self.seconds / self.slots

    def drains_within(self, faults: int) -> float:
        return 1.5 * self.work_seconds + faults * (self.lease + 5)


SHORT = Plan(slots=50, jobs=200, seconds=2.0, kills=2, freezes=1, lease_seconds=3)
LONG = Plan(slots=200, jobs=1000, seconds=20.0, kills=5, freezes=4, lease_seconds=None)


@pytest.fixture(params=["postgres", "redis"])
def own_server(request: pytest.FixtureRequest) -> Iterator[PostgresServer | RedisServer]:
    """One that may stand still."""
    server = PostgresServer() if request.param == "postgres" else RedisServer()
    yield server
    server.resume()
    server.stop()


class Replaced:
    """A worker that is started again whenever it ends; what ran in it at its end is kept."""

    def __init__(self, proof: Proof, worker: WorkerProcess) -> None:
        self._proof = proof
        self.worker = worker
        self.ended_with: list[set[UUID]] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self.worker.start()
        replacing = asyncio.create_task(self._replace())
        try:
            yield
        finally:
            replacing.cancel()
            await asyncio.wait({replacing})
            await self.worker.stop()
        if not replacing.cancelled():
            replacing.result()

    async def _replace(self) -> None:
        while True:
            await self.worker.process.wait()
            # Nobody takes anything over before there is another worker.
            self.ended_with.append(await self._running())
            await self.worker.start()

    async def _running(self) -> set[UUID]:
        """The killer may end its worker while the server stands still."""
        while True:
            with suppress(StoreUnavailable):
                running = await self._proof.every_job(JobStatus.RUNNING)
                return {job.job.job_id for job in running}

    async def works(self) -> set[UUID]:
        """Wait until there is a worker again and it runs jobs; which ones."""
        async with asyncio.timeout(60):
            while not (self.worker.is_running and (running := await self._running())):  # noqa: ASYNC110  # in another process
                await asyncio.sleep(0.1)
        return running


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(SHORT, id="short", marks=pytest.mark.wide),
        pytest.param(LONG, id="long", marks=pytest.mark.chaos),
    ],
)
async def test_crashes_in_a_row_blame_nobody_but_the_killer(
    own_server: PostgresServer | RedisServer, tmp_path: Path, plan: Plan
) -> None:
    async with proof_on(own_server.url(), tmp_path) as proof:
        half = plan.jobs // 2
        await work.submit_many([plan.seconds] * half)
        guilty = await killer.submit(1)
        await work.submit_many([plan.seconds] * (plan.jobs - half))
        options = ("-q", f"default:{plan.slots}")
        replaced = Replaced(
            proof, proof.worker("worker", *options, lease_seconds=plan.lease_seconds)
        )
        most_faults = plan.kills + plan.freezes + 15  # those of the killer, found by halves
        within = timedelta(seconds=plan.drains_within(most_faults))
        began = time.monotonic()
        async with (
            replaced.running(),
            watching(jobs.store, readiness=[replaced.worker.readiness], within=within) as oracle,
        ):
            for _ in range(plan.kills):
                await _is_full(proof, plan)
                await replaced.worker.kill()
            frozen = [await _freeze(replaced, own_server, plan) for _ in range(plan.freezes)]
            await proof.drained(seconds=within.total_seconds())
        drained = time.monotonic() - began
        faults = len(replaced.ended_with) + plan.freezes
        found = await proof.every_job()
        say(
            f"{len(found)} jobs, {len(proof.journal.runs())} runs, {len(replaced.ended_with)} "
            f"ends of the worker, {plan.freezes} freezes, drained in {drained:.1f} s of "
            f"{plan.drains_within(faults):.1f} s"
        )
        statuses = Counter(job.status for job in found)
        assert statuses == {JobStatus.COMPLETED: plan.jobs, JobStatus.POISONED: 1}
        assert (await guilty.status()).status is JobStatus.POISONED
        await _no_row_too_many(proof, replaced.ended_with + frozen)
        assert drained <= plan.drains_within(faults)
        oracle.check()


async def _is_full(proof: Proof, plan: Plan) -> None:
    """Wait until the worker has nearly as many runs as slots, or as jobs are left."""
    seen = len(proof.journal.runs())
    left = len(await proof.every_job(JobStatus.QUEUED, JobStatus.RUNNING))
    enough = seen + min(plan.slots, left) * 3 // 4
    await until(
        lambda: len(proof.journal.runs()) >= enough,
        seconds=plan.lease + plan.seconds + 60,
        what=f"{enough - seen} more runs have begun",
    )


async def _freeze(
    replaced: Replaced, server: PostgresServer | RedisServer, plan: Plan
) -> set[UUID]:
    """Let the server stand still for longer than a lease; returns what ran then."""
    running = await replaced.works()
    server.pause()
    try:
        await asyncio.sleep(plan.lease + 5)
    finally:
        server.resume()
    return running


async def _no_row_too_many(proof: Proof, faults: list[set[UUID]]) -> None:
    """A row for each fault that the job was in, and one for its end; none was given back."""
    in_faults = Counter(job_id for fault in faults for job_id in fault)
    too_many = {}
    for job in await proof.every_job():
        rows = await jobs.store.history(job.job.job_id, tenant_id=None)
        events = [row.event for row in rows]
        if len(rows) > 1 + in_faults[job.job.job_id] or Event.RELEASED in events:
            too_many[job.job.job_id] = (in_faults[job.job.job_id], events)
    assert not too_many

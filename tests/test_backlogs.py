"""Backlogs of types with a limit: each job is run once, however long it waits for its place."""

import asyncio
import time
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from gantline import Gantline, JobStatus, WorkerSettings
from gantline.app.job_type import JobType
from gantline.testing.liveness import watching
from gantline.testing.readiness import of_worker
from tests.proof import Proof, proof_on, say
from tests.proof_app import TIMEOUT, five_at_a_time, jobs, one_at_a_time, two_at_a_time

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(120)]

LIMITS = (1, 2, 5)


WORK_SECONDS = 0.25
DEEP = 28
SETTINGS = WorkerSettings(
    queues={"default": 20},
    lease=timedelta(seconds=2),
    deadline_grace=timedelta(seconds=0.5),
    maintain_every=timedelta(seconds=0.2),
)


def application(
    url: str, runs: list[tuple[int, int]]
) -> tuple[Gantline, list[JobType[[int], None]]]:
    """A type for each limit; every run is noted."""
    app = Gantline(url)

    def declare(limit: int) -> JobType[[int], None]:
        @app.job(f"limit-{limit}", concurrency=limit, timeout=timedelta(seconds=1))
        async def run(number: int) -> None:
            runs.append((limit, number))
            await asyncio.sleep(WORK_SECONDS)

        return run

    return app, [declare(limit) for limit in LIMITS]


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_backlog_longer_than_timeout_and_grace_runs_each_job_once(
    tmp_path: Path, workers: int
) -> None:
    """A small one: the last job waits for twice as long as timeout, grace and lease together."""
    runs: list[tuple[int, int]] = []
    url = f"sqlite:///{tmp_path}/gantline.db"
    made = [application(url, runs) for _ in range(workers)]
    expected = [(limit, number) for limit in LIMITS for number in range(DEEP * limit * workers)]
    async with AsyncExitStack() as stack:
        for app, _ in made:
            await stack.enter_async_context(app)
        app, kinds = made[0]
        handles = [await kinds[LIMITS.index(limit)].submit(number) for limit, number in expected]
        readiness = [
            of_worker(await stack.enter_async_context(app.running(SETTINGS))) for app, _ in made
        ]
        within = timedelta(seconds=4 * DEEP * WORK_SECONDS)
        async with watching(app.store, readiness=readiness, within=within) as oracle:
            ended = [await handle.wait(timeout=60) for handle in handles]
        assert {job.status for job in ended} == {JobStatus.COMPLETED}
        assert sorted(runs) == expected
        await oracle.check_economy()


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize("processes", [1, 2])
async def test_a_long_backlog_runs_each_job_once(
    store_url: str, tmp_path: Path, processes: int
) -> None:
    if store_url.startswith("memory"):
        pytest.skip("another process cannot see it")
    async with proof_on(store_url, tmp_path) as proof:
        await _run_a_long_backlog(proof, processes)


async def _run_a_long_backlog(proof: Proof, processes: int) -> None:
    """As it was found: jobs of 4 s with a timeout of 5 s, and 30 s of grace."""
    seconds, deep = 4.0, 20
    assert deep * seconds > (TIMEOUT + WorkerSettings().deadline_grace).total_seconds()
    for limit, kind in zip(LIMITS, (one_at_a_time, two_at_a_time, five_at_a_time), strict=True):
        await kind.submit_many([seconds] * (limit * deep * processes))
    began = time.monotonic()
    worker = proof.worker("worker", "-q", "default:20", "--processes", str(processes))
    within = timedelta(seconds=1.5 * deep * seconds + 30)
    async with (
        worker.running(),
        watching(jobs.store, readiness=[worker.readiness], within=within) as oracle,
    ):
        await proof.drained(seconds=3 * deep * seconds + 60)
    found = await proof.every_job()
    runs = proof.journal.runs()
    say(f"{len(found)} jobs, {len(runs)} runs, {time.monotonic() - began:.1f} s")
    assert {job.status for job in found} == {JobStatus.COMPLETED}
    assert sorted(run.job_id for run in runs) == sorted(job.job.job_id for job in found)
    await oracle.check_economy()

"""A load that goes on whatever happens to the server, and keeps the books about it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg

from gantline import Context, Gantline
from gantline.contract.errors import StoreUnavailable
from gantline.contract.job_id import new_job_id
from gantline.testing.liveness import watching
from gantline.testing.readiness import of_worker
from gantline.worker.settings import WorkerSettings
from gantline.worker.worker import Worker

SUBMITTERS = 20
LEASE = timedelta(seconds=5)
# While the store is away nothing is expected; afterwards, a lease and what it takes to connect.
ENDS_WITHIN = LEASE + timedelta(seconds=15)


class Load:
    """An application that submits without pause and runs what it submits."""

    def __init__(self, url: str) -> None:
        self.jobs = Gantline(url)
        self.accepted: list[UUID] = []
        self.ran = 0
        self.unavailable = 0
        self._more = asyncio.Condition()
        self._is_over = False
        self._work = self.jobs.job("work")(self._handler)

    async def _handler(self, value: int, ctx: Context) -> None:
        self.ran += 1
        async with self._more:
            self._more.notify_all()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Submit and work as long as the block lasts; then until all that was accepted is done."""
        settings = WorkerSettings(
            queues={"default": 50}, lease=LEASE, maintain_every=timedelta(milliseconds=200)
        )
        async with self.jobs, self.jobs.running(settings) as worker, self._watched(worker):
            submitters = [asyncio.create_task(self._submit()) for _ in range(SUBMITTERS)]
            try:
                yield
            finally:
                self._is_over = True
                await asyncio.gather(*submitters)
            await self._drained()

    @asynccontextmanager
    async def _watched(self, worker: Worker) -> AsyncIterator[None]:
        """More is submitted than can run, so what counts is that jobs end."""
        async with watching(
            self.jobs.store, readiness=[of_worker(worker)], within=ENDS_WITHIN, backlog=True
        ) as oracle:
            yield
        oracle.check()

    async def _submit(self) -> None:
        while not self._is_over:
            job_id = new_job_id()
            while True:
                try:
                    self.accepted.append((await self._work.submit(1, job_id=job_id)).job_id)
                    break
                except StoreUnavailable:
                    self.unavailable += 1  # and once more, under the same id
                    async with self._more:
                        self._more.notify_all()

    async def run_more(self, jobs: int, *, within_seconds: float = 60) -> None:
        """Wait until so many more have run."""
        wanted = self.ran + jobs
        async with asyncio.timeout(within_seconds), self._more:
            await self._more.wait_for(lambda: self.ran >= wanted)

    async def be_refused(self, *, within_seconds: float = 60) -> None:
        """Wait until one more submit was told that the store is away."""
        wanted = self.unavailable + 1
        async with asyncio.timeout(within_seconds), self._more:
            await self._more.wait_for(lambda: self.unavailable >= wanted)

    async def _drained(self) -> None:
        async with asyncio.timeout(60):
            counts = await self._counts()
            while any(lane.queued or lane.running for lane in counts):
                await asyncio.sleep(0.05)
                counts = await self._counts()

    async def _counts(self) -> list[Any]:
        try:
            return await self.jobs.store.counts(tenant_id=None)
        except StoreUnavailable:
            return await self._counts()


async def check_books(
    conninfo: str, accepted: list[UUID], schema: str = "gantline"
) -> Counter[str]:
    """Nothing accepted is lost, nothing ended twice; return how often each event happened."""
    async with await psycopg.AsyncConnection.connect(conninfo) as connection:
        log = await connection.execute(f"SELECT job_id, fence, event FROM {schema}.log".encode())
        rows = await log.fetchall()
        for table in ("ready", "lease"):
            held = await connection.execute(f"SELECT count(*) FROM {schema}.{table}".encode())
            assert await held.fetchone() == (0,)
    completed = Counter(job_id for job_id, _, event in rows if event == "completed")
    assert set(completed.values()) <= {1}
    assert len({(job_id, fence) for job_id, fence, _ in rows}) == len(rows)
    lost = set(accepted) - completed.keys()
    assert not lost, f"{len(lost)} of {len(accepted)} accepted jobs were not completed"
    return Counter(event for _, _, event in rows)

"""What the long proofs share: a store of each kind, the application on it, workers, a journal."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from gantline.contract.clock import SystemClock
from gantline.contract.query import Cursor, JobFilter
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.status import JobStatus
from gantline.proof.history import recorded_in
from gantline.stores import store_from_url
from tests.journal import Journal
from tests.judging import history_in, judge
from tests.proof_app import jobs
from tests.worker_process import WorkerProcess

APP: Final = "tests.proof_app:jobs"
DEFAULT_LEASE_SECONDS: Final = 30.0
"""What the issue asks for; the proofs at the default lease do not set it."""


class Proof:
    """One store, the application on it, and workers that write to one journal."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.journal = Journal(folder / "journal")
        self._recording = {"GANTLINE_HISTORY": str(history_in(folder))}

    def worker(
        self,
        name: str,
        *options: str,
        url: str | None = None,
        lease_seconds: float | None = None,
        within: tuple[str, ...] = (),
        **environment: str,
    ) -> WorkerProcess:
        return WorkerProcess(
            APP,
            url or self.url,
            self.folder / f"{name}.log",
            *options,
            lease_seconds=lease_seconds,
            within=within,
            **(self.journal.variables(name) | self._recording | environment),
        )

    async def every_job(self, *statuses: JobStatus) -> list[JobSnapshot]:
        which = JobFilter(tenant_id=None, statuses=frozenset(statuses))
        found: list[JobSnapshot] = []
        after: Cursor | None = None
        while True:
            page = await jobs.store.find(which, limit=500, after=after)
            found += page.items
            if (after := page.next) is None:
                return found

    async def is_drained(self) -> bool:
        """By the counts, for a list of jobs may miss one that moves while it is read."""
        lanes = await jobs.store.counts(tenant_id=None)
        return all(lane.queued == lane.running == 0 for lane in lanes)

    async def drained(self, *, seconds: float = 60) -> None:
        """Wait until every job has ended."""
        async with asyncio.timeout(seconds):
            while not await self.is_drained():  # noqa: ASYNC110  # in another process
                await asyncio.sleep(0.1)


@asynccontextmanager
async def proof_on(url: str, folder: Path) -> AsyncIterator[Proof]:
    """All that is done to the store is recorded, and judged at the end."""
    store = store_from_url(url, clock=SystemClock())
    jobs.move_to(recorded_in(history_in(folder), store))
    async with jobs:
        yield Proof(folder, url)
        await judge(store, folder)


async def until(reached: Callable[[], bool], *, seconds: float, what: str) -> None:
    """Wait for what other processes do."""
    try:
        async with asyncio.timeout(seconds):
            while not reached():  # noqa: ASYNC110  # in another process
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not within {seconds:g} s: {what}") from None


def say(text: str) -> None:
    print(text)  # noqa: T201  # the figures of a proof; pytest shows them with -rP

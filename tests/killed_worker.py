"""A worker process for the kill test: claims and finishes until nothing is left, or until killed.

    python -m tests.killed_worker URL SESSION JOURNAL

What the store said of every run is appended to the journal, so that the test can compare.
"""

import asyncio
import os
import sys
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

from gantline.contract.clock import SystemClock
from gantline.contract.outcome import Success
from gantline.contract.snapshot import Run
from gantline.contract.store import JobStore
from gantline.manager.maintenance import Maintenance
from gantline.manager.manager import Ending, JobManager
from gantline.manager.switches import Switches
from gantline.proof.history import recorded_in
from gantline.stores import store_from_url
from gantline.testing.factories import lane_requests, register_sessions
from tests.judging import history_in

LEASE = timedelta(seconds=2)
BATCH = 10
IDLE_SECONDS = 0.05
WORK_SECONDS = 0.01


async def work(url: str, session: str, journal: int, folder: Path) -> None:
    clock = SystemClock()
    store = recorded_in(history_in(folder), store_from_url(url, clock=clock))
    await store.open()
    print("at work", flush=True)  # noqa: T201  # the test waits for it
    manager = JobManager(store)
    maintenance = Maintenance(store, Switches(store), session, lease=LEASE)
    swept_at = 0.0
    while True:
        if clock.monotonic() - swept_at > LEASE.total_seconds() / 4:
            await maintenance.run_once()
            swept_at = clock.monotonic()
        await register_sessions(store, session)
        runs = await manager.claim(session, uuid4(), lane_requests(limit=BATCH), lease=LEASE)
        if runs:
            await run_and_settle(manager, runs, journal)
        elif await is_drained(store):
            break
        else:
            await asyncio.sleep(IDLE_SECONDS)
    await store.close()


async def run_and_settle(manager: JobManager, runs: list[Run], journal: int) -> None:
    await asyncio.sleep(WORK_SECONDS)
    settled = await manager.settle([Ending(run, Success()) for run in runs])
    told = [
        f"{'accepted' if answer.accepted else 'refused'} {run.token.hex}\n"
        for run, answer in zip(runs, settled, strict=True)
    ]
    # One write of whole lines: a kill leaves all of it or nothing.
    os.write(journal, "".join(told).encode())


async def is_drained(store: JobStore) -> bool:
    counts = await store.counts(tenant_id=None)
    return all(lane.queued == lane.running == 0 for lane in counts)


if __name__ == "__main__":
    _, store_url, name, journal_file = sys.argv
    descriptor = os.open(journal_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    asyncio.run(work(store_url, name, descriptor, Path(journal_file).parent))

"""A leader for the kill test: fires what is due until it kills itself, or is killed.

    python -m tests.schedule_leader URL STEP WHEN

It dies by SIGKILL right `before` or right `after` its call of the store number STEP; 0 is never.
"""

import asyncio
import os
import signal
import sys
from datetime import timedelta
from typing import Any

from gantline.contract.clock import SystemClock
from gantline.contract.errors import StoreUnavailable
from gantline.contract.store import JobStore
from gantline.manager.manager import JobManager
from gantline.schedules.scheduler import Scheduler
from gantline.stores import store_from_url
from gantline.testing.faults import Call, intercepted

LEASE = timedelta(seconds=1)


def dying(store: JobStore, step: int, when: str) -> JobStore:
    left = step

    async def around(verb: str, call: Call) -> Any:
        nonlocal left
        left -= 1
        if left != 0:
            return await call()
        if when == "after":
            await call()
        os.kill(os.getpid(), signal.SIGKILL)

    return intercepted(store, around)


async def lead(url: str, step: int, when: str) -> None:
    store = store_from_url(url, clock=SystemClock())
    await store.open()
    store = dying(store, step, when)
    owner = f"leader-{os.getpid()}"
    scheduler = Scheduler(store, JobManager(store), owner, lease=LEASE)
    while True:
        try:
            look = await scheduler.run_once()
            wait = look.wait.total_seconds() if look.wait is not None else 0.2
        except StoreUnavailable:
            wait = 0.2
        await asyncio.sleep(min(wait, 0.2))


if __name__ == "__main__":
    asyncio.run(lead(sys.argv[1], int(sys.argv[2]), sys.argv[3]))

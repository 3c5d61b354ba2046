"""A worker that delivers webhooks, and kills itself at one of its calls of the store.

    python -m tests.webhooks.killed_teller URL [VERB NUMBER before|after MOST]

Dies by SIGKILL right before or after the n-th call of a verb, at the latest at so many calls of
any; without that it works until all is told.
"""

import asyncio
import os
import signal
import sys
from datetime import timedelta
from typing import Any

from gantline import Gantline, WorkerSettings
from gantline.consumers.consumers import Consumers
from gantline.contract.clock import SystemClock
from gantline.contract.job import DELIVERY_QUEUE
from gantline.contract.store import JobStore
from gantline.manager.cursors import lags
from gantline.stores import store_from_url
from gantline.testing.faults import Call, intercepted
from gantline.worker.worker import Worker
from tests.webhooks.shop import settings

# A killed process holds its leases until they lapse, and the test waits for each of them.
LEASE = timedelta(seconds=2)


class Death:
    """Where a process dies."""

    def __init__(self, verb: str, number: str, when: str, most: str) -> None:
        self._verb = verb
        self._when = when
        self._left = int(number)
        self._calls_left = int(most)

    async def around(self, verb: str, call: Call) -> Any:
        self._left -= verb == self._verb
        self._calls_left -= 1
        is_here = (verb == self._verb and self._left == 0) or self._calls_left == 0
        if is_here and self._when == "before":
            die("before", verb)
        answer = await call()
        if is_here:
            die("after", verb)
        return answer


def die(when: str, verb: str) -> None:
    print(when, verb, flush=True)  # noqa: T201  # the test wants to know
    os.kill(os.getpid(), signal.SIGKILL)


async def work(url: str, death: Death | None) -> None:
    (Consumers.__init__.__kwdefaults__ or {})["lease"] = LEASE
    plain = store_from_url(url, clock=SystemClock())
    store = intercepted(plain, death.around) if death else plain
    jobs = Gantline(store, webhooks=settings(cache_seconds=1.0))

    @jobs.job("ship")
    async def ship(order: int) -> dict[str, int]:
        return {"order": order}

    how = WorkerSettings(
        queues={"default": 10, DELIVERY_QUEUE: 10},
        lease=LEASE,
        poll=timedelta(seconds=0.1),
        maintain_every=timedelta(seconds=0.25),
        drain=timedelta(0),
    )
    async with jobs, jobs.running(how) as worker:
        while not await all_is_told(plain, worker):  # noqa: ASYNC110  # by other processes, too
            await asyncio.sleep(0.1)


async def all_is_told(store: JobStore, worker: Worker) -> bool:
    if worker.is_draining:
        raise RuntimeError("the worker has ended by itself")
    await store.sequence(limit=1000)
    behind = await lags(store)
    counts = await store.counts(tenant_id=None)
    is_idle = all(lane.queued == lane.running == 0 for lane in counts)
    return is_idle and not any(behind.values())


if __name__ == "__main__":
    _, store_url, *where = sys.argv
    asyncio.run(work(store_url, Death(*where) if where else None))

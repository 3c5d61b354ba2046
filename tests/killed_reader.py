"""A worker process with a consumer that writes down what it is given, and dies where it is told to.

    python -m tests.killed_reader URL JOURNAL NAME POINT LEASE_SECONDS

The points: `before` a page is taken, `taken` but the cursor not moved, `moved`, or `never`. All
processes append to one journal, a line an event, so that its order is that of the world.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from gantline import Gantline, WorkerSettings
from gantline.contract.clock import SystemClock
from gantline.contract.job_event import JobEvent
from gantline.manager.cursors import CURSORS
from gantline.stores import store_from_url
from gantline.testing.faults import Call, intercepted

# Late enough for the process to have moved its cursor more than once.
DIES_AT_PAGE = 3


class Journal:
    """The consumer."""

    name = "journal"

    def __init__(self, descriptor: int, owner: str, point: str) -> None:
        self._descriptor = descriptor
        self._owner = owner
        self._point = point
        self._pages = 0

    async def consume(self, events: Sequence[JobEvent]) -> None:
        self._pages += 1
        self.die_at("before")
        lines = (
            f"{self._owner} {event.sequence} {event.job.job_id} {event.entry.version}\n"
            for event in events
        )
        os.write(self._descriptor, "".join(lines).encode())
        self.die_at("taken")

    def die_at(self, point: str) -> None:
        if point == self._point and self._pages == DIES_AT_PAGE:
            os.kill(os.getpid(), signal.SIGKILL)


def make_app(store: Any, *consumers: Journal) -> tuple[Gantline, Any]:
    jobs = Gantline(store)
    for consumer in consumers:
        jobs.add_consumer(consumer, from_start=True)

    @jobs.job("ship", events=("submitted", "started"))
    async def ship(order: int) -> None: ...

    return jobs, ship


async def read(url: str, journal: Journal, lease: timedelta) -> None:
    async def around(verb: str, call: Call) -> Any:
        before = await store.read_records(CURSORS) if verb == "write_records" else []
        answer = await call()
        if verb == "write_records" and await store.read_records(CURSORS) != before:
            journal.die_at("moved")
        return answer

    store = store_from_url(url, clock=SystemClock())
    jobs, _ = make_app(intercepted(store, around), journal)
    settings = WorkerSettings(
        queues={"default": 4}, lease=lease, maintain_every=timedelta(seconds=0.2)
    )
    async with jobs, jobs.working(settings) as worker:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        print("at work", flush=True)  # noqa: T201  # the test waits for it
        await worker.run()


if __name__ == "__main__":
    _, store_url, journal_file, name, point, seconds = sys.argv
    opened = os.open(journal_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    lease = timedelta(seconds=float(seconds))
    asyncio.run(read(store_url, Journal(opened, name, point), lease))

"""A relay that kills its own process where it is told to, and a worker that others kill.

    python -m tests.killed_relay OUTBOX STORE STEP

A step is `before` or `after` one of the calls that move a job, such as `after-insert`; `never`
moves all that waits and ends, `work` runs jobs as well, for ever.
"""

import asyncio
import os
import signal
import sys
from datetime import timedelta
from typing import Any

from gantline import Gantline, WorkerSettings
from gantline.app import outbox as moving
from gantline.contract.store import JobStore
from gantline.manager import relay as relaying

# So that nobody waits half a minute for the jobs of a dead relay.
LEASE = timedelta(seconds=1)


def application(outbox: str, store: str) -> Gantline:
    jobs = Gantline(store, outbox=outbox)

    @jobs.job("ship")
    async def ship(order: int) -> int:
        return order

    return jobs


async def main(outbox: str, store: str, step: str) -> None:
    relaying._LEASE, moving._SWEEP_EVERY_SECONDS = LEASE, LEASE.total_seconds()  # type: ignore[misc]  # ours alone
    async with application(outbox, store) as jobs:
        if step == "work":
            settings = WorkerSettings(lease=LEASE, maintain_every=LEASE / 4)
            async with jobs.running(settings):
                print("at work", flush=True)  # noqa: T201  # the test waits for it
                await asyncio.Event().wait()
        assert jobs.outbox is not None
        when, _, verb = step.partition("-")
        if verb:
            kill_at(jobs.store if verb == "insert" else jobs.outbox.store, verb, when)
        relay = jobs.outbox.relay()
        while await relay.sweep() + await relay.run_once():
            pass


def kill_at(store: JobStore, verb: str, when: str) -> None:
    whole = getattr(store, verb)

    async def dying(*arguments: Any, **options: Any) -> None:
        if when == "after":
            await whole(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(store, verb, dying)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""A copy of a store that kills its own process where it is told to.

    python -m tests.killed_copy FROM TO POINT

The points are the beginnings of what a copy tells that it does; `handing` is after the source was
closed for good and before the target is opened, `never` lets it end.
"""

import asyncio
import os
import signal
import sys
from datetime import timedelta

from gantline.contract.clock import SystemClock
from gantline.contract.store import JobStore
from gantline.moving.closing import CopyProgress, StoreNames, read_closing
from gantline.moving.store_copy import StoreCopy
from gantline.stores import store_from_url


async def main(source: str, target: str, point: str) -> None:
    here, there = (store_from_url(url, clock=SystemClock()) for url in (source, target))
    for store in (here, there):
        await store.open()

    def tell(progress: CopyProgress) -> None:
        if progress.doing.startswith(point):
            die()

    async def switched(store: JobStore) -> None:
        closed = await read_closing(store)
        if point == "handing" and closed and closed.has_moved:
            die()

    copy = StoreCopy(
        here,
        there,
        StoreNames(source, target),
        actor="op",
        on_progress=tell,
        notify_switched=switched,
        grace=timedelta(microseconds=1),
    )
    await copy.run(wait=timedelta(seconds=5))
    for store in (here, there):
        await store.close()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

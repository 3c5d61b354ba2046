"""A worker whose ends are not being written does not start more and more."""

import asyncio
from typing import Any

from gantline import Gantline, WorkerSettings
from gantline.stores.memory import MemoryStore
from gantline.testing.clock import FakeClock
from gantline.testing.faults import Call, intercepted

_SLOTS = 2
_JOBS = 100
_TURNS = 2000


async def test_what_has_ended_and_is_not_written_is_bounded() -> None:
    may_write, ended = asyncio.Event(), list[int]()
    as_many_as_may, all_ended = asyncio.Event(), asyncio.Event()

    async def hold_writes(verb: str, call: Call) -> Any:
        if verb == "apply":
            await may_write.wait()
        return await call()

    jobs = Gantline(intercepted(MemoryStore(clock=FakeClock()), hold_writes))

    @jobs.job("count")
    async def count(number: int) -> None:
        ended.append(number)
        if len(ended) == 3 * _SLOTS:
            as_many_as_may.set()
        if len(ended) == _JOBS:
            all_ended.set()

    async with jobs:
        handles = await count.submit_many(range(_JOBS))
        async with jobs.running(WorkerSettings(queues={"default": _SLOTS})) as worker:
            await as_many_as_may.wait()
            for _ in range(_TURNS):  # many more than all jobs would take
                await asyncio.sleep(0)
            # And what was claimed before that was reached.
            assert len(ended) <= 4 * _SLOTS
            assert worker.trouble() is None  # it has no need to look
            may_write.set()
            await all_ended.wait()
        snapshots = [await handle.status() for handle in handles]
        assert {snapshot.status for snapshot in snapshots} == {"Completed"}

"""A worker claims only while it is registered; one whose registration is over registers again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from gantline import Gantline, WorkerSettings
from gantline.contract.errors import Forbidden
from gantline.contract.records import SESSIONS, RecordWrite
from gantline.contract.store import JobStore
from gantline.manager.sessions import live_sessions
from gantline.stores.memory import MemoryStore
from gantline.testing.clock import FakeClock
from gantline.testing.faults import Call, intercepted
from gantline.worker.worker import Worker

SETTINGS = WorkerSettings(queues={"default": 2}, poll=timedelta(milliseconds=20))


@asynccontextmanager
async def working(jobs: Gantline) -> AsyncIterator[Worker]:
    async with asyncio.timeout(30), jobs, jobs.running(SETTINGS) as worker:
        yield worker


async def end_registration(store: JobStore, worker: Worker) -> None:
    await store.write_records([RecordWrite(SESSIONS, worker.session_id, None)])


def quick_jobs(store: JobStore) -> tuple[Gantline, Any]:
    jobs = Gantline(store)

    @jobs.job("quick")
    async def quick() -> None: ...

    return jobs, quick


@pytest.mark.parametrize("url", ["memory://", "sqlite"])
async def test_a_worker_that_was_frozen_for_longer_than_its_registration_goes_on(
    url: str, tmp_path: Any
) -> None:
    jobs, quick = quick_jobs(
        Gantline(url if url == "memory://" else f"sqlite:///{tmp_path}/jobs.db").store
    )
    async with working(jobs) as worker:
        await (await quick.submit()).wait(timeout=10)
        await end_registration(jobs.store, worker)
        await (await quick.submit()).wait(timeout=10)
        (session,) = await live_sessions(jobs.store)
        assert session.session_id == worker.session_id


async def test_a_worker_tries_to_register_again_until_it_can() -> None:
    """Its registration is over, and the first try to register again fails."""
    failures = 0

    async def around(verb: str, call: Call) -> Any:
        nonlocal failures
        if verb == "write_records" and is_down:
            failures += 1
            if failures < 3:
                raise ConnectionError("away")
        return await call()

    is_down = False
    jobs, quick = quick_jobs(intercepted(MemoryStore(clock=FakeClock()), around))
    async with working(jobs) as worker:
        await (await quick.submit()).wait(timeout=10)
        await end_registration(jobs.store, worker)
        is_down = True
        await (await quick.submit()).wait(timeout=10)
    assert failures >= 3


async def test_a_worker_that_may_not_register_again_stops_and_says_why() -> None:
    jobs, quick = quick_jobs(MemoryStore(clock=FakeClock()))
    may_register = True

    async def admit() -> str:
        if not may_register:
            raise Forbidden("No key.")
        return "the-key"

    async with asyncio.timeout(30), jobs, jobs.working(SETTINGS) as worker:
        worker._admit = admit
        running = asyncio.create_task(worker.run())
        await (await quick.submit()).wait(timeout=10)
        (session,) = await live_sessions(jobs.store)
        assert session.key_id == "the-key"
        may_register = False
        await end_registration(jobs.store, worker)
        left = await quick.submit()
        with pytest.raises(Forbidden, match="No key"):
            await running
        assert (await left.status()).attempt == 0, "nothing was claimed"


async def test_a_worker_that_drains_is_listed_as_one() -> None:
    began, may_end, registered = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def around(verb: str, call: Call) -> Any:
        answer = await call()
        if verb == "write_records":
            registered.set()
        return answer

    jobs = Gantline(intercepted(MemoryStore(clock=FakeClock()), around))

    @jobs.job("long")
    async def long() -> None:
        began.set()
        await may_end.wait()

    async with asyncio.timeout(30), jobs, jobs.working(SETTINGS) as worker:
        running = asyncio.create_task(worker.run())
        await long.submit()
        await began.wait()
        (session,) = await live_sessions(jobs.store)
        assert not session.draining
        registered.clear()
        worker.stop()
        await registered.wait()
        (session,) = await live_sessions(jobs.store)
        assert session.draining
        may_end.set()
        await running
        assert await live_sessions(jobs.store) == []

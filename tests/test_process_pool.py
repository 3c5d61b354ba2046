"""Handlers in processes: a stop is heard at any moment, and no child is lost or used when dead."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import uuid4

import pytest

from gantline import Gantline
from gantline.contract.outcome import Stopped, Success
from gantline.testing.factories import wanting
from gantline.worker.active import ActiveRun, Cause
from gantline.worker.deadlines import Deadlines
from gantline.worker.executor import Executor
from gantline.worker.processes import Child, ProcessPool
from gantline.worker.run_port import StoreRunPort
from gantline.worker.threads import HandlerThreads
from tests.app_under_test import in_process, make_app


class Place:
    """An application in memory, and an executor for what is submitted to it."""

    def __init__(self, app: Gantline) -> None:
        self.app = app
        self.pool = ProcessPool()
        self.executor = Executor(
            app.registry,
            StoreRunPort(app.store, app.manager),
            clock=app.clock,
            threads=HandlerThreads(),
            processes=self.pool,
            deadlines=Deadlines(),
        )

    async def claimed(self, what: str) -> ActiveRun:
        await in_process.submit(what)
        (run,) = await self.app.manager.claim(
            "test", uuid4(), wanting(in_process.name), lease=timedelta(minutes=5)
        )
        active = self.executor.resolve(run)
        assert active is not None
        return active


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with make_app("memory://") as app:
        place = Place(app)
        yield place
        await place.pool.close()


async def test_a_stop_while_the_child_starts_is_not_lost(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deadline rings once only: whoever misses it runs for ever."""
    active = await place.claimed("pid")
    start = Child.start
    is_starting, may_start = asyncio.Event(), asyncio.Event()

    async def slow_start() -> Child:
        is_starting.set()
        await may_start.wait()
        return await start()

    monkeypatch.setattr(Child, "start", slow_start)
    running = asyncio.create_task(place.executor.run(active))
    await is_starting.wait()
    active.stop(Cause.CANCEL)
    may_start.set()
    assert isinstance(await asyncio.wait_for(running, 30), Stopped)


async def test_a_child_that_was_killed_is_not_used_again(place: Place) -> None:
    """Killed as its answer came: it is dead, but nobody has been told so yet."""
    assert isinstance(await place.executor.run(await place.claimed("pid")), Success)
    child = await place.pool.take()
    child.kill()
    place.pool.give_back(child)
    assert isinstance(await place.executor.run(await place.claimed("pid")), Success)


async def test_a_child_whose_answer_nobody_awaits_is_killed(place: Place) -> None:
    active = await place.claimed("hang")
    running = asyncio.create_task(place.executor.run(active))
    while active.child is None:  # noqa: ASYNC110  # nobody tells
        await asyncio.sleep(0)
    child = active.child
    running.cancel()
    await running
    assert not child.is_alive
    assert await asyncio.wait_for(child.ended(), 30) == -9

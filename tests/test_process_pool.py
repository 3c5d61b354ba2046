"""Handlers in processes: a stop is heard at any moment, and no child is lost or used when dead."""

import asyncio
import gc
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from gantline import Gantline, JobType
from gantline.cli.process import fastest_loop
from gantline.contract.outcome import Failure, Stopped, Success
from gantline.testing.factories import lane_requests, register_sessions
from gantline.worker.active_run import ActiveRun, Cause
from gantline.worker.context import StoreRunPort
from gantline.worker.deadlines import Deadlines
from gantline.worker.executor import Executor
from gantline.worker.processes import PROCESS_DIED, Child, ProcessPool
from gantline.worker.threads import HandlerThreads
from tests.app_under_test import Fork, fork, in_process, make_app


class Place:
    """An application in memory, and an executor for what is submitted to it."""

    def __init__(self, app: Gantline) -> None:
        self.app = app
        self.pool = ProcessPool()
        self.executor = Executor(
            app.registry,
            StoreRunPort(app.store, app.manager, app.find_type),
            threads=HandlerThreads(),
            processes=self.pool,
            deadlines=Deadlines(),
        )

    async def claimed(self, what: Any, job: JobType[..., Any] = in_process) -> ActiveRun:
        await job.submit(what)
        await register_sessions(self.app.store, "test")
        (run,) = await self.app.manager.claim(
            "test", uuid4(), lane_requests(job.name), lease=timedelta(minutes=5)
        )
        active = self.executor.resolve(run, self.app.clock.now())
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


async def until_gone(pid: int) -> None:
    """Wait until a process that is not our child has ended, its remains in the table included."""
    async with asyncio.timeout(5):
        while _state(pid) not in ("", "Z"):  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(0.01)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


async def test_a_handler_that_forks_and_dies_ends_at_once_and_its_fork_with_it(
    place: Place, tmp_path: Path
) -> None:
    """The fork has the handler's end of the connection, so the connection does not end."""
    pid_file = tmp_path / "pid"
    active = await place.claimed(Fork(str(pid_file), "die"), fork)
    async with asyncio.timeout(5):
        outcome = await place.executor.run(active)
    assert isinstance(outcome, Failure)
    assert (outcome.error.code, outcome.error.detail) == (PROCESS_DIED, "exit code 3")
    await until_gone(int(pid_file.read_text()))


def test_it_ends_at_once_on_the_loop_of_a_worker_process_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_app("memory://") as app:
            place = Place(app)
            active = await place.claimed(Fork(str(tmp_path / "pid"), "die"), fork)
            async with asyncio.timeout(5):
                assert isinstance(await place.executor.run(active), Failure)
                await place.pool.close()

    with asyncio.Runner(loop_factory=fastest_loop()) as runner:
        runner.run(main())


async def test_with_a_child_that_is_killed_all_that_it_has_started_is_gone(
    place: Place, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    active = await place.claimed(Fork(str(pid_file), "hang"), fork)
    running = asyncio.create_task(place.executor.run(active))
    async with asyncio.timeout(20):
        while not (pid_file.exists() and pid_file.read_text()):  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(0.01)
    active.stop(Cause.CANCEL)
    async with asyncio.timeout(5):
        assert isinstance(await running, Stopped)
    await until_gone(int(pid_file.read_text()))


async def test_with_a_child_that_is_let_go_all_that_it_has_started_is_gone(
    place: Place, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    active = await place.claimed(Fork(str(pid_file), "return"), fork)
    assert isinstance(await place.executor.run(active), Success)
    await place.pool.close()
    await until_gone(int(pid_file.read_text()))


async def test_a_fork_that_returns_from_the_handler_answers_nobody(
    place: Place, tmp_path: Path
) -> None:
    """Else its answer would be taken for that to the next job."""
    first = await place.executor.run(
        await place.claimed(Fork(str(tmp_path / "pid"), "both return"), fork)
    )
    await until_gone(int((tmp_path / "pid").read_text()))
    second = await place.executor.run(await place.claimed("pid"))
    assert isinstance(first, Success)
    assert isinstance(second, Success)
    assert first.result == second.result, "the same child, and its own answers"


@pytest.mark.parametrize("then", ["die", "hang", "return"])
async def test_a_closed_pool_leaves_no_process_and_no_descriptor(
    place: Place, tmp_path: Path, then: Any
) -> None:
    """What is left open would also be a ResourceWarning, which is an error here."""
    gc.collect()
    before = set(os.listdir("/proc/self/fd"))
    active = await place.claimed(Fork(str(tmp_path / "pid"), then), fork)
    running = asyncio.create_task(place.executor.run(active))
    if then == "hang":
        while active.child is None:  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(0)
        active.stop(Cause.CANCEL)
    await running
    async with asyncio.timeout(5):
        await place.pool.close()
    del active, running
    gc.collect()
    assert set(os.listdir("/proc/self/fd")) == before

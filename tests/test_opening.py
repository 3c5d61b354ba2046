"""Opening an application or a worker: once for all who ask, and nothing is left when it fails."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from gantline import Gantline, WorkerSettings
from gantline.contract.clock import SystemClock
from gantline.contract.wakeup import OnHint
from gantline.manager.sessions import live_sessions
from gantline.stores.memory import MemoryStore
from gantline.testing.faults import Call, intercepted
from gantline.wakeups.local import Hub, InProcessWakeup


class SlowToOpen:
    """A store whose open waits until the test lets it go on."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_asked = asyncio.Event()
        self.may_open = asyncio.Event()
        self.app = Gantline(intercepted(MemoryStore(clock=SystemClock()), self._around))

    async def _around(self, verb: str, call: Call) -> Any:
        if verb == "open":
            self.asked += 1
            self.is_asked.set()
            await self.may_open.wait()
        return await call()


async def test_who_waits_for_an_open_and_gives_up_does_not_break_it() -> None:
    slow = SlowToOpen()
    opening = asyncio.create_task(slow.app.open())
    await slow.is_asked.wait()
    waiting = asyncio.create_task(slow.app.open())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    slow.may_open.set()
    await opening
    await slow.app.close()


async def test_who_waits_for_an_open_that_is_given_up_opens_it_itself() -> None:
    slow = SlowToOpen()
    opening = asyncio.create_task(slow.app.open())
    await slow.is_asked.wait()
    waiting = asyncio.create_task(slow.app.open())
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    slow.may_open.set()
    await waiting
    assert slow.asked == 2
    await slow.app.close()


async def test_who_opens_while_it_is_closed_waits_and_has_it_open() -> None:
    """Or the store is closed, and the application believes that it is open."""
    is_closing, may_close = asyncio.Event(), asyncio.Event()
    verbs: list[str] = []

    async def around(verb: str, call: Call) -> Any:
        if verb == "close":
            is_closing.set()
            await may_close.wait()
        if verb in ("open", "close"):
            verbs.append(verb)
        return await call()

    app = Gantline(intercepted(MemoryStore(clock=SystemClock()), around))
    async with asyncio.timeout(30):
        await app.open()
        closing = asyncio.create_task(app.close())
        await is_closing.wait()
        entering = asyncio.create_task(app.__aenter__())
        await asyncio.sleep(0)
        was_open = app.is_open
        assert not was_open
        assert not entering.done()
        may_close.set()
        await asyncio.gather(closing, entering)
        assert verbs == ["open", "close", "open"]
        assert app.is_open
        await app.close()


class NoWakeup(InProcessWakeup):
    """As if there were no file descriptor left."""

    def __init__(self) -> None:
        super().__init__(Hub())

    async def open(self, on_hint: OnHint | None) -> None:
        raise OSError("too many open files")


async def test_an_application_that_gets_no_socket_closes_its_store(tmp_path: Path) -> None:
    app = Gantline(f"sqlite:///{tmp_path}/gantline.db")
    app.wakeup = NoWakeup()
    before = own_threads()
    with pytest.raises(OSError, match="too many open files"):
        await app.open()
    assert own_threads() == before


async def test_a_worker_that_gets_no_socket_leaves_no_thread_and_no_session() -> None:
    app = Gantline(MemoryStore(clock=SystemClock()))
    before = own_threads()
    async with app, app.working(WorkerSettings(queues={"default": 1})) as worker:
        worker._wakeup = NoWakeup()
        with pytest.raises(OSError, match="too many open files"):
            await worker.run()
        assert await live_sessions(app.store) == []
    for thread in threading.enumerate():
        if thread.name == "gantline-lease-keeper":
            thread.join(5)  # its loop has ended, and the thread is about to
    assert own_threads() == before


def own_threads() -> set[int | None]:
    return {thread.ident for thread in threading.enumerate() if thread.name.startswith("gantline")}

"""A handler that blocks the event loop is named, with its line, while it does."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from gantline import Gantline, WorkerSettings
from gantline.telemetry import loop_watch
from gantline.telemetry.loop_watch import LoopWatch
from tests.telemetry.asking import samples

BLOCKED = "the event loop has been blocked for"
OVER = "the event loop goes on after"


class Released(logging.Handler):
    """Ends the block of `resize` once it was reported, down to its stack.

    On a busy machine the loop may stand still by itself for a moment, which is reported too.
    """

    def __init__(self) -> None:
        super().__init__()
        self.came = threading.Event()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        if "in resize" in self.lines[-1]:
            self.came.set()

    def starting(self, text: str) -> list[str]:
        return [line for line in self.lines if line.startswith(text)]


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> Iterator[Released]:
    monkeypatch.setattr(loop_watch, "_LOOK_EVERY_SECONDS", 0.01)
    log, released = logging.getLogger("gantline.worker"), Released()
    before = log.level
    log.setLevel(logging.DEBUG)
    log.addHandler(released)
    yield released
    log.removeHandler(released)
    log.setLevel(before)


def blocks(released: Released) -> None:
    released.came.wait(30)  # where it stands


LINE = blocks.__code__.co_firstlineno + 1


async def test_a_handler_that_blocks_the_loop_is_named_with_its_line(released: Released) -> None:
    jobs = Gantline("memory://", worker=WorkerSettings(blocked_after=timedelta(seconds=0.05)))

    @jobs.job("resize")
    async def resize() -> None:
        blocks(released)

    @jobs.job("innocent")
    async def innocent() -> None: ...

    async with jobs, jobs.running():
        await (await innocent.submit(None)).result(timeout=30)
        await (await resize.submit(None)).result(timeout=30)
        watch = jobs.watching.loop_watch
        async with asyncio.timeout(30):
            while "resize" not in watch.blocked_seconds:  # noqa: ASYNC110  # by its thread
                await asyncio.sleep(0.01)
        assert "innocent" not in watch.blocked_seconds
        assert watch.blocked_seconds["resize"] >= 0.05
        page = await samples(jobs.health_app(watch=watch))
    blocked = page.get("gantline_loop_blocked_seconds_total", job_type="resize")
    assert blocked == pytest.approx(watch.blocked_seconds["resize"])
    (line,) = [line for line in released.starting(BLOCKED) if "resize" in line]
    assert f"by the handler of resize, at {__file__}:{LINE};" in line
    assert "asyncio.to_thread" in line
    assert any("in resize" in line for line in released.starting("it stands here"))


async def test_one_block_is_one_line_and_one_more_when_it_is_over(released: Released) -> None:
    now = 100.0
    watch = LoopWatch(asyncio.get_running_loop(), clock=lambda: now)
    watch.look()
    for seconds in (0.9, 0.2, 5.0):
        now += seconds
        watch.look()
    assert len(released.starting(BLOCKED)) == 1
    assert f"{BLOCKED} 1.1 s by code, at {__file__}:" in released.lines[0]
    await asyncio.sleep(0)
    watch.look()
    watch.look()
    assert released.starting(OVER) == [f"{OVER} 6.1 s"]
    assert watch.blocked_seconds == {"": pytest.approx(6.1)}


async def test_a_loop_that_turns_in_time_is_not_reported(released: Released) -> None:
    now = 100.0
    watch = LoopWatch(asyncio.get_running_loop(), clock=lambda: now)
    for _ in range(3):
        watch.look()
        now += 0.9
        await asyncio.sleep(0)
    assert not released.lines


def test_a_loop_that_only_waits_is_blocked_by_nobody(released: Released) -> None:
    """As after the whole process stood still: the program that runs the loop is not to blame."""
    now, asked = 100.0, threading.Event()
    loop = asyncio.new_event_loop()
    watch = LoopWatch(loop, clock=lambda: now)
    may_end = loop.create_future()

    def look() -> None:
        asked.wait()
        watch.look()
        loop.call_soon_threadsafe(may_end.set_result, None)

    looking = threading.Thread(target=look)

    watch._asked_at, watch._answered_at = now - 60, -1.0  # an answer that has not come
    looking.start()
    loop.call_soon(asked.set)
    loop.run_until_complete(may_end)
    looking.join()
    loop.close()
    assert not released.lines

"""The lease keeper's own end: a worker that renews nothing any more must not go on unseen."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import pytest

from gantline.runtime import Machine, hosted_by
from gantline.worker.lease_keeper import EXIT_STUCK, LeaseKeeper


def keeper_of(exit_process: Callable[[int], object]) -> LeaseKeeper:
    nothing: Any = lambda *anything: None  # noqa: E731
    return LeaseKeeper(
        nothing,
        "session",
        timedelta(seconds=1),
        every=timedelta(milliseconds=10),
        on_lost=nothing,
        on_cut_off=nothing,
        on_confirmed=nothing,
        on_cancel=nothing,
        exit_process=exit_process,
    )


async def test_a_keeper_that_cannot_start_says_why() -> None:
    class WithoutLoops(Machine):
        def start_loop(
            self, main: Callable[[], Coroutine[Any, Any, None]], name: str
        ) -> "Future[None]":
            ended = Future[None]()
            ended.set_exception(OSError(24, "Too many open files"))
            return ended

    with hosted_by(WithoutLoops()), pytest.raises(OSError, match="Too many open files"):
        async with asyncio.timeout(5):
            await keeper_of(lambda code: None).start()


def _fail(*anything: object) -> None:
    raise ValueError("a bug of ours")


async def _fail_later() -> None:
    _fail()


@pytest.mark.parametrize(
    ("part", "broken"),
    [
        ("_watch", lambda keeper: _fail_later()),
        ("_loop_lag", _fail),
    ],
    ids=["watching", "beating"],
)
async def test_a_keeper_that_ends_by_an_error_ends_the_process(
    part: str,
    broken: Callable[[LeaseKeeper], object],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop, code = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

    monkeypatch.setattr(LeaseKeeper, part, broken)
    keeper = keeper_of(lambda number: loop.call_soon_threadsafe(code.set_result, number))
    with caplog.at_level(logging.CRITICAL, "gantline.worker"):
        async with asyncio.timeout(5):
            await keeper.start()
            assert await code == EXIT_STUCK
    assert "renews leases" in caplog.text
    assert "a bug of ours" in caplog.text

"""@jobs.on: a function that hears of events, each at least once and in order, wherever it runs."""

import asyncio
import logging
import threading
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from gantline import Fixed, Gantline, InvalidInput, JobEvent, JobGroup, Permanent
from gantline.manager.cursors import consumers, lags
from tests.ear import PATIENCE_SECONDS
from tests.test_consumers import QUICK, eventually


class Heard:
    """What functions were called with; from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: asyncio.Queue[Any] = asyncio.Queue()

    def __call__(self, call: object) -> None:
        self._loop.call_soon_threadsafe(self._calls.put_nowait, call)

    async def next(self, number: int = 1) -> list[Any]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return [await self._calls.get() for _ in range(number)]

    @property
    def has_more(self) -> bool:
        return not self._calls.empty()


def shop(store_url: str) -> tuple[Gantline, Any, Any]:
    jobs = Gantline(store_url)

    @jobs.job("ship")
    async def ship(order: int) -> int:
        return order

    @jobs.job("bill", aliases=("invoice",), retry=Fixed(every=timedelta(0), attempts=1))
    async def bill(order: int) -> None:
        raise Permanent("NO_MONEY", "no money")

    return jobs, ship, bill


async def test_functions_hear_of_the_events_and_types_that_they_name(store_url: str) -> None:
    jobs, ship, bill = shop(store_url)
    completed, failed, everything = Heard(), Heard(), Heard()

    @jobs.on("job.completed")
    async def on_completed(event: JobEvent) -> None:
        completed((event.type, event.job.job_type))

    @jobs.on("job.failed", "job.poisoned", job_type=bill)
    def on_failed(event: JobEvent) -> None:
        assert event.entry.error is not None
        failed((event.entry.error.code, threading.current_thread() is threading.main_thread()))

    @jobs.on("job.*", job_type=("ship", bill))
    async def on_everything(event: JobEvent) -> None:
        everything(event.type)

    async with jobs, jobs.running(QUICK):
        await ship.submit(1)
        await bill.submit(1)
        assert await completed.next() == [("job.completed", "ship")]
        assert await failed.next() == [("NO_MONEY", False)]
        assert sorted(await everything.next(2)) == ["job.completed", "job.failed"]
        await eventually(lambda: _lag(jobs), 0)
    assert not any(heard.has_more for heard in (completed, failed, everything))


async def test_what_raises_is_called_again_for_the_same_event_before_the_next(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gantline.consumers.consumers._FIRST_RETRY_SECONDS", 0.01)
    jobs, ship, _ = shop(store_url)
    heard, failures = Heard(), 2

    @jobs.on("job.completed", from_start=True)
    async def tell(event: JobEvent) -> None:
        nonlocal failures
        heard(event.sequence)
        if event.sequence == 2 and failures:
            failures -= 1
            raise OSError("away")

    async with jobs, jobs.running(QUICK):
        await ship.submit_many([1, 2, 3])
        assert await heard.next(5) == [1, 2, 2, 2, 3]


async def test_what_is_refused_for_good_is_passed_over_and_said(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    jobs, ship, _ = shop(store_url)
    heard = Heard()

    @jobs.on("job.completed")
    async def tell(event: JobEvent) -> None:
        heard(event.sequence)
        if event.sequence == 1:
            raise Permanent("UNKNOWN_ORDER", "no such order")

    with caplog.at_level(logging.ERROR, "gantline.consumer"):
        async with jobs, jobs.running(QUICK):
            await ship.submit_many([1, 2])
            assert await heard.next(2) == [1, 2]
            await eventually(lambda: _lag(jobs), 0)
    assert "UNKNOWN_ORDER: no such order" in caplog.text


@pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)
async def test_a_function_of_a_group_is_heard_and_goes_on_where_it_was(store_url: str) -> None:
    heard = Heard()

    def application() -> tuple[Gantline, Any]:
        group = JobGroup()

        @group.on("job.completed", name="shop.tell")
        async def tell(event: JobEvent) -> None:
            heard(event.sequence)

        jobs, ship, _ = shop(store_url)
        jobs.include(group)
        return jobs, ship

    for sequence in (1, 2):
        jobs, ship = application()
        async with jobs, jobs.running(QUICK):
            await eventually(partial(_names, jobs), ["shop.tell"])
            await ship.submit(1)
            assert await heard.next() == [sequence]
            await eventually(partial(_lag, jobs), 0)
    assert not heard.has_more


async def test_the_name_is_the_functions_own_and_two_of_one_name_are_refused() -> None:
    jobs, *_ = shop("memory://")

    @jobs.on("job.completed")
    async def tell(event: JobEvent) -> None: ...

    assert [one.name for one in jobs.consumers] == [
        f"{__name__}.test_the_name_is_the_functions_own_and_two_of_one_name_are_refused"
        ".<locals>.tell"
    ]
    with pytest.raises(InvalidInput, match="Two consumers are named"):
        jobs.on("job.failed")(tell)
    jobs.on("job.failed", name="another")(tell)
    assert [one.name for one in jobs.consumers][1] == "another"


async def test_an_event_that_does_not_exist_is_refused_when_it_is_declared() -> None:
    jobs, *_ = shop("memory://")
    for types in (("job.done",), ("completed",), ("job.claimed",), ()):
        with pytest.raises(InvalidInput, match=r"There are job\.submitted"):
            jobs.on(*types)


async def test_a_function_of_a_script_needs_a_name() -> None:
    """Two scripts with a function of one name would each miss what the other reads."""
    jobs, *_ = shop("memory://")

    async def tell(event: JobEvent) -> None: ...

    tell.__module__ = "__main__"
    with pytest.raises(InvalidInput, match="name="):
        jobs.on("job.completed")(tell)
    jobs.on("job.completed", name="tell")(tell)


async def _lag(jobs: Gantline) -> int:
    return max((await lags(jobs.store)).values())


async def _names(jobs: Gantline) -> list[str]:
    return [one.name for one in await consumers(jobs.store)]

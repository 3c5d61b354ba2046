"""Consumers in workers: woken when jobs end, none in another's way, all given back at a stop."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gantline import Gantline, InvalidInput, WorkerSettings
from gantline.contract.job_event import JobEvent
from gantline.manager.cursors import consumers, lags
from gantline.testing.faults import Call, intercepted
from tests.ear import PATIENCE_SECONDS

QUICK = WorkerSettings(queues={"default": 10}, drain=timedelta(0), maintain_every=None)


class Listener:
    """Takes every event, and can be waited for."""

    def __init__(self, name: str = "listener") -> None:
        self.name = name
        self.taken: list[JobEvent] = []
        self._changed = asyncio.Condition()

    async def consume(self, events: Sequence[JobEvent]) -> None:
        async with self._changed:
            self.taken += events
            self._changed.notify_all()

    async def has(self, number: int) -> list[JobEvent]:
        async with asyncio.timeout(PATIENCE_SECONDS), self._changed:
            await self._changed.wait_for(lambda: len(self.taken) >= number)
        return self.taken


class Broken(Listener):
    """Never takes anything."""

    def __init__(self, name: str = "broken") -> None:
        super().__init__(name)
        self.called = asyncio.Event()

    async def consume(self, events: Sequence[JobEvent]) -> None:
        self.called.set()
        raise RuntimeError("the receiver is down")


class Hanging(Broken):
    """Never comes back by itself."""

    def __init__(self) -> None:
        super().__init__("hanging")
        self.was_stopped = False

    async def consume(self, events: Sequence[JobEvent]) -> None:
        self.called.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_stopped = True
            raise


def shop(store: Any, *listeners: Listener) -> tuple[Gantline, Any]:
    jobs = Gantline(store)
    for listener in listeners:  # from the start, for jobs may be there before the worker is
        jobs.add_consumer(listener, from_start=True)

    @jobs.job("ship")
    async def ship(order: int) -> int:
        return order

    return jobs, ship


async def eventually(ask: Callable[[], Awaitable[Any]], answer: object) -> None:
    """Ask until the answer comes, which nothing tells of."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await ask() != answer:  # noqa: ASYNC110  # there is no signal
            await asyncio.sleep(0.01)


async def test_a_worker_runs_the_consumers_that_the_application_declares(store_url: str) -> None:
    listener = Listener()
    jobs, ship = shop(store_url, listener)
    async with jobs, jobs.running(QUICK):
        handles = await ship.submit_many(list(range(20)))
        events = await listener.has(20)
    assert {event.job.job_id for event in events} == {handle.job_id for handle in handles}
    assert [event.sequence for event in events] == list(range(1, 21))
    assert {event.type for event in events} == {"job.completed"}
    told = [msgspec.json.decode(msgspec.json.encode(event.document())) for event in events]
    assert sorted(one["result"] for one in told) == list(range(20))


async def test_what_happens_elsewhere_is_found_too(store_url: str) -> None:
    """A cancel is written by no worker, and numbered by none."""
    listener = Listener()
    jobs, ship = shop(store_url, listener)
    async with jobs, jobs.running(QUICK):
        handle = await ship.submit(1, delay=timedelta(hours=1))
        await jobs.manager.cancel([handle.job_id], tenant_id=None, actor="op")
        (event,) = await listener.has(1)
    assert (event.type, event.entry.actor) == ("job.cancelled", "op")


async def test_one_that_fails_and_one_that_hangs_delay_only_themselves(store_url: str) -> None:
    broken, hanging, well = Broken(), Hanging(), Listener()
    jobs, ship = shop(store_url, broken, hanging, well)
    async with jobs, jobs.running(QUICK):
        await ship.submit(1)
        await well.has(1)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await broken.called.wait()
            await hanging.called.wait()
        await (await ship.submit(2)).wait(timeout=PATIENCE_SECONDS)
        await well.has(2)
        await eventually(lambda: lags(jobs.store), {"broken": 2, "hanging": 2, "listener": 0})
    assert hanging.was_stopped


async def test_a_stop_lets_the_page_in_hand_be_taken_and_gives_the_lead_back(
    store_url: str,
) -> None:
    listener, started, may_end = Listener(), asyncio.Event(), asyncio.Event()

    class Slow(Listener):
        async def consume(self, events: Sequence[JobEvent]) -> None:
            started.set()
            await may_end.wait()
            await listener.consume(events)

    jobs, ship = shop(store_url, Slow())
    settings = WorkerSettings(drain=timedelta(seconds=PATIENCE_SECONDS), maintain_every=None)
    async with jobs, jobs.working(settings) as worker:
        running = asyncio.create_task(worker.run())
        await asyncio.sleep(0)
        await ship.submit(1)
        await started.wait()
        worker.stop()
        assert not running.done()
        may_end.set()
        await running
        assert len(listener.taken) == 1
        assert await lags(jobs.store) == {"listener": 0}
        taken_over = await jobs.store.lead("consumer:listener", "next", lease=timedelta(hours=1))
        assert taken_over is not None


async def test_who_stops_at_once_does_not_wait_for_a_consumer() -> None:
    hanging = Hanging()
    jobs, ship = shop("memory://", hanging)
    settings = WorkerSettings(drain=timedelta(hours=1), maintain_every=None)
    async with jobs, jobs.working(settings) as worker:
        running = asyncio.create_task(worker.run())
        await ship.submit(1)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await hanging.called.wait()
            worker.stop_now()
            await running
    assert hanging.was_stopped


async def test_without_consumers_nothing_is_asked_for_them() -> None:
    verbs: set[str] = set()
    looked_often = asyncio.Event()
    calls = 0

    async def around(verb: str, call: Call) -> Any:
        nonlocal calls
        verbs.add(verb)
        calls += verb == "claim"
        if calls > 5:
            looked_often.set()
        return await call()

    jobs, _ = shop("memory://")
    jobs.move_to(intercepted(jobs.store, around))
    async with jobs, jobs.running(QUICK), asyncio.timeout(PATIENCE_SECONDS):
        await looked_often.wait()
    assert not verbs & {"events", "last_event", "lead", "sequence"}


async def test_operators_see_which_workers_run_a_consumer() -> None:
    listener = Listener()
    jobs, _ = shop("memory://", listener)

    async def run_by() -> list[int]:
        return [one.run_by for one in await consumers(jobs.store)]

    async with jobs:
        async with jobs.running(QUICK):
            await eventually(run_by, [1])
        assert await run_by() == [0]


async def test_two_consumers_of_one_name_are_refused() -> None:
    jobs = Gantline("memory://")
    jobs.add_consumer(Listener())
    with pytest.raises(InvalidInput, match="Two consumers are named 'listener'"):
        jobs.add_consumer(Listener())
    assert [one.name for one in jobs.consumers] == ["listener"]
    with pytest.raises(InvalidInput, match="has no name"):
        jobs.add_consumer(Listener(""))

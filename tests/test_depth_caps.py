"""Depth caps on every store: of all tenants, of each, and what a tenant may have in all."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Unpack

import pytest

from gantline import Gantline, JobDefaults
from gantline.app.declare import JobOptions
from gantline.app.job_type import JobType
from gantline.contract.errors import QueueFull
from gantline.contract.query import LaneCounts
from gantline.manager import admission
from gantline.stores.memory import MemoryStore
from gantline.testing import FakeClock
from gantline.testing.factories import make_new

HOUR = timedelta(hours=1)


class Moments:
    """The monotonic clock of admission: what the store said lasts until the test moves on."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds

    def pass_by(self) -> None:
        self.seconds += 2


@pytest.fixture
def moments(monkeypatch: pytest.MonkeyPatch) -> Moments:
    made = Moments()
    monkeypatch.setattr(admission, "monotonic", made)
    return made


class Shop:
    """An application with one job type, on an empty store."""

    def __init__(self, url: str, clock: FakeClock, options: JobOptions) -> None:
        self.clock = clock
        self.jobs = Gantline(url, defaults=JobDefaults(tenant="own"))
        self.jobs.move_to(url, clock=clock)

        @self.jobs.job("order", **options)
        async def order(number: int) -> None: ...

        self.order: JobType[[int], None] = order

    async def has_room(self, tenant: str, *, jobs: int = 1, delay: timedelta | None = None) -> bool:
        try:
            await self.order.submit_many(range(jobs), tenant=tenant, delay=delay)
        except QueueFull:
            return False
        return True


@asynccontextmanager
async def opened(url: str, **options: Unpack[JobOptions]) -> AsyncIterator[Shop]:
    shop = Shop(url, FakeClock(), options)
    async with shop.jobs:
        yield shop


# -- a share of each tenant -----------------------------------------------------------------------


async def test_a_tenant_that_has_filled_its_share_of_a_type_leaves_room_for_others(
    store_url: str, moments: Moments
) -> None:
    async with opened(store_url, max_depth=5, max_depth_per_tenant=2) as shop:
        assert await shop.has_room("a", jobs=2)
        for _ in range(2):
            assert not await shop.has_room("a")
            assert not await shop.has_room("b", jobs=3)
            moments.pass_by()
        with pytest.raises(QueueFull, match="2 jobs of a tenant of type 'order' may wait, and"):
            await shop.order.submit(1, tenant="a")
        assert await shop.has_room("b", jobs=2)
        assert await shop.has_room("c")
        assert not await shop.has_room("d")  # the total


async def test_a_tenant_that_has_filled_its_share_of_a_queue_leaves_room_for_others(
    store_url: str, moments: Moments
) -> None:
    async with opened(store_url) as shop:
        await shop.jobs.switches.cap_queue("default", 3, per_tenant=2)
        assert await shop.has_room("a", jobs=2)
        moments.pass_by()
        assert not await shop.has_room("a")
        assert await shop.has_room("b")
        assert not await shop.has_room("c")
        await shop.jobs.switches.cap_queue("default", None)
        assert not await shop.has_room("a")
        with pytest.raises(QueueFull, match="2 jobs of a tenant may wait in the queue 'default'"):
            await shop.order.submit(1, tenant="a")
        await shop.jobs.switches.cap_queue("default", None, per_tenant=None)
        assert await shop.has_room("a")


# -- jobs that are not due ------------------------------------------------------------------------


async def test_jobs_that_are_not_due_yet_fill_no_cap(store_url: str, moments: Moments) -> None:
    async with opened(store_url, max_depth=2, max_depth_per_tenant=2) as shop:
        await shop.jobs.switches.cap_queue("default", 2, per_tenant=2)
        assert await shop.has_room("a", jobs=5, delay=HOUR)
        assert await shop.has_room("a")
        moments.pass_by()
        assert await shop.has_room("a")
        assert not await shop.has_room("a")


async def test_a_full_queue_takes_none_for_later_either(store_url: str, moments: Moments) -> None:
    """Otherwise a delay of a second would be the way around a cap."""
    async with opened(store_url, max_depth=1) as shop:
        assert await shop.has_room("a")
        assert not await shop.has_room("a", delay=HOUR)


async def test_jobs_fill_a_cap_when_they_are_due(store_url: str, moments: Moments) -> None:
    async with opened(store_url, max_depth=2) as shop:
        assert await shop.has_room("a", jobs=2, delay=HOUR)
        shop.clock.advance(HOUR)
        moments.pass_by()
        assert not await shop.has_room("a")


# -- what a tenant may have -----------------------------------------------------------------------


async def test_a_tenant_may_have_so_many_jobs_waiting_and_as_many_for_later(
    store_url: str, moments: Moments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTLINE_WAITING_PER_TENANT", "3")
    async with opened(store_url) as shop:
        assert await shop.has_room("a", jobs=3)
        assert await shop.has_room("a", jobs=3, delay=HOUR)
        for _ in range(2):
            with pytest.raises(QueueFull, match=r"3 jobs of a tenant may wait, and no more\."):
                await shop.order.submit(1, tenant="a")
            with pytest.raises(QueueFull, match="3 jobs of a tenant may wait for later, and"):
                await shop.order.submit(1, tenant="a", delay=HOUR)
            moments.pass_by()
        assert await shop.has_room("b")
        assert await shop.has_room("own", jobs=9)  # the application's own tenant


async def test_what_other_processes_submitted_counts_for_a_tenant(
    store_url: str, moments: Moments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTLINE_WAITING_PER_TENANT", "3")
    async with opened(store_url) as shop:
        await shop.jobs.store.insert([make_new(tenant_id="a") for _ in range(3)])
        assert not await shop.has_room("a")
        assert await shop.has_room("b")


async def test_there_is_room_again_when_the_jobs_have_run(
    store_url: str, moments: Moments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTLINE_WAITING_PER_TENANT", "300")
    async with opened(store_url) as shop:
        assert await shop.has_room("a", jobs=300)
        assert not await shop.has_room("a")
        await shop.jobs.store.clear()
        assert not await shop.has_room("a")  # it was asked a moment ago
        moments.pass_by()
        assert await shop.has_room("a")


class Gated(MemoryStore):
    """Counts when the test lets it: each reader at his own gate."""

    def __init__(self) -> None:
        super().__init__(clock=FakeClock())
        self.readers: list[asyncio.Event] = []
        self.asked = asyncio.Semaphore(0)

    async def counts(self, *, tenant_id: str | None) -> list[LaneCounts]:
        counted = await super().counts(tenant_id=tenant_id)
        self.readers.append(gate := asyncio.Event())
        self.asked.release()
        await gate.wait()
        return counted


async def test_callers_who_are_first_at_the_same_time_each_pass(moments: Moments) -> None:
    store = Gated()
    app = Gantline(store)

    @app.job("order", max_depth=3)
    async def order(number: int) -> None: ...

    async with app, asyncio.TaskGroup() as callers:
        first = callers.create_task(order.submit(1))
        second = callers.create_task(order.submit(2))
        await store.asked.acquire()
        await store.asked.acquire()
        store.readers[1].set()
        await second
        await order.submit(3)
        store.readers[0].set()
        await first
        with pytest.raises(QueueFull):
            await order.submit(4)


@pytest.mark.parametrize("text", ["-1", "x", "0.5"])
def test_a_number_that_is_none_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANTLINE_WAITING_PER_TENANT", text)
    with pytest.raises(ValueError, match="waiting_per_tenant"):
        Gantline("memory://")


# -- what it costs --------------------------------------------------------------------------------


class Counted(MemoryStore):
    """Knows how often it was asked to count."""

    def __init__(self) -> None:
        super().__init__(clock=FakeClock())
        self.asked = 0

    async def counts(self, *, tenant_id: str | None) -> list[LaneCounts]:
        self.asked += 1
        return await super().counts(tenant_id=tenant_id)


async def submit_over_hours(moments: Moments, *, tenant: str, jobs: int) -> int:
    """How often the store was asked to count."""
    store = Counted()
    app = Gantline(store)

    @app.job("order")
    async def order(number: int) -> None: ...

    async with app:
        for number in range(jobs):
            await order.submit(number, tenant=tenant)
            moments.pass_by()
    return store.asked


async def test_without_caps_the_store_is_never_asked_how_many_wait(moments: Moments) -> None:
    assert await submit_over_hours(moments, tenant="default", jobs=50) == 0
    assert await submit_over_hours(moments, tenant="another", jobs=50) == 0


async def test_what_a_tenant_may_have_is_looked_at_when_a_hundredth_has_passed(
    moments: Moments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTLINE_WAITING_PER_TENANT", "1000")
    assert await submit_over_hours(moments, tenant="another", jobs=35) == 3

"""Whose turn it is: an endpoint that is slow, busy or down takes nobody else's."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from itertools import pairwise
from uuid import UUID, uuid4

import pytest

from gantline import Gantline, WorkerSettings
from gantline.contract.job import DELIVERY_QUEUE
from gantline.contract.webhook import WebhookSpec
from gantline.webhooks.concurrency import EndpointLimits, TenantQuotas
from tests.servers.receiver import Receiver, status
from tests.webhooks.shop import make_jobs

TENANT = "acme"
HOOK = UUID(int=1)


def take(limits: EndpointLimits, now: float, concurrency: int = 4) -> tuple[UUID, float | None]:
    run = uuid4()
    return run, limits.acquire(TENANT, HOOK, run, concurrency=concurrency, now=now)


def end(
    limits: EndpointLimits, run: UUID, now: float, *, is_up: bool = True, hold: float = 0.0
) -> None:
    limits.release(TENANT, HOOK, run, is_up=is_up, pause_seconds=hold, now=now)


def test_so_many_at_once_and_no_more() -> None:
    limits = EndpointLimits()
    taken = [take(limits, 0.0) for _ in range(6)]
    assert [wait is None for _, wait in taken] == [True] * 4 + [False] * 2
    end(limits, taken[0][0], 0.1)
    assert take(limits, 0.1)[1] is None
    limits.abandon(TENANT, HOOK, taken[1][0], now=0.1)
    assert take(limits, 0.1)[1] is None


def test_a_backlog_spreads_over_the_time_that_it_will_take() -> None:
    """So that each delivery asks a few times, and not a thousand times in vain."""
    limits = EndpointLimits()
    for _ in range(4):
        take(limits, 0.0)
    for now, least, most in ((0.0, 2, 10), (2.0, 400, 600)):  # two seconds each, four at a time
        waits = [wait for _, wait in (take(limits, now) for _ in range(1000)) if wait is not None]
        assert len(waits) == 1000
        assert all(first <= second for first, second in pairwise(waits))
        assert least < waits[-1] < most


def test_no_wait_is_longer_than_a_quarter_of_an_hour() -> None:
    """A delivery may be put off a thousand times: ten days."""
    limits = EndpointLimits()
    (run, _) = take(limits, 0.0)
    end(limits, run, 30.0, hold=86_400)
    waits = [take(limits, 30.0)[1] for _ in range(10_000)]
    assert max(wait or 0.0 for wait in waits) == 900


def test_a_slow_endpoint_gets_a_quarter_of_its_turns() -> None:
    limits = EndpointLimits()
    limits.quotas.slots = 20
    first, _ = take(limits, 0.0, 8)
    assert take(limits, 2.0, 8)[1] is None
    assert take(limits, 4.0, 8)[1] is not None, "while one takes long"
    end(limits, first, 30.0)
    assert take(limits, 31.0, 8)[1] is None
    assert take(limits, 31.0, 8)[1] is not None, "when one has taken long"


def test_an_endpoint_that_is_down_is_tried_by_one_now_and_then() -> None:
    limits, now = EndpointLimits(), 0.0
    for _ in range(4):
        run, wait = take(limits, now)
        assert wait is None
        end(limits, run, now, is_up=False)
    run, _ = take(limits, now)
    end(limits, run, now, is_up=False)
    pauses = []
    for _ in range(8):
        _, wait = take(limits, now)
        assert wait is not None
        pauses.append(round(wait))
        now += wait + 1
        run, wait = take(limits, now)
        assert wait is None
        assert take(limits, now)[1] is not None, "one at a time"
        end(limits, run, now, is_up=False)
    assert pauses == [30, 60, 120, 240, 480, 900, 900, 900]
    now += 901
    run, _ = take(limits, now)
    end(limits, run, now)
    assert [take(limits, now)[1] for _ in range(4)] == [None] * 4, "it is up again"


def test_what_is_not_asked_for_any_more_is_forgotten() -> None:
    """Endpoints come and go, and a worker lives for months."""
    limits = EndpointLimits()
    held, _ = take(limits, 0.0)
    for number in range(100):
        run = uuid4()
        limits.acquire(f"t{number}", UUID(int=number + 2), run, concurrency=4, now=1.0)
        limits.abandon(f"t{number}", UUID(int=number + 2), run, now=1.0)
    for now in (2000.0, 4000.0):
        limits.acquire("new", UUID(int=999), uuid4(), concurrency=4, now=now)
    assert limits._endpoints.keys() == {HOOK, UUID(int=999)}, "what is under way is kept"
    assert limits.quotas._tenants.keys() == {TENANT, "new"}
    end(limits, held, 4000.0)


def acquire_all(quotas: TenantQuotas, tenant: str, now: float, *, is_proven: bool) -> list[UUID]:
    """All that a tenant is given at once."""
    taken = list[UUID]()
    while quotas.acquire(tenant, run := uuid4(), is_proven=is_proven, now=now) is None:
        taken.append(run)
    return taken


def test_what_has_not_proved_to_be_quick_has_half_of_the_slots() -> None:
    quotas = TenantQuotas(10)
    assert len(acquire_all(quotas, "a", 0.0, is_proven=False)) == 5
    assert len(acquire_all(quotas, "a", 0.0, is_proven=True)) == 5, "and the rest is the others'"
    assert len(acquire_all(TenantQuotas(1), "a", 0.0, is_proven=False)) == 1


def test_a_tenant_that_was_slow_has_half_of_the_slots_while_there_are_others() -> None:
    quotas = TenantQuotas(10)
    for run in acquire_all(quotas, "a", 0.0, is_proven=True):
        quotas.release("a", run, now=30.0)
    taken = acquire_all(quotas, "a", 31.0, is_proven=True)
    assert len(taken) == 10, "alone it may have all"
    for run in taken:
        quotas.release("a", run, now=31.1)
    assert len(acquire_all(quotas, "b", 32.0, is_proven=True)) == 10, "it was never slow"
    taken = acquire_all(quotas, "a", 33.0, is_proven=True)
    assert len(taken) == 5
    for run in taken:
        quotas.release("a", run, now=33.1)
    assert len(acquire_all(quotas, "a", 700.0, is_proven=True)) == 10, "long ago"


def test_who_has_no_share_left_asks_at_the_pace_of_what_is_under_way() -> None:
    quotas = TenantQuotas(10)
    acquire_all(quotas, "a", 0.0, is_proven=False)
    waits = [quotas.acquire("a", uuid4(), is_proven=False, now=20.0) or 0.0 for _ in range(1000)]
    assert waits[0] == 2.0
    assert 60 < sum(waits) / len(waits) < 120 == max(waits)


# -- with a real worker and a real receiver --------------------------------------------------------


@asynccontextmanager
async def working(jobs: Gantline) -> AsyncIterator[None]:
    settings = WorkerSettings(
        queues={"default": 10, DELIVERY_QUEUE: 10}, drain=timedelta(0), poll=timedelta(seconds=0.1)
    )
    async with jobs, jobs.running(settings):
        yield


@pytest.mark.parametrize("trouble", ["hangs", "drips", "500", "refuses", "redirects"])
async def test_other_endpoints_do_not_notice(receiver: Receiver, trouble: str) -> None:
    """A hundred deliveries to one that is in trouble stand before those to one that is well."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        if trouble == "hangs":
            receiver.over.wait(60)
        elif trouble == "drips":
            while not receiver.over.wait(0.05):
                request.wfile.write(b"H")
        elif trouble == "500":
            status(500)(request)
        else:
            status(302, location=receiver.url("/inside"))(request)

    receiver.answers["/bad"] = answer
    bad = "http://127.0.0.1:1/" if trouble == "refuses" else receiver.url("/bad")
    jobs = make_jobs()
    ship = jobs.find_type("ship")
    assert ship is not None
    assert jobs.webhooks is not None
    async with working(jobs):
        webhooks = jobs.webhooks
        for tenant, url in (("bad", bad), ("good", receiver.url("/good"))):
            spec = WebhookSpec(url=url, concurrency=4)
            await webhooks.create(spec, tenant_id=tenant, actor="")
        await ship.submit_many([{"order": "o"}] * 100, tenant="bad")
        if trouble != "refuses":
            await asyncio.to_thread(
                receiver.wait_for, lambda got: any(one.path == "/bad" for one in got)
            )
        began = time.monotonic()
        await ship.submit_many([{"order": "o"}] * 20, tenant="good")
        await asyncio.to_thread(
            receiver.wait_for, lambda got: sum(one.path == "/good" for one in got) == 20
        )
        took = time.monotonic() - began
        assert took < 15, "behind those that hang it would be minutes"
        assert not receiver.at("/inside")


@pytest.mark.parametrize("trouble", ["many that hang", "one that takes all", "tests"])
async def test_no_tenant_can_take_all_slots(receiver: Receiver, trouble: str) -> None:
    """Ten slots: more than ten endpoints that hang, one that wants a hundred at once and answers
    slowly but well, or a flood of tests."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        receiver.over.wait(60)
        status(200)(request)

    receiver.answers["/bad"] = answer
    jobs = make_jobs()
    ship = jobs.find_type("ship")
    assert ship is not None
    webhooks = jobs.webhooks
    assert webhooks is not None
    async with working(jobs):
        wide = 100 if trouble == "one that takes all" else 4
        bad = [
            await webhooks.create(
                WebhookSpec(url=receiver.url("/bad"), concurrency=wide), tenant_id="bad", actor=""
            )
            for _ in range(30 if trouble == "many that hang" else 1)
        ]
        spec = WebhookSpec(url=receiver.url("/good"))
        await webhooks.create(spec, tenant_id="good", actor="")
        if trouble == "tests":
            for _ in range(30):
                await webhooks.test(bad[0].webhook.webhook_id, tenant_id="bad", actor="")
        else:
            await ship.submit_many([{"order": "o"}] * 30, tenant="bad")
        await asyncio.to_thread(
            receiver.wait_for, lambda got: sum(one.path == "/bad" for one in got) >= 5
        )
        began = time.monotonic()
        await ship.submit_many([{"order": "o"}] * 20, tenant="good")
        await asyncio.to_thread(
            receiver.wait_for, lambda got: sum(one.path == "/good" for one in got) == 20
        )
        assert time.monotonic() - began < 15
        assert len(receiver.at("/bad")) == 5, "half of the slots"

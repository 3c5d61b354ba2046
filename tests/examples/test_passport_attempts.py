"""The battery passport's webhooks are tried as its specification says: five times in 30 seconds."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from examples.battery_passport.assembly import make_jobs
from examples.battery_passport.receiver import Receiver as Customer
from gantline.contract.webhook import DeliveryStatus, ListedDelivery
from gantline.testing.kit import JobsTest
from tests.examples.passports import TENANT, upload
from tests.servers.receiver import Receiver, status
from tests.webhooks.shop import settings


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.stop()


async def test_a_receiver_that_stays_away_is_tried_five_times(receiver: Receiver) -> None:
    jobs = make_jobs("memory://", webhooks=settings())
    receiver.answers["/"] = status(503)
    async with JobsTest(jobs) as kit:
        webhook_id = await Customer().register(jobs, TENANT, receiver.url())
        webhooks = jobs.webhooks
        assert webhooks is not None
        assert webhook_id is not None
        await kit.drain()
        await upload(jobs, "nordcell-ev")
        await kit.drain()

        async def listed() -> list[ListedDelivery]:
            return (await webhooks.deliveries(webhook_id, tenant_id=TENANT, limit=10))[0]

        while waiting := [one.next_attempt_at for one in await listed() if one.next_attempt_at]:
            kit.clock.advance(min(waiting) - kit.clock.now())
            await kit.drain()
        deliveries = await listed()
        assert deliveries
        for one in deliveries:
            assert (one.status, one.attempts, one.max_attempts) == (DeliveryStatus.FAILED, 5, 5)
            delivery = await webhooks.delivery(webhook_id, one.delivery_id, tenant_id=TENANT)
            ended = [tried.ended_at for tried in delivery.tries]
            waits = [(after - before).total_seconds() for before, after in pairwise(ended)]
            assert all(wait >= least for wait, least in zip(waits, (2, 4, 8, 16), strict=True))
    assert len(receiver.received) == 5 * len(deliveries)
    assert {one.headers["content-type"] for one in receiver.received} == {"application/json"}

"""What arrives: signed, in the form that was asked for, once per endpoint and event."""

import hashlib
import hmac
import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from gantline import Gantline
from gantline.contract.errors import InvalidInput, StoreUnavailable
from gantline.contract.webhook import BodyFormat, DeliveryStatus, WebhookSpec
from gantline.webhooks import verify
from gantline.webhooks.bodies import LARGEST
from tests.servers.receiver import Received, Receiver, status
from tests.webhooks.shop import Shop, make_jobs, open_shop


@pytest.fixture(autouse=True)
def standard_library_by_our_clock(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library reads the system's clock, and ours stands still."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]  # as it is called
            return shop.kit.clock.now()

    monkeypatch.setattr("standardwebhooks.webhooks.datetime", Clock)


async def test_an_outcome_is_delivered_and_verifies(shop: Shop) -> None:
    issued = await shop.endpoint()
    job_id = await shop.ship()
    assert (await shop.work()).completed == 1
    (received,) = shop.receiver.received
    told = Webhook(issued.secret).verify(received.body, received.headers)
    assert told["type"] == "job.completed"
    assert told["data"]["jobId"] == str(job_id)
    assert told["data"]["status"] == "Completed"
    assert told["data"]["result"] == {"parcel": 7}
    assert "payload" not in told["data"]
    verified = verify(received.body, received.headers, issued.secret, now=shop.kit.clock.now())
    delivery = await shop.delivery(issued)
    assert verified.webhook_id == str(delivery.delivery_id)
    assert delivery.status is DeliveryStatus.DELIVERED
    assert (delivery.job_id, delivery.http_status, delivery.attempts) == (job_id, 204, 1)
    assert delivery.body.encode() == received.body
    assert received.headers["x-gantline-event-type"] == "job.completed"
    assert received.headers["x-gantline-delivery-id"] == verified.webhook_id


@pytest.mark.parametrize("form", list(BodyFormat))
async def test_a_receiver_is_not_told_the_trace_of_a_job(shop: Shop, form: BodyFormat) -> None:
    """It is of the caller's own systems, which the receiver of a webhook need not know."""
    trace = "0af7651916cd43dd8448eb211c80319c"
    await shop.endpoint(format=form)
    carrier = {"traceparent": f"00-{trace}-b7ad6b7169203331-01", "tracestate": "vendor=secret"}
    await shop.ship(trace_context=carrier)
    await shop.work()
    (received,) = shop.receiver.received
    assert not {"traceparent", "tracestate"} & received.headers.keys()
    told = f"{received.headers} {received.body!r}"
    assert trace not in told
    assert "vendor=secret" not in told


async def test_seed_002_comes_out_exactly(shop: Shop) -> None:
    issued = await shop.endpoint(format=BodyFormat.BPC, header_prefix="X-BPC")
    job_id = await shop.ship()
    await shop.work()
    (received,) = shop.receiver.received
    body = json.loads(received.body)
    assert list(body) == [
        *("event_id", "event_type", "aggregate_type", "aggregate_id", "occurred_at", "payload")
    ]
    assert (body["event_type"], body["aggregate_type"]) == ("JOB_COMPLETED", "Job")
    assert body["aggregate_id"] == str(job_id)
    assert body["occurred_at"] == "2026-01-01T12:00:00Z"
    assert body["payload"]["job_type"] == "ship"
    expected = hmac.new(issued.secret.encode(), received.body, hashlib.sha256).hexdigest()
    provided = received.headers["x-bpc-signature"].removeprefix("sha256=")
    assert hmac.compare_digest(expected, provided)
    assert received.headers["x-bpc-event-type"] == "JOB_COMPLETED"
    assert received.headers["x-bpc-delivery-id"] == received.webhook_id
    assert not [name for name in received.headers if name.startswith("x-gantline")]


async def test_the_sdk_of_cloudevents_reads_the_cloudevents_form(shop: Shop) -> None:
    await shop.endpoint(format=BodyFormat.CLOUDEVENTS)
    job_id = await shop.ship(subject="order o1")
    await shop.work()
    (received,) = shop.receiver.received
    assert received.headers["content-type"] == "application/cloudevents+json"
    event = JSONFormat().read(CloudEvent, received.body)
    assert event.get_type() == "gantline.job.completed"
    assert event.get_source() == "/gantline"
    assert event.get_subject() == "order o1"
    assert event.get_time() == shop.kit.clock.now()
    assert event.get_extension("sequence") is None  # it counts the events of all tenants
    assert event.get_data()["jobId"] == str(job_id)  # type: ignore[call-overload, index]  # a dict


async def test_while_a_secret_is_rotated_both_verify_and_afterwards_only_the_new(
    shop: Shop,
) -> None:
    old = await shop.endpoint()
    webhook = old.webhook
    new = await shop.webhooks.rotate(
        webhook.webhook_id, tenant_id=webhook.tenant_id, overlap=timedelta(hours=24), actor="me"
    )
    assert new.webhook.old_secret_until == shop.kit.clock.now() + timedelta(hours=24)
    await shop.ship()
    await shop.work()
    (received,) = shop.receiver.received
    for secret in (old.secret, new.secret):
        Webhook(secret).verify(received.body, received.headers)
    for name, secret in (("signature", new.secret), ("signature-previous", old.secret)):
        expected = hmac.new(secret.encode(), received.body, hashlib.sha256).hexdigest()
        assert received.headers[f"x-gantline-{name}"] == f"sha256={expected}"
    shop.kit.clock.advance(timedelta(hours=25))
    await shop.ship()
    await shop.work()
    received = shop.receiver.received[-1]
    Webhook(new.secret).verify(received.body, received.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(old.secret).verify(received.body, received.headers)
    assert "x-gantline-signature-previous" not in received.headers


async def test_a_rotation_between_the_tries_of_a_delivery_counts_for_the_next_try(
    shop: Shop,
) -> None:
    """What is signed is the try; what is delivered stays the same."""
    shop.receiver.answers["/"] = status(500)
    first = await shop.endpoint(retry_seconds=(60.0,) * 5)
    webhook_id = first.webhook.webhook_id
    await shop.ship()
    await shop.work()

    async def rotated(overlap: timedelta) -> str:
        issued = await shop.webhooks.rotate(
            webhook_id, tenant_id="default", overlap=overlap, actor="me"
        )
        return issued.secret

    async def signers(*secrets: str) -> list[str]:
        """Try again, and tell which of these secrets verify it."""
        shop.kit.clock.advance(80)
        await shop.kit.drain()
        return [secret for secret in secrets if _verifies(secret, shop.receiver.received[-1])]

    second = await rotated(timedelta(minutes=2))
    assert await signers(first.secret, second) == [first.secret, second]
    assert await signers(first.secret, second) == [second], "the overlap is over"
    third, fourth = await rotated(timedelta(hours=1)), await rotated(timedelta(hours=1))
    assert await signers(first.secret, second, third, fourth) == [third, fourth]
    fifth = await rotated(timedelta(0))
    shop.receiver.answers.clear()
    assert await signers(first.secret, second, third, fourth, fifth) == [fifth]
    assert (await shop.delivery(first)).status is DeliveryStatus.DELIVERED
    assert len({(one.webhook_id, one.body) for one in shop.receiver.received}) == 1


def _verifies(secret: str, received: Received) -> bool:
    try:
        Webhook(secret).verify(received.body, received.headers)
    except WebhookVerificationError:
        return False
    return True


async def test_endpoints_are_told_what_they_asked_for(shop: Shop) -> None:
    await shop.endpoint("/all", event_types=("job.*",))
    await shop.endpoint("/failed", event_types=("job.failed",))
    await shop.endpoint("/mail", job_types=("mail",))
    await shop.endpoint("/other", tenant="other")
    await shop.ship({"order": "o1", "fails": True})
    await shop.ship({"order": "o2", "tries": True})
    mail = shop.jobs.find_type("mail")
    assert mail is not None
    await mail.submit({})
    await mail.submit({}, tenant="other")
    await shop.work()

    def types(path: str) -> list[str]:
        return sorted(json.loads(one.body)["type"] for one in shop.receiver.at(path))

    assert types("/all") == ["job.completed", "job.failed", "job.retried"]
    assert types("/failed") == ["job.failed"]
    assert types("/mail") == ["job.completed"]
    assert types("/other") == ["job.completed"]


async def test_an_endpoint_is_not_told_what_happened_before_it_was_made(shop: Shop) -> None:
    await shop.ship()
    await shop.kit.drain()
    shop.kit.clock.advance(1)
    await shop.endpoint()
    await shop.work()
    assert shop.receiver.received == []


async def test_a_clock_that_is_set_back_hides_no_event_from_an_endpoint(shop: Shop) -> None:
    """Found by the simulation: seed 12."""
    await shop.endpoint()
    shop.kit.clock.shift(timedelta(hours=-1))
    await shop.ship()
    await shop.work()
    assert len(shop.receiver.received) == 1


async def test_reading_the_events_twice_delivers_nothing_twice(shop: Shop) -> None:
    issued = await shop.endpoint()
    await shop.ship()
    await shop.kit.drain()
    await shop.told()
    await shop.read_again()
    spec = WebhookSpec(url=shop.receiver.url(), format=BodyFormat.BPC)
    await shop.webhooks.update(issued.webhook.webhook_id, spec, tenant_id="default", actor="me")
    await shop.read_again()
    await shop.work()
    (received,) = shop.receiver.received
    assert json.loads(received.body)["type"] == "job.completed", "the first that was stored stands"
    await shop.read_again()
    await shop.work()
    assert len(shop.receiver.received) == 1


async def test_a_delivery_that_is_repeated_has_the_same_id_and_body(shop: Shop) -> None:
    """The run breaks when the receiver has it, before that is written down."""
    await shop.endpoint()
    await shop.ship({"order": "o1", "result": {"text": "ž" * 100}})
    await shop.kit.drain()
    await shop.told()
    shop.kit.crash_after("write_records")  # how the endpoint does, behind the sending
    assert (await shop.kit.drain()).retried == 1
    shop.kit.clock.advance(timedelta(minutes=1))
    assert (await shop.kit.drain()).completed == 1
    first, second = shop.receiver.received
    assert first.webhook_id == second.webhook_id
    assert first.body == second.body
    assert first.headers["webhook-timestamp"] != second.headers["webhook-timestamp"]


async def test_deliveries_raise_no_webhooks(shop: Shop) -> None:
    await shop.endpoint("/a", event_types=("job.*",))
    await shop.endpoint("/b", event_types=("job.*",))
    await shop.ship()
    for _ in range(3):
        await shop.work()
    assert len(shop.receiver.received) == 2


async def test_what_a_type_asks_for_is_told_too(shop: Shop) -> None:
    @shop.jobs.job("slow", events=("submitted", "started"))
    async def slow(order: int) -> None:
        """Take a while."""

    await shop.endpoint(event_types=("job.*",))
    await slow.submit(1)
    await shop.work()
    told = [json.loads(one.body)["type"] for one in shop.receiver.received]
    assert sorted(told) == ["job.completed", "job.started", "job.submitted"]


async def test_a_result_that_is_too_large_is_left_out(shop: Shop) -> None:
    await shop.endpoint("/standard")
    await shop.endpoint("/cloudevents", format=BodyFormat.CLOUDEVENTS)
    await shop.endpoint("/bpc", format=BodyFormat.BPC)
    await shop.ship({"order": "o1", "result": ['"' * 8000]})
    await shop.ship({"order": "o2", "result": ["x" * 16_000]})
    await shop.work()
    bodies = {one.body for one in shop.receiver.received}
    assert len(bodies) == 6
    assert all(len(body) <= LARGEST for body in bodies)


async def test_nobody_can_submit_a_delivery_or_declare_its_type(shop: Shop) -> None:
    assert shop.jobs.find_type("gantline.webhook-delivery") is None
    with pytest.raises(InvalidInput, match="begins like those of Gantline"):

        @shop.jobs.job("gantline.mine")
        async def mine() -> None: ...


async def test_without_a_key_there_are_no_webhooks(receiver: Receiver) -> None:
    jobs = Gantline("memory://")
    assert jobs.webhooks is None
    assert jobs.consumers == ()


async def test_endpoints_are_read_once_for_all_events_of_a_page(receiver: Receiver) -> None:
    async with open_shop(receiver, cache_seconds=1.0) as shop:
        issued = await shop.endpoint()
        read = shop.webhooks._all
        asked = []

        async def counted(tenant_id: str) -> Any:
            asked.append(tenant_id)
            return await read(tenant_id)

        shop.webhooks._all = counted  # type: ignore[method-assign]  # and counts
        for _ in range(20):
            await shop.ship()
        await shop.work()
        assert len(await shop.deliveries(issued, DeliveryStatus.DELIVERED)) == 20
        assert asked == ["default"]


async def test_a_store_that_does_not_answer_costs_a_delivery_no_attempt(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the simulation: seed 231. It waited for half an hour, as after a third refusal."""
    issued = await shop.endpoint()
    await shop.ship()
    await shop.kit.drain()
    await shop.told()

    async def unavailable(tenant_id: str) -> Any:
        raise StoreUnavailable("The store is away.")

    with monkeypatch.context() as away:
        away.setattr(shop.webhooks, "read_cached", unavailable)
        await shop.kit.drain()
    assert shop.receiver.received == []
    shop.kit.clock.advance(timedelta(seconds=10))
    await shop.kit.drain()
    assert len(shop.receiver.received) == 1
    assert (await shop.delivery(issued)).attempts == 1


@pytest.mark.parametrize("what", ["made", "enabled"])
async def test_what_another_process_has_made_or_enabled_is_told_at_once(
    receiver: Receiver, what: str
) -> None:
    """However lately this one has read the endpoints: else outcomes of that moment were missing."""
    async with open_shop(receiver, cache_seconds=1.0) as shop:
        await shop.endpoint("/old")
        another = make_jobs(store=shop.jobs.store)
        assert another.webhooks is not None
        spec = WebhookSpec(url=receiver.url("/new"))
        if what == "enabled":
            made = (await another.webhooks.create(spec, tenant_id="default", actor="")).webhook
            await another.webhooks.disable(made.webhook_id, tenant_id="default", reason="")
        await shop.ship()
        await shop.work()
        if what == "enabled":
            await another.webhooks.enable(made.webhook_id, tenant_id="default")
        else:
            await another.webhooks.create(spec, tenant_id="default", actor="")
        await shop.ship()
        await shop.work()
        assert len(receiver.at("/old")) == 2
        assert len(receiver.at("/new")) == 1


async def test_a_delivery_to_an_endpoint_that_is_not_known_here_yet_is_made(
    receiver: Receiver,
) -> None:
    async with open_shop(receiver, cache_seconds=1.0) as shop:
        await shop.endpoint()
        await shop.ship()
        await shop.work()
        async with make_jobs(store=shop.jobs.store) as another:
            assert another.webhooks is not None
            spec = WebhookSpec(url=receiver.url("/new"))
            made = (await another.webhooks.create(spec, tenant_id="default", actor="")).webhook
            await another.webhooks.test(made.webhook_id, tenant_id="default", actor="")
            await shop.kit.drain()
        assert len(receiver.at("/new")) == 1

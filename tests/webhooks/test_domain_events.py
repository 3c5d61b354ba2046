"""Domain events by webhook: each format, by type, and as seed 002 says."""

import hashlib
import hmac
import json
from typing import Any

import pytest
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from gantline.contract.errors import InvalidEnvelope
from gantline.contract.webhook import BodyFormat, DeliveryStatus, WebhookSpec
from gantline.webhooks.endpoint import check_spec
from tests.webhooks.shop import Shop

VERSION_ID = "550e8400-e29b-41d4-a716-446655440000"
SIGNED = {"passport_version_id": VERSION_ID, "key_id": "dev-key-1"}


async def signed(shop: Shop, **version: Any) -> str:
    sign = shop.jobs.find_type("sign")
    assert sign is not None
    handle = await sign.submit({"id": VERSION_ID, **version}, correlation_id="c-1")
    await shop.work()
    return str(handle.job_id)


async def test_seed_002_comes_out_exactly(shop: Shop) -> None:
    """Section 6, but for the ids and the instant."""
    issued = await shop.endpoint(
        event_types=("PASSPORT_SIGNED",), format=BodyFormat.BPC, header_prefix="X-BPC"
    )
    job_id = await signed(shop)
    (received,) = shop.receiver.received
    body = json.loads(received.body)
    assert list(body.items()) == [
        ("event_id", f"{job_id}.3.1"),
        ("event_type", "PASSPORT_SIGNED"),
        ("aggregate_type", "PassportVersion"),
        ("aggregate_id", VERSION_ID),
        ("occurred_at", "2026-01-01T12:00:00Z"),
        ("payload", SIGNED),
    ]
    assert received.headers["content-type"] == "application/json"
    assert received.headers["x-bpc-event-type"] == "PASSPORT_SIGNED"
    assert received.headers["x-bpc-delivery-id"] == received.webhook_id
    expected = hmac.new(issued.secret.encode(), received.body, hashlib.sha256).hexdigest()
    assert received.headers["x-bpc-signature"] == f"sha256={expected}"


async def test_the_standard_form_says_what_it_is_about(shop: Shop) -> None:
    await shop.endpoint(event_types=("PASSPORT_SIGNED",))
    job_id = await signed(shop)
    (received,) = shop.receiver.received
    assert received.headers["x-gantline-event-type"] == "PASSPORT_SIGNED"
    assert json.loads(received.body) == {
        "type": "PASSPORT_SIGNED",
        "timestamp": "2026-01-01T12:00:00Z",
        "data": {
            "eventId": f"{job_id}.3.1",
            "eventType": "PASSPORT_SIGNED",
            "aggregateType": "PassportVersion",
            "aggregateId": VERSION_ID,
            "occurredAt": "2026-01-01T12:00:00Z",
            "payload": SIGNED,
            "jobId": job_id,
            "jobType": "sign",
            "tenantId": "default",
            "correlationId": "c-1",
        },
    }


async def test_the_sdk_of_cloudevents_reads_it_under_its_own_type(shop: Shop) -> None:
    await shop.endpoint(event_types=("PASSPORT_SIGNED",), format=BodyFormat.CLOUDEVENTS)
    job_id = await signed(shop)
    (received,) = shop.receiver.received
    event = JSONFormat().read(CloudEvent, received.body)
    assert (event.get_type(), event.get_subject()) == ("PASSPORT_SIGNED", VERSION_ID)
    assert event.get_id() == f"{job_id}.3.1"
    assert event.get_extension("sequence") is None
    assert event.get_data()["payload"] == SIGNED  # type: ignore[call-overload, index]  # a dict


async def test_an_endpoint_gets_the_types_that_it_names_and_no_others(shop: Shop) -> None:
    for path, types in {
        "/signed": ("PASSPORT_SIGNED",),
        "/both": ("passport.counted", "job.completed"),
        "/domain": ("domain.*",),
        "/jobs": ("job.*",),
        "/other": ("PASSPORT_REVOKED",),
    }.items():
        await shop.endpoint(path, event_types=types)
    await shop.endpoint("/usual")
    await shop.endpoint("/of-ship", event_types=("domain.*",), job_types=("ship",))
    await shop.endpoint("/evil", event_types=("domain.*",), tenant="evil")
    await signed(shop)

    def types_at(path: str) -> list[str]:
        return sorted(json.loads(one.body)["type"] for one in shop.receiver.at(path))

    assert types_at("/signed") == ["PASSPORT_SIGNED"]
    assert types_at("/both") == ["job.completed", "passport.counted"]
    assert types_at("/domain") == ["PASSPORT_SIGNED", "passport.counted"]
    assert types_at("/jobs") == types_at("/usual") == ["job.completed"]
    assert types_at("/other") == types_at("/of-ship") == types_at("/evil") == []


async def test_read_twice_it_is_one_delivery(shop: Shop) -> None:
    issued = await shop.endpoint(event_types=("domain.*",))
    await signed(shop)
    await shop.read_again()
    await shop.kit.drain()
    deliveries = await shop.deliveries(issued)
    assert [one.status for one in deliveries] == [DeliveryStatus.DELIVERED] * 2
    assert {one.event_type for one in deliveries} == {"PASSPORT_SIGNED", "passport.counted"}
    assert len(shop.receiver.received) == 2


async def test_the_largest_is_sent_whole(shop: Shop) -> None:
    await shop.endpoint(event_types=("passport.counted",))
    note = "ü" * 8000
    await signed(shop, note=note)
    (received,) = shop.receiver.received
    assert json.loads(received.body)["data"]["payload"] == note
    assert len(received.body) < 20_000


@pytest.mark.parametrize("name", ["two words", "job.exploded", "gantline.x", "webhook.test", ""])
def test_a_type_that_cannot_happen_is_refused(name: str) -> None:
    spec = WebhookSpec(url="https://hooks.example.com/", event_types=(name,))
    with pytest.raises(InvalidEnvelope, match=r"#/eventTypes: must be some of job\.completed"):
        check_spec(spec)

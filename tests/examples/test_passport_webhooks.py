"""The battery passport's webhooks: signed as the specification has it, and a repeat is the same."""

import asyncio
import hashlib
import hmac
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from typing import Any

import msgspec
import pytest

from examples.battery_passport.assembly import make_jobs
from examples.battery_passport.receiver import Receiver as DemoReceiver
from examples.battery_passport.rules import current_package
from examples.battery_passport.signing import signer_from
from examples.battery_passport.steps import Rules, run_rule_tests
from examples.battery_passport.web import operator_of
from gantline import Gantline, WorkerSettings
from gantline.audit.chain import AuditChains, AuditEvent
from gantline.auth import Credentials, Principal
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.webhook import BodyFormat, WebhookSpec
from tests.api.streams.event_stream import listening_to
from tests.examples.conftest import Place
from tests.examples.passports import TENANT, all_jobs, upload
from tests.servers.receiver import Received, Receiver, status
from tests.webhooks.shop import settings


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.stop()


class FailsOnce:
    """Answers 503 to the first request of each delivery."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def __call__(self, request: BaseHTTPRequestHandler) -> None:
        delivery = request.headers["X-BPC-Delivery-Id"]
        status(204 if delivery in self._seen else 503)(request)
        self._seen.add(delivery)


def verified_as_told(secret: str, body: bytes, signature_header: str) -> bool:
    """The snippet that the specification gives to customers, word for word."""
    expected = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    provided = signature_header.removeprefix("sha256=")
    return hmac.compare_digest(expected, provided)


@pytest.mark.parametrize("kind", ["sqlite", "redis and sqlite"])
async def test_a_repeated_delivery_has_the_same_id_and_the_same_body(
    make_place: Callable[[str], Place], receiver: Receiver, kind: str
) -> None:
    place = make_place(kind)
    jobs = make_jobs(place.store, outbox=place.outbox or None, webhooks=settings())
    quick = WorkerSettings(queues=jobs.default_queues(), poll=timedelta(seconds=0.1))
    receiver.answers["/"] = FailsOnce()
    spec = WebhookSpec(
        url=receiver.url(),
        event_types=("job.completed",),
        job_types=("SIGN_PASSPORT", "EXPORT_PASSPORT"),
        format=BodyFormat.BPC,
        header_prefix="X-BPC",
        retry_seconds=(0.0, 0.0),
    )
    async with jobs, jobs.running(quick):
        assert jobs.webhooks is not None
        issued = await jobs.webhooks.create(spec, tenant_id=TENANT, actor="test")
        await (await run_rule_tests.submit(Rules(current_package().rules_id))).result(timeout=30)
        await upload(jobs, "nordcell-ev")
        received = await asyncio.to_thread(receiver.wait_for, lambda came: len(came) == 4)
    by_id = {one.webhook_id: [two for two in received if is_same(one, two)] for one in received}
    assert sorted(map(len, by_id.values())) == [2, 2]
    types = set()
    for one in received:
        event = msgspec.json.decode(one.body)
        assert verified_as_told(issued.secret, one.body, one.headers["x-bpc-signature"])
        assert one.headers["x-bpc-event-type"] == event["event_type"] == "JOB_COMPLETED"
        assert one.headers["x-bpc-delivery-id"] == one.webhook_id
        types.add((event["payload"]["job_type"], *sorted(event["payload"]["result"])))
    assert types == {
        ("SIGN_PASSPORT", "key_id", "passport_version_id"),
        ("EXPORT_PASSPORT", "artefacts", "key_id", "passport_version_id", "qr", "receipt_hash"),
    }


def is_same(one: Received, two: Received) -> bool:
    return (one.webhook_id, one.body) == (two.webhook_id, two.body)


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis and sqlite"])
async def test_a_signature_is_told_and_audited_as_the_specification_has_it(
    make_place: Callable[[str], Place], receiver: Receiver, kind: str
) -> None:
    """Seed 002, section 6: names, aggregate and payload, by webhook, stream and chain."""
    place = make_place(kind)
    jobs = make_jobs(place.store, outbox=place.outbox or None, webhooks=settings())
    quick = WorkerSettings(queues=jobs.default_queues(), poll=timedelta(seconds=0.1))
    kept = DemoReceiver()
    async with jobs, jobs.running(quick):
        await kept.register(jobs, TENANT, receiver.url())
        await (await run_rule_tests.submit(Rules(current_package().rules_id))).result(timeout=30)
        await upload(jobs, "nordcell-ev")
        (received,) = await asyncio.to_thread(receiver.wait_for, lambda came: len(came) == 1)
        signed = await job_of(jobs, "SIGN_PASSPORT")
        version_id, key_id = signed.job.subject_id, signer_from(os.environ).sign("00" * 32).key_id
        payload = {"passport_version_id": version_id, "key_id": key_id}

        event = msgspec.json.decode(received.body)
        assert received.headers["x-bpc-event-type"] == "PASSPORT_SIGNED"
        assert received.headers["x-bpc-delivery-id"] == received.webhook_id
        assert set(event) == {"event_id", "occurred_at"} | SEED.keys()
        assert payload.keys() == SEED["payload"].keys()
        of_this_one = {"aggregate_id": version_id, "payload": payload}
        assert {name: event[name] for name in SEED} == SEED | of_this_one
        kept.take(TENANT, received.body, received.headers)
        assert [tuple(one)[1:] for one in kept.of(TENANT)] == [("PASSPORT_SIGNED", version_id)]

        async with listening_to(jobs.api(authenticator=Anybody())) as listen:
            stream = await listen(None, f"/api/jobs/{signed.job.job_id}/events")
            heard = {one.name: one.data for one in await stream.ends()}
        assert list(heard) == ["state", "PASSPORT_SIGNED", "completed"]
        told = heard["PASSPORT_SIGNED"]
        assert (told["eventType"], told["eventId"]) == ("PASSPORT_SIGNED", event["event_id"])
        assert (told["aggregateType"], told["aggregateId"]) == ("PassportVersion", version_id)
        assert told["payload"] == payload

        (entry,) = await audited(jobs)
        assert (entry.type, entry.actor) == ("PASSPORT_SIGNED", f"job:{signed.job.job_id}")
        assert entry.aggregate == f"PassportVersion:{version_id}"
        assert entry.payload["details"] == payload


SEED: dict[str, Any] = {
    "event_type": "PASSPORT_SIGNED",
    "aggregate_type": "PassportVersion",
    "aggregate_id": "550e8400-e29b-41d4-a716-446655440000",
    "payload": {
        "passport_version_id": "550e8400-e29b-41d4-a716-446655440000",
        "key_id": "dev-key-1",
    },
}
"""The example of the specification, but for the ids of the event and the instant."""


class Anybody:
    challenge = ""

    async def authenticate(self, credentials: Credentials) -> Principal:
        return operator_of(TENANT)


async def job_of(jobs: Gantline, job_type: str) -> JobSnapshot:
    async with asyncio.timeout(30):
        while True:
            found = [one for one in await all_jobs(jobs) if one.job.job_type == job_type]
            if found and found[0].status.is_terminal:
                return found[0]
            await asyncio.sleep(0.02)


async def audited(jobs: Gantline) -> list[AuditEvent]:
    """What is in the tenant's chain, as soon as there is something, but the making of endpoints."""
    async with asyncio.timeout(30):
        while True:
            found = [one async for one in AuditChains(jobs.store).events(TENANT)]
            events = [one for one in found if isinstance(one, AuditEvent)]
            if entries := [one for one in events if one.actor.startswith("job:")]:
                return entries
            await asyncio.sleep(0.02)

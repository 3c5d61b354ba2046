"""The battery passport's webhooks: signed as the specification has it, and a repeat is the same."""

import asyncio
import hashlib
import hmac
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler

import msgspec
import pytest

from examples.battery_passport.assembly import make_jobs
from examples.battery_passport.rules import current_package
from examples.battery_passport.steps import Rules, run_rule_tests
from gantline import WorkerSettings
from gantline.contract.webhook import BodyFormat, WebhookSpec
from tests.examples.conftest import Place
from tests.examples.passports import TENANT, upload
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

"""What follows from a receiver's answer: delivered, tried again, given up, disabled."""

import asyncio
import logging
import time
from contextlib import suppress
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from uuid import uuid4

import pytest

from gantline import WorkerSettings
from gantline.audit.chain import AuditChains
from gantline.contract.errors import IllegalTransition
from gantline.contract.job import DELIVERY_QUEUE
from gantline.contract.query import LaneRequest
from gantline.contract.webhook import (
    DELIVERY_TYPE,
    DeliveryStatus,
    IssuedWebhook,
    ReplayRequest,
    WebhookSpec,
    WebhookStatus,
)
from gantline.testing.factories import register_sessions
from tests.servers.receiver import Answer, Receiver, status
from tests.webhooks.shop import Shop, make_jobs, open_shop

PENDING, DELIVERED, FAILED = DeliveryStatus.PENDING, DeliveryStatus.DELIVERED, DeliveryStatus.FAILED


async def endpoint_now(shop: Shop, issued: IssuedWebhook) -> tuple[WebhookStatus, str]:
    webhook = issued.webhook
    now = await shop.webhooks.get(webhook.webhook_id, tenant_id=webhook.tenant_id)
    return now.status, now.status_reason


BECOMES = {
    **dict.fromkeys((200, 201, 202, 299), DELIVERED),
    **dict.fromkeys((300, 301, 304, 307), FAILED),
    **dict.fromkeys((400, 401, 403, 404, 409, 413, 422), FAILED),
    **dict.fromkeys((408, 425, 429, 500, 502, 503, 504, 599), PENDING),
}


async def test_a_status_decides(shop: Shop) -> None:
    issued = {}
    for code in BECOMES:
        answer = status(code, b"as it is", location="https://elsewhere.example/")
        shop.receiver.answers[f"/{code}"] = answer
        issued[code] = await shop.endpoint(f"/{code}")
    await shop.ship()
    await shop.work()
    for code, becomes in BECOMES.items():
        delivery = await shop.delivery(issued[code])
        assert delivery.status is becomes, code
        assert delivery.http_status == code
        (tried,) = delivery.tries
        assert tried.http_status == code
        assert tried.latency_seconds is not None
        assert tried.response_headers["location"] == "https://elsewhere.example/"
        assert tried.response_body == ("" if code == 304 else "as it is")
        assert len(shop.receiver.at(f"/{code}")) == 1, "nothing is followed"
        if becomes is not DELIVERED:
            assert "as it is" not in (delivery.error_message or ""), "that is for operators"
        assert (await endpoint_now(shop, issued[code]))[0] is WebhookStatus.ENABLED


def hangs_up(request: BaseHTTPRequestHandler) -> None:
    request.connection.close()


def hangs_up_in_the_head(request: BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-le")


def hangs_up_in_the_body(request: BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nthank")


def speaks_no_http(request: BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"SSH-2.0-OpenSSH_9.2p1\r\n")


def has_a_huge_head(request: BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"HTTP/1.1 200 OK\r\nx: " + b"a" * 500_000)


def has_a_huge_body(request: BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 9999999\r\n\r\n" + b"a" * 1_000_000)


def begins_again_and_again(request: BaseHTTPRequestHandler) -> None:
    with suppress(OSError):
        while True:
            request.wfile.write(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1000)


def has_many_crumbs(request: BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    with suppress(OSError):
        while True:
            request.wfile.write(b"1\r\na\r\n" * 1000)


async def test_an_answer_that_breaks_off(shop: Shop) -> None:
    becomes: dict[Answer, DeliveryStatus] = {
        hangs_up: PENDING,
        hangs_up_in_the_head: PENDING,
        hangs_up_in_the_body: DELIVERED,  # the status is the answer
        speaks_no_http: PENDING,
        has_a_huge_head: PENDING,
        has_a_huge_body: DELIVERED,
        begins_again_and_again: PENDING,  # reading it takes time that is the others'
        has_many_crumbs: DELIVERED,
    }
    issued = {}
    for answer in becomes:
        path = f"/{answer.__name__}"
        shop.receiver.answers[path] = answer
        issued[answer] = await shop.endpoint(path)
    await shop.ship()
    await shop.work()
    for answer, expected in becomes.items():
        delivery = await shop.delivery(issued[answer])
        assert delivery.status is expected, answer
        assert len(delivery.tries[0].response_body) <= 2048
        if expected is PENDING:
            assert delivery.error_code == "NETWORK_ERROR"


async def test_a_receiver_that_drips_is_given_up_in_time(shop: Shop) -> None:
    def drips(request: BaseHTTPRequestHandler) -> None:
        while not shop.receiver.over.wait(0.05):
            request.wfile.write(b"H")

    shop.receiver.answers["/"] = drips
    issued = await shop.endpoint(timeout_seconds=1)
    await shop.ship()
    began = time.monotonic()
    await shop.work()
    assert time.monotonic() - began < 10
    delivery = await shop.delivery(issued)
    assert (delivery.status, delivery.error_code) == (PENDING, "TIMEOUT")


async def test_a_receiver_that_is_down_for_an_hour_gets_it_when_it_is_back(shop: Shop) -> None:
    shop.receiver.answers["/"] = hangs_up
    issued = await shop.endpoint()
    job_id = await shop.ship()
    await shop.work()
    began, waits = shop.kit.clock.now(), []
    while shop.kit.clock.now() - began < timedelta(hours=1):
        (listed,) = await shop.deliveries(issued)
        assert listed.status is PENDING
        assert listed.next_attempt_at is not None
        waits.append((listed.next_attempt_at - shop.kit.clock.now()).total_seconds())
        shop.kit.clock.advance(waits[-1])
        await shop.kit.drain()
    for wait, usual in zip(waits, (5, 300, 1800, 7200), strict=False):
        assert usual <= wait <= usual * 1.2, waits
    shop.receiver.answers.clear()
    shop.kit.clock.advance(timedelta(hours=6))
    await shop.kit.drain()
    delivery = await shop.delivery(issued)
    assert (delivery.status, delivery.job_id) == (DELIVERED, job_id)
    assert len(delivery.tries) == delivery.attempts == len(waits) + 2
    received = shop.receiver.received
    assert len({(one.webhook_id, one.body) for one in received}) == 1


async def test_after_three_days_of_tries_it_has_failed_and_can_be_replayed(shop: Shop) -> None:
    shop.receiver.answers["/"] = status(500)
    issued = await shop.endpoint()
    await shop.ship()
    await shop.work()
    began = shop.kit.clock.now()
    while (listed := (await shop.deliveries(issued))[0]).status is PENDING:
        assert listed.next_attempt_at is not None
        shop.kit.clock.advance(listed.next_attempt_at - shop.kit.clock.now())
        await shop.kit.drain()
    took = shop.kit.clock.now() - began
    assert listed.status is FAILED
    assert listed.attempts == listed.max_attempts == 10
    assert timedelta(days=3) < took < timedelta(days=4)
    shop.receiver.answers.clear()
    webhook = issued.webhook
    await shop.webhooks.replay(
        webhook.webhook_id, listed.delivery_id, tenant_id="default", actor="user:me"
    )
    shop.kit.clock.advance(timedelta(minutes=15))  # so long a receiver that is down is left alone
    await shop.kit.drain()
    shop.kit.clock.advance(1)
    await shop.kit.drain()
    assert (await shop.delivery(issued)).status is DELIVERED
    received = shop.receiver.received
    assert len({(one.webhook_id, one.body) for one in received}) == 1


async def test_an_endpoint_may_have_a_schedule_of_its_own(shop: Shop) -> None:
    shop.receiver.answers["/"] = status(500)
    issued = await shop.endpoint(retry_seconds=(60.0,))
    never = await shop.endpoint(retry_seconds=())
    await shop.ship()
    await shop.work()
    (listed,) = await shop.deliveries(issued)
    assert listed.next_attempt_at is not None
    assert 60 <= (listed.next_attempt_at - shop.kit.clock.now()).total_seconds() <= 72
    assert (await shop.delivery(never)).status is FAILED
    shop.kit.clock.advance(80)
    await shop.kit.drain()
    assert (await shop.delivery(issued)).status is FAILED


async def test_retry_after_is_heeded_but_bounded(shop: Shop) -> None:
    said = {
        "120": (120, 120),
        "0": (5, 6),  # not before our own schedule, or ten tries would be over in a second
        "9999999999": (86_400, 86_400),
        "Thu, 01 Jan 2026 12:10:00 GMT": (600, 600),
        "soon": (5, 6),
        "-5": (5, 6),
    }
    issued = {}
    for number, text in enumerate(said):
        shop.receiver.answers[f"/{number}"] = status(429, retry_after=text)
        issued[text] = await shop.endpoint(f"/{number}")
    await shop.ship()
    await shop.work()
    for text, (least, most) in said.items():
        (listed,) = await shop.deliveries(issued[text])
        assert listed.next_attempt_at is not None
        wait = (listed.next_attempt_at - shop.kit.clock.now()).total_seconds()
        assert least <= wait <= most, text


@pytest.mark.parametrize("code", [429, 502, 504])
async def test_who_asks_for_less_is_left_alone_for_a_while(shop: Shop, code: int) -> None:
    shop.receiver.answers["/"] = status(code, retry_after="60")
    issued = await shop.endpoint()
    other = await shop.endpoint("/other")
    for _ in range(20):
        await shop.ship()
    drained = await shop.work()
    assert len(shop.receiver.at("/")) == 1, "the others are put off, and cost no attempt"
    assert (drained.retried, drained.snoozed) == (1, 19)
    assert len(shop.receiver.at("/other")) == 20, "what is not its own is not delayed"
    assert {one.status for one in await shop.deliveries(other)} == {DELIVERED}
    shop.receiver.answers.clear()
    shop.kit.clock.advance(90)
    await shop.kit.drain()
    assert {one.status for one in await shop.deliveries(issued)} == {DELIVERED}


async def test_410_disables_the_endpoint(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    shop.receiver.answers["/"] = status(410)
    issued = await shop.endpoint()
    await shop.ship()
    await shop.ship()
    await shop.work()
    assert await endpoint_now(shop, issued) == (
        WebhookStatus.DISABLED,
        "The receiver answered 410: it is gone.",
    )
    assert len(shop.receiver.received) == 1
    assert {one.status for one in await shop.deliveries(issued)} == {FAILED}
    assert any("was disabled" in one.getMessage() for one in caplog.records)
    audited = await AuditChains(shop.jobs.store).head("default")
    assert audited is not None
    assert (audited.type, audited.actor) == ("disableWebhook", "gantline")
    assert audited.aggregate == f"webhook:{issued.webhook.webhook_id}"
    await shop.ship()
    await shop.work()
    assert len(await shop.deliveries(issued)) == 2, "a disabled endpoint is told nothing new"


async def test_what_was_pending_when_it_was_disabled_is_kept_and_can_be_replayed(
    shop: Shop,
) -> None:
    issued = await shop.endpoint()
    webhook = issued.webhook
    for _ in range(3):
        await shop.ship()
    await shop.kit.drain()
    await shop.told()
    await shop.webhooks.disable(webhook.webhook_id, tenant_id="default", reason="maintenance")
    await shop.kit.drain()
    assert shop.receiver.received == []
    kept = await shop.deliveries(issued, FAILED)
    assert {one.error_code for one in kept} == {"WEBHOOK_DISABLED"}
    with pytest.raises(IllegalTransition, match="disabled"):
        await shop.webhooks.replay(
            webhook.webhook_id, kept[0].delivery_id, tenant_id="default", actor="user:me"
        )
    await shop.webhooks.enable(webhook.webhook_id, tenant_id="default")
    dry = await shop.webhooks.replay_all(
        webhook.webhook_id, ReplayRequest(dry_run=True), tenant_id="default", actor="user:me"
    )
    assert (dry.matching, dry.replayed) == (3, 0)
    for expected, more in ((2, True), (1, False)):
        report = await shop.webhooks.replay_all(
            webhook.webhook_id, ReplayRequest(limit=2), tenant_id="default", actor="user:me"
        )
        assert (report.replayed, report.more) == (expected, more)
    await shop.kit.drain()
    assert {one.status for one in await shop.deliveries(issued)} == {DELIVERED}
    assert len({one.webhook_id for one in shop.receiver.received}) == 3


async def test_what_was_delivered_can_be_sent_again_under_its_message_id(shop: Shop) -> None:
    issued = await shop.endpoint()
    webhook = issued.webhook
    await shop.ship()
    await shop.work()
    first = await shop.delivery(issued)
    again = await shop.webhooks.replay(
        webhook.webhook_id, first.delivery_id, tenant_id="default", actor="user:me"
    )
    assert again.delivery_id != first.delivery_id
    assert again.message_id == first.message_id
    await shop.kit.drain()
    assert len({(one.webhook_id, one.body) for one in shop.receiver.received}) == 1
    assert len(shop.receiver.received) == 2


async def test_days_of_nothing_but_failures_disable_the_endpoint(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_shop(receiver, disable_after=timedelta(days=5)) as shop:
        receiver.answers["/"] = status(500)
        issued = await shop.endpoint()
        for _ in range(5):
            await shop.ship()
            await shop.work()
            assert (await endpoint_now(shop, issued))[0] is WebhookStatus.ENABLED
            shop.kit.clock.advance(timedelta(days=1))
        await shop.ship()
        await shop.work()
        assert await endpoint_now(shop, issued) == (
            WebhookStatus.DISABLED,
            "Nothing could be delivered for 5 days.",
        )
        assert any("was disabled" in one.getMessage() for one in caplog.records)


async def test_one_success_in_between_begins_the_days_anew(receiver: Receiver) -> None:
    async with open_shop(receiver) as shop:
        issued = await shop.endpoint()
        for day in range(12):
            receiver.answers["/"] = status(404 if day % 4 else 200)
            await shop.ship()
            await shop.work()
            shop.kit.clock.advance(timedelta(days=1))
        assert (await endpoint_now(shop, issued))[0] is WebhookStatus.ENABLED


async def test_a_success_in_another_process_counts_too(receiver: Receiver) -> None:
    """What this process does not know, the store does."""
    async with open_shop(receiver) as shop:
        receiver.answers["/"] = status(404)
        issued = await shop.endpoint()
        await shop.ship()
        await shop.work()
        shop.kit.clock.advance(timedelta(days=5))
        receiver.answers.clear()
        noted = shop.webhooks._failures.record_success
        shop.webhooks._failures.record_success = _forgetful  # type: ignore[method-assign]  # another's
        await shop.ship()
        await shop.work()
        shop.webhooks._failures.record_success = noted  # type: ignore[method-assign]  # as it was
        receiver.answers["/"] = status(404)
        await shop.ship()
        await shop.work()
        assert (await endpoint_now(shop, issued))[0] is WebhookStatus.ENABLED


async def _forgetful(tenant_id: str, webhook_id: object, at: object) -> None:
    """Notes nothing."""


async def test_a_test_is_sent_once_also_to_a_disabled_endpoint(shop: Shop) -> None:
    issued = await shop.endpoint()
    webhook = issued.webhook
    await shop.webhooks.disable(webhook.webhook_id, tenant_id="default", reason="not yet")
    shop.receiver.answers["/"] = status(500)
    await shop.webhooks.test(webhook.webhook_id, tenant_id="default", actor="user:me")
    await shop.kit.drain()
    delivery = await shop.delivery(issued)
    assert (delivery.status, delivery.event_type) == (FAILED, "webhook.test")
    shop.receiver.answers.clear()
    again = await shop.webhooks.test(webhook.webhook_id, tenant_id="default", actor="user:me")
    await shop.kit.drain()
    found = await shop.webhooks.delivery(webhook.webhook_id, again.delivery_id, tenant_id="default")
    assert found.status is DELIVERED


async def test_deliveries_to_a_deleted_endpoint_end(shop: Shop) -> None:
    issued = await shop.endpoint()
    await shop.ship()
    await shop.kit.drain()
    await shop.told()
    await shop.webhooks.delete(issued.webhook.webhook_id, tenant_id="default")
    await shop.kit.drain()
    (listed,) = await shop.deliveries(issued)
    assert (listed.status, listed.error_code) == (FAILED, "WEBHOOK_GONE")
    assert shop.receiver.received == []


async def test_an_endpoint_that_was_enabled_again_has_its_days_anew(receiver: Receiver) -> None:
    """It is enabled by another process than the one that remembers how long it has failed."""
    async with open_shop(receiver, disable_after=timedelta(days=5)) as shop:
        receiver.answers["/"] = status(404)
        issued = await shop.endpoint()
        webhook = issued.webhook
        for _ in range(2):
            await shop.ship()
            await shop.work()
            shop.kit.clock.advance(timedelta(days=5))
        assert (await endpoint_now(shop, issued))[0] is WebhookStatus.DISABLED
        another = make_jobs(store=shop.jobs.store)
        assert another.webhooks is not None
        await another.webhooks.enable(webhook.webhook_id, tenant_id="default")
        await shop.ship()
        await shop.work()
        assert (await endpoint_now(shop, issued))[0] is WebhookStatus.ENABLED


async def test_a_success_elsewhere_counts_though_its_delivery_is_gone(receiver: Receiver) -> None:
    """Completed deliveries are not kept for as long as an endpoint may fail."""
    async with open_shop(receiver) as shop:
        issued = await shop.endpoint()
        another = make_jobs(store=shop.jobs.store)
        assert another.webhooks is not None
        elsewhere, webhook_id = another.webhooks._failures, issued.webhook.webhook_id
        await elsewhere.record_success("default", webhook_id, shop.kit.clock.now())
        receiver.answers["/"] = status(404)
        await shop.ship()
        await shop.work()
        shop.kit.clock.advance(timedelta(days=5))
        await elsewhere.record_success("default", webhook_id, shop.kit.clock.now())
        await shop.ship()
        await shop.work()
        assert (await endpoint_now(shop, issued))[0] is WebhookStatus.ENABLED


@pytest.mark.parametrize("changed", ["url", "enabled"])
async def test_a_late_410_does_not_disable_what_was_mended_meanwhile(
    shop: Shop, changed: str
) -> None:
    issued = await shop.endpoint("/old")
    webhook_id = issued.webhook.webhook_id
    loop = asyncio.get_running_loop()

    async def mend() -> None:
        if changed == "url":
            spec = WebhookSpec(url=shop.receiver.url("/new"))
            await shop.webhooks.update(webhook_id, spec, tenant_id="default", actor="me")
        else:
            await shop.webhooks.disable(webhook_id, tenant_id="default", reason="mending")
            shop.kit.clock.advance(1)
            await shop.webhooks.enable(webhook_id, tenant_id="default")

    def gone_when_mended(request: BaseHTTPRequestHandler) -> None:
        asyncio.run_coroutine_threadsafe(mend(), loop).result(30)
        status(410)(request)

    shop.receiver.answers["/old"] = gone_when_mended
    await shop.ship()
    await shop.work()
    assert (await endpoint_now(shop, issued))[0] is WebhookStatus.ENABLED
    assert await AuditChains(shop.jobs.store).head("default") is None, "nothing was done"


async def test_what_was_sent_and_what_a_receiver_answered_is_not_logged(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """By nobody: neither by us, nor by the libraries that we use."""
    caplog.set_level(logging.DEBUG)
    jobs = make_jobs()
    ship = jobs.find_type("ship")
    assert ship is not None
    assert jobs.webhooks is not None
    codes, secrets = (200, 400, 410, 500), list[str]()
    queues = {"default": 1, DELIVERY_QUEUE: 4}
    async with jobs, jobs.running(WorkerSettings(queues=queues)):
        for code in codes:
            path = f"/{code}"
            receiver.answers[path] = status(code, b"what they said", x_what="what they set")
            spec = WebhookSpec(url=receiver.url(path))
            issued = await jobs.webhooks.create(spec, tenant_id="default", actor="")
            secrets.append(issued.secret)
        await ship.submit({"order": "o", "result": "what came out"})
        await asyncio.to_thread(receiver.wait_for, lambda got: len(got) == len(codes))
    for code in codes[1:]:
        assert f"The receiver answered {code}." in caplog.text, "what became of it is told"
    assert "what they" not in caplog.text
    assert "what came out" not in caplog.text
    for secret in secrets:
        assert secret.removeprefix("whsec_") not in caplog.text
    for one in receiver.received:
        assert one.headers["webhook-signature"].removeprefix("v1,") not in caplog.text
        assert one.headers["x-gantline-signature"].removeprefix("sha256=") not in caplog.text


async def test_being_put_off_however_often_costs_no_delivery(shop: Shop) -> None:
    """A backlog behind a slow endpoint asks for its turn every quarter of an hour, for weeks."""
    handler = shop.webhooks.handler()
    assert handler.policy.max_snoozes >= 10**6


async def test_a_delivery_that_killed_its_workers_has_failed_and_can_be_replayed(
    shop: Shop,
) -> None:
    issued = await shop.endpoint()
    await shop.ship()
    await shop.kit.drain()
    await shop.told()
    for suspects in ((), (), (1,)):
        requests = [LaneRequest(DELIVERY_QUEUE, (DELIVERY_TYPE,), 1, suspects=suspects)]
        assert (await shop.delivery(issued)).status is PENDING
        lease = timedelta(seconds=1)
        await register_sessions(shop.jobs.store, "dying")
        assert await shop.jobs.store.claim("dying", uuid4(), requests, lease=lease)
        await shop.kit.expire_leases()
    (listed,) = await shop.deliveries(issued, FAILED)
    assert (listed.error_code, listed.http_status) == ("LEASE_EXPIRED", None)
    assert shop.receiver.received == []
    webhook = issued.webhook
    report = await shop.webhooks.replay_all(
        webhook.webhook_id, ReplayRequest(), tenant_id="default", actor="user:me"
    )
    assert report.replayed == 1
    await shop.kit.drain()
    delivery = await shop.delivery(issued)
    assert (delivery.status, delivery.http_status) == (DELIVERED, 204)
    assert delivery.delivery_id == listed.delivery_id
    assert len(shop.receiver.received) == 1


async def test_what_is_kept_of_a_delivery_does_not_tell_which_names_there_are(
    receiver: Receiver,
) -> None:
    """Its code, its message, how long it took, in the list, as a whole and as a dead letter."""
    found = {"inside.example": "93.184.215.14", "nowhere.example": "93.184.215.14"}

    async def resolve(host: str, port: int) -> list[str]:
        if host not in found:
            raise OSError("no such name")
        return [found[host]]

    async with open_shop(receiver, resolve=resolve) as shop:
        issued = [
            await shop.endpoint(url=f"https://{host}/", retry_seconds=[]) for host in list(found)
        ]
        found["inside.example"] = "10.0.0.1"
        del found["nowhere.example"]
        await shop.ship()
        await shop.work()
        shown = []
        for one in issued:
            delivery = await shop.delivery(one)
            (listed,) = await shop.deliveries(one)
            (tried,) = delivery.tries
            stored = await shop.jobs.store.get([delivery.delivery_id], tenant_id=None)
            assert delivery.status is FAILED
            assert stored[0] is not None
            assert stored[0].last is not None
            shown.append(
                (
                    *(listed.error_code, listed.error_message, listed.http_status),
                    *(delivery.error_code, delivery.error_message, delivery.http_status),
                    *(tried.error_code, tried.error_message, tried.http_status),
                    *(tried.latency_seconds, tried.response_body, tried.response_headers),
                    stored[0].last.error,
                )
            )
        assert shown[0] == shown[1]

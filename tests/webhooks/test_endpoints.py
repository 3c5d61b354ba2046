"""Endpoints as they are kept: secrets sealed, tenants apart, and what is broken harms no other."""

from datetime import timedelta

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gantline import Gantline
from gantline.auth.peppers import Peppers
from gantline.contract.errors import (
    AuthMisconfigured,
    InvalidEnvelope,
    InvalidInput,
    StoreCorrupt,
    WebhookNotFound,
)
from gantline.contract.records import RecordWrite
from gantline.contract.webhook import DeliveryStatus, WebhookSpec
from gantline.webhooks import WebhookNotVerified, verify, verify_plain
from gantline.webhooks.endpoint import StoredEndpoint
from gantline.webhooks.endpoints import ENDPOINTS, Rekeyed
from gantline.webhooks.secret_encryption import Vault
from gantline.webhooks.signing import new_secret
from tests.servers.receiver import Received, Receiver, status
from tests.telemetry.asking import ask
from tests.webhooks.shop import KEYS, Shop, open_shop

OTHER_KEYS = "2:zyxwvutsrqponmlkjihgfedcba9876543210"


async def test_a_secret_is_nowhere_in_the_store(shop: Shop) -> None:
    issued = await shop.endpoint()
    await shop.ship()
    await shop.work()
    assert issued.secret not in repr(issued)
    kept = shop.kit.path.read_bytes() + shop.kit.path.with_name("gantline.db-wal").read_bytes()
    assert str(issued.webhook.webhook_id).encode() in kept
    assert issued.secret.encode() not in kept
    assert issued.secret.removeprefix("whsec_").encode() not in kept


@pytest.mark.parametrize(
    "secret", [new_secret(), "plain-text-of-the-receiver"], ids=["standard", "plain"]
)
async def test_an_endpoint_keeps_the_secret_that_its_receiver_has(
    shop: Shop, secret: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    spec = WebhookSpec(url=shop.receiver.url("/"), header_prefix="X-BPC")
    issued = await shop.webhooks.create(spec, tenant_id="default", actor="user:me", secret=secret)
    assert issued.secret == ""
    await shop.ship()
    await shop.work()
    (received,) = shop.receiver.received
    now = shop.kit.clock.now()
    verify(received.body, received.headers, secret, now=now)
    verify_plain(received.body, received.headers["x-bpc-signature"], secret)
    kept = shop.kit.path.read_bytes() + shop.kit.path.with_name("gantline.db-wal").read_bytes()
    for text in (secret, secret.removeprefix("whsec_")):
        assert text.encode() not in kept
        assert text not in caplog.text
    shown = await shop.webhooks.get(issued.webhook.webhook_id, tenant_id="default")
    assert secret not in repr((issued, shown))


@pytest.mark.parametrize("secret", ["", "short", "whsec_c2hvcnQ=", "with blanks in it, sixteen"])
async def test_a_secret_that_is_none_is_refused_and_not_quoted(shop: Shop, secret: str) -> None:
    spec = WebhookSpec(url=shop.receiver.url("/"))
    with pytest.raises(InvalidEnvelope, match="#/secret") as refused:
        await shop.webhooks.create(spec, tenant_id="default", actor="me", secret=secret)
    assert not secret or secret not in str(refused.value)
    assert await shop.webhooks.listed(tenant_id="default") == []


async def test_secrets_sealed_by_an_older_key_are_still_opened(receiver: Receiver) -> None:
    vault, newer = Vault(Peppers.read(KEYS)), Vault(Peppers.read(f"{OTHER_KEYS} {KEYS}"))
    sealed = vault.seal("whsec_secret", of="a/1")
    assert "secret" not in repr(sealed)
    assert newer.open(sealed, of="a/1") == "whsec_secret"
    assert newer.seal("whsec_secret", of="a/1").key_id == "2"
    with pytest.raises(AuthMisconfigured, match="no key '1'"):
        Vault(Peppers.read(OTHER_KEYS)).open(sealed, of="a/1")


def test_a_secret_that_was_exchanged_or_changed_is_refused() -> None:
    vault = Vault(Peppers.read(KEYS))
    sealed = vault.seal("whsec_secret", of="a/1")
    with pytest.raises(StoreCorrupt):
        vault.open(sealed, of="b/1")
    changed = msgspec.structs.replace(
        sealed, sealed=sealed.sealed[:-1] + bytes([sealed.sealed[-1] ^ 1])
    )
    with pytest.raises(StoreCorrupt):
        vault.open(changed, of="a/1")
    assert vault.seal("whsec_secret", of="a/1") != sealed, "never the same nonce"


async def test_a_delivery_whose_secret_cannot_be_opened_is_tried_again(receiver: Receiver) -> None:
    """A worker without the key must not lose what another one can deliver."""
    async with open_shop(receiver) as shop:
        issued = await shop.endpoint()
        await shop.ship()
        await shop.kit.drain()
        await shop.told()
        right = shop.webhooks.settings.vault._keys
        shop.webhooks.settings.vault._keys = Peppers.read(OTHER_KEYS)
        assert (await shop.kit.drain()).retried == 1
        assert receiver.received == []
        (tried,) = [
            job async for job in shop.jobs.find(internal=True, error_code="CONFIGURATION_ERROR")
        ]
        assert tried.last
        assert tried.last.error
        assert "GANTLINE_WEBHOOK_KEY of the worker does not fit" in tried.last.error.message
        shop.webhooks.settings.vault._keys = right
        shop.kit.clock.advance(10)
        await shop.kit.drain()
        assert (await shop.delivery(issued)).status is DeliveryStatus.DELIVERED


async def test_secrets_are_sealed_anew_by_the_key_in_use(receiver: Receiver) -> None:
    """Afterwards the old key can be taken away, and no endpoint has noticed."""
    async with open_shop(receiver) as shop:
        issued = [await shop.endpoint(tenant=name) for name in ("a", "b", "b")]
        await shop.webhooks.rotate(
            issued[0].webhook.webhook_id, tenant_id="a", overlap=timedelta(hours=1), actor="me"
        )
        await shop.webhooks.rotate(
            issued[1].webhook.webhook_id, tenant_id="b", overlap=timedelta(minutes=1), actor="me"
        )
        shop.kit.clock.advance(timedelta(minutes=2))
        keys = shop.webhooks.settings.vault
        keys._keys = Peppers.read(f"{OTHER_KEYS} {KEYS}")
        before = await kept(shop)
        assert await shop.webhooks.rekey() == Rekeyed(rekeyed=3, unchanged=0, unreadable=0)
        assert await shop.webhooks.rekey() == Rekeyed(rekeyed=0, unchanged=3, unreadable=0)
        keys._keys = Peppers.read(OTHER_KEYS)
        after = await kept(shop)
        assert [len(one.secrets) for one in after.values()].count(2) == 1, (
            "what still signs is kept"
        )
        for name, stored in after.items():
            opened = [keys.open(one, of=name) for one in stored.secrets]
            assert {one.key_id for one in stored.secrets} == {"2"}
            keys._keys = Peppers.read(KEYS)
            good = before[name].valid_secrets(shop.kit.clock.now())
            assert opened == [keys.open(one, of=name) for one in good]
            keys._keys = Peppers.read(OTHER_KEYS)
        await shop.ship(tenant="b")
        await shop.work()
        assert len(receiver.received) == 2
        assert any(_verifies(issued[2].secret, one, shop) for one in receiver.received)


async def test_a_secret_that_cannot_be_opened_is_left_as_it_is_and_counted(shop: Shop) -> None:
    await shop.endpoint()
    before = await kept(shop)
    shop.webhooks.settings.vault._keys = Peppers.read(OTHER_KEYS)
    assert await shop.webhooks.rekey() == Rekeyed(rekeyed=0, unchanged=0, unreadable=1)
    assert await kept(shop) == before


async def kept(shop: Shop) -> dict[str, StoredEndpoint]:
    records = await shop.jobs.store.read_records(ENDPOINTS, prefix="")
    return {one.key: msgspec.json.decode(one.value, type=StoredEndpoint) for one in records}


def _verifies(secret: str, received: Received, shop: Shop) -> bool:
    try:
        verify(received.body, received.headers, secret, now=shop.kit.clock.now())
    except WebhookNotVerified:
        return False
    return True


async def test_tenants_whose_names_begin_alike_do_not_meet(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    names = ("a", "a/b", "a/", "a%2Fb", "ä", "A")
    made = {name: await shop.endpoint(tenant=name) for name in names}
    for name in names:
        (one,) = await shop.webhooks.listed(tenant_id=name)
        assert one == made[name].webhook
        for other in set(names) - {name}:
            with pytest.raises(WebhookNotFound):
                await shop.webhooks.get(one.webhook_id, tenant_id=other)
            with pytest.raises(WebhookNotFound):
                await shop.webhooks.delete(one.webhook_id, tenant_id=other)
    assert not caplog.records, "none is even read with another's"


async def test_an_endpoint_that_cannot_be_read_does_not_stop_the_others(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    await shop.endpoint()
    broken = RecordWrite("webhook-endpoints", f"default/{'0' * 8}-0000-4000-8000-{'0' * 12}", b"{}")
    await shop.jobs.store.write_records([broken])
    await shop.ship()
    await shop.work()
    assert len(shop.receiver.received) == 1
    assert any("cannot be read" in one.getMessage() for one in caplog.records)


async def test_what_an_older_gantline_does_not_know_is_skipped(shop: Shop) -> None:
    issued = await shop.endpoint()
    key = f"default/{issued.webhook.webhook_id}"
    (record,) = await shop.jobs.store.read_records("webhook-endpoints", prefix=key)
    newer = msgspec.json.decode(record.value)
    newer["spec"]["fromTheFuture"] = newer["alsoNew"] = 1
    write = RecordWrite("webhook-endpoints", key, msgspec.json.encode(newer))
    await shop.jobs.store.write_records([write])
    await shop.ship()
    await shop.work()
    assert len(shop.receiver.received) == 1


async def test_where_it_leads_is_checked_when_it_is_made_and_when_it_is_changed(
    shop: Shop,
) -> None:
    issued = await shop.endpoint()
    for url in ("https://10.0.0.1/", "http://93.184.215.14/", "https://93.184.215.14:8443/"):
        with pytest.raises(InvalidEnvelope, match="#/url"):
            await shop.endpoint(url=url)
        with pytest.raises(InvalidEnvelope, match="#/url"):
            await shop.webhooks.update(
                issued.webhook.webhook_id, WebhookSpec(url=url), tenant_id="default", actor="me"
            )


async def test_settings_that_cannot_be_read_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANTLINE_WEBHOOK_KEY", KEYS)
    jobs = Gantline("memory://")
    assert jobs.webhooks is not None
    assert jobs.default_queues().keys() == {"default", "webhooks"}
    for name, text in (
        ("ALLOW", "10.0.0.0/33"),
        ("ALLOW", "localhost"),
        ("PORTS", "https"),
        ("PORTS", "0"),
        ("DISABLE_DAYS", "never"),
    ):
        with monkeypatch.context() as changed:
            changed.setenv(f"GANTLINE_WEBHOOK_{name}", text)
            with pytest.raises(InvalidInput, match=f"webhook_{name.lower()}"):
                Gantline("memory://")
    monkeypatch.setenv("GANTLINE_WEBHOOK_KEY", "1:short")
    with pytest.raises(AuthMisconfigured, match="GANTLINE_WEBHOOK_KEY") as error:
        Gantline("memory://")
    assert "1:short" not in str(error.value)


async def test_deliveries_are_counted(shop: Shop) -> None:
    routes = shop.jobs.health_app()
    shop.receiver.answers["/later"] = status(500)
    shop.receiver.answers["/never"] = status(404)
    for path in ("/now", "/later", "/never"):
        await shop.endpoint(path)
    await shop.ship()
    await shop.work()
    page = await ask(routes, "/metrics")
    counted = {
        sample.labels["outcome"]: sample.value
        for family in text_string_to_metric_families(page.body.decode())
        for sample in family.samples
        if sample.name == "gantline_webhook_deliveries_total"
    }
    assert counted == {"delivered": 1, "retried": 1, "failed": 1}

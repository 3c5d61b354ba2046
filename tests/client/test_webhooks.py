"""The verbs about webhooks, of both clients against a served API."""

from datetime import timedelta
from uuid import uuid4

import pytest

from gantline.client import DeliveriesToReplay, WebhookToKeep
from gantline.contract.errors import (
    IllegalTransition,
    InvalidInput,
    InvalidPayload,
    JobNotFound,
    WebhookNotFound,
)
from gantline.contract.webhook import BodyFormat, DeliveryStatus, WebhookStatus
from tests.client.conftest import Asker

URL = "https://hooks.example.com/gantline"


async def test_a_webhook_from_its_making_to_its_end(ask: Asker) -> None:
    issued = await ask("create_webhook", WebhookToKeep(url=URL))
    assert issued.secret not in repr(issued)
    webhook_id = issued.webhook.webhook_id
    assert await ask("webhook", webhook_id) == issued.webhook
    assert issued.webhook in await ask("webhooks")
    changed = await ask("update_webhook", str(webhook_id), WebhookToKeep(url=URL, format="bpc"))  # type: ignore[arg-type]  # as JSON has it
    assert changed.format is BodyFormat.BPC
    rotated = await ask("rotate_webhook", webhook_id, overlap=timedelta(hours=1))
    assert rotated.secret != issued.secret
    assert (await ask("disable_webhook", webhook_id)).status is WebhookStatus.DISABLED
    assert (await ask("enable_webhook", webhook_id)).status is WebhookStatus.ENABLED
    for _ in range(3):
        tested = await ask("test_webhook", webhook_id)
    assert tested.status is DeliveryStatus.PENDING
    assert len(await ask.listed("deliveries", webhook_id=webhook_id)) == 3
    assert len(await ask.listed("deliveries", webhook_id=webhook_id, limit=2)) == 2
    found = await ask.listed("deliveries", webhook_id=webhook_id, status=DeliveryStatus.FAILED)
    assert found == []
    whole = await ask("delivery", webhook_id, tested.delivery_id)
    assert (whole.delivery_id, whole.tries) == (tested.delivery_id, [])
    with pytest.raises(IllegalTransition):
        await ask("replay_delivery", webhook_id, tested.delivery_id)
    report = await ask("replay_deliveries", webhook_id, DeliveriesToReplay(dry_run=True))
    assert report.matching == 0
    await ask("delete_webhook", webhook_id)
    with pytest.raises(WebhookNotFound):
        await ask("webhook", webhook_id)


async def test_errors_are_the_library_s_own(ask: Asker) -> None:
    with pytest.raises(InvalidPayload, match="public addresses"):
        await ask("create_webhook", WebhookToKeep(url="https://10.0.0.1/"))
    with pytest.raises(InvalidInput):
        await ask("webhook", "no-id")
    with pytest.raises(JobNotFound):
        await ask("delivery", uuid4(), uuid4())

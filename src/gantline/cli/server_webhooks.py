"""Webhooks behind a server: the same verbs over HTTP."""

from collections.abc import Awaitable
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

import msgspec

from gantline.cli.waiting import told_when_slow
from gantline.client import AsyncClient, DeliveriesToReplay, WebhookToKeep
from gantline.contract.webhook import (
    DeliveryStatus,
    IssuedWebhook,
    ListedDelivery,
    ReplayReport,
    ReplayWanted,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookSpec,
)

R = TypeVar("R")


class ServerWebhooks:
    """Asks a server."""

    def __init__(self, client: AsyncClient, url: str, patience: timedelta) -> None:
        self._client = client
        self._url = url
        self._patience = patience

    async def create(self, spec: WebhookSpec) -> IssuedWebhook:
        wanted = WebhookToKeep(**msgspec.structs.asdict(spec))
        return await self._told(self._client.create_webhook(wanted))

    async def listed(self) -> list[WebhookEndpoint]:
        return await self._told(self._client.webhooks())

    async def get(self, webhook_id: UUID) -> WebhookEndpoint:
        return await self._told(self._client.webhook(webhook_id))

    async def delete(self, webhook_id: UUID) -> None:
        await self._told(self._client.delete_webhook(webhook_id))

    async def rotate(self, webhook_id: UUID, overlap: timedelta) -> IssuedWebhook:
        return await self._told(self._client.rotate_webhook(webhook_id, overlap=overlap))

    async def enable(self, webhook_id: UUID) -> WebhookEndpoint:
        return await self._told(self._client.enable_webhook(webhook_id))

    async def disable(self, webhook_id: UUID) -> WebhookEndpoint:
        return await self._told(self._client.disable_webhook(webhook_id))

    async def test(self, webhook_id: UUID) -> ListedDelivery:
        return await self._told(self._client.test_webhook(webhook_id))

    async def deliveries(
        self, webhook_id: UUID, status: DeliveryStatus | None, limit: int
    ) -> list[ListedDelivery]:
        async def found() -> list[ListedDelivery]:
            listed = self._client.deliveries(webhook_id, status=status, limit=limit)
            return [one async for one in listed]

        return await self._told(found())

    async def delivery(self, webhook_id: UUID, delivery_id: UUID) -> WebhookDelivery:
        return await self._told(self._client.delivery(webhook_id, delivery_id))

    async def replay(self, webhook_id: UUID, delivery_id: UUID) -> ListedDelivery:
        return await self._told(self._client.replay_delivery(webhook_id, delivery_id))

    async def replay_all(self, webhook_id: UUID, wanted: ReplayWanted) -> ReplayReport:
        chosen = DeliveriesToReplay(**msgspec.structs.asdict(wanted))
        return await self._told(self._client.replay_deliveries(webhook_id, chosen))

    async def _told(self, asked: Awaitable[R]) -> R:
        """Wait for an answer, but not in silence."""
        with told_when_slow(self._url, self._patience):
            return await asked

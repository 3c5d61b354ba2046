"""Who keeps the webhooks: the port behind which commands find a store, or a server before one."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol
from uuid import UUID

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


class WebhookKeeper(Protocol):
    """Whoever keeps the webhooks of a tenant. Each method raises GantlineError."""

    async def create(self, spec: WebhookSpec) -> IssuedWebhook: ...

    async def listed(self) -> list[WebhookEndpoint]: ...

    async def get(self, webhook_id: UUID) -> WebhookEndpoint: ...

    async def delete(self, webhook_id: UUID) -> None: ...

    async def rotate(self, webhook_id: UUID, overlap: timedelta) -> IssuedWebhook: ...

    async def enable(self, webhook_id: UUID) -> WebhookEndpoint: ...

    async def disable(self, webhook_id: UUID) -> WebhookEndpoint: ...

    async def test(self, webhook_id: UUID) -> ListedDelivery: ...

    async def deliveries(
        self, webhook_id: UUID, status: DeliveryStatus | None, limit: int
    ) -> Sequence[ListedDelivery]: ...

    async def delivery(self, webhook_id: UUID, delivery_id: UUID) -> WebhookDelivery: ...

    async def replay(self, webhook_id: UUID, delivery_id: UUID) -> ListedDelivery: ...

    async def replay_all(self, webhook_id: UUID, wanted: ReplayWanted) -> ReplayReport: ...

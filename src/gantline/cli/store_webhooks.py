"""The webhooks of a store, for users who can reach it: a part of StoreBackend."""

from collections.abc import AsyncIterator
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from gantline.api.requests import DeliveriesToReplay, WebhookToKeep
from gantline.app.webhooks import webhook_settings
from gantline.audit.sinks import StoreAudit
from gantline.auth.action import Action
from gantline.auth.peppers import Peppers
from gantline.contract.query import Cursor
from gantline.contract.store import JobStore
from gantline.contract.webhook import (
    DeliveryStatus,
    IssuedWebhook,
    ListedDelivery,
    ReplayReport,
    WebhookDelivery,
    WebhookEndpoint,
    host_of,
)
from gantline.manager.manager import JobManager
from gantline.webhooks.endpoints import Rekeyed
from gantline.webhooks.secret_encryption import Vault, webhooks_off
from gantline.webhooks.service import WebhookService
from gantline.webhooks.settings import WebhookSettings

if TYPE_CHECKING:
    from gantline.cli.session import Cli, CliAudit

_PAGE = 200


class StoreHome:
    """A store instead of an application."""

    def __init__(self, cli: "Cli", store: JobStore, manager: JobManager) -> None:
        self.clock = cli.clock
        self.store = store
        self.manager = manager
        self.audit = StoreAudit(store)


class StoreWebhooks:
    """Acts as the user of this host. To look at webhooks, no key for their secrets is needed."""

    _cli: "Cli"
    _store: JobStore
    _manager: JobManager
    _audit: "CliAudit"

    @cached_property
    def _settings(self) -> WebhookSettings | None:
        """Those of the application, where one is named and has any; else as the settings say."""
        if self._cli.settings["app"] and (webhooks := self._cli.app().webhooks) is not None:
            return webhooks.settings
        return webhook_settings(self._cli.settings)

    @cached_property
    def _webhooks(self) -> WebhookService:
        home = StoreHome(self._cli, self._store, self._manager)
        return WebhookService(
            home, self._settings or WebhookSettings(vault=Vault(Peppers.random()))
        )

    async def create_webhook(
        self, spec: WebhookToKeep, *, secret: str | None = None
    ) -> IssuedWebhook:
        self._check_key()
        await self._managing("createWebhook", None, host=host_of(spec.url))
        return await self._webhooks.create(
            spec, tenant_id=self._cli.tenant, actor=self._cli.actor, secret=secret
        )

    async def webhooks(self) -> list[WebhookEndpoint]:
        return await self._webhooks.listed(tenant_id=self._cli.tenant)

    async def webhook(self, webhook_id: UUID) -> WebhookEndpoint:
        return await self._webhooks.get(webhook_id, tenant_id=self._cli.tenant)

    async def delete_webhook(self, webhook_id: UUID) -> None:
        await self._managing("deleteWebhook", webhook_id)
        await self._webhooks.delete(webhook_id, tenant_id=self._cli.tenant)

    async def rotate_webhook(self, webhook_id: UUID, *, overlap: timedelta) -> IssuedWebhook:
        self._check_key()
        seconds = overlap.total_seconds()
        await self._managing("rotateWebhook", webhook_id, overlapSeconds=seconds)
        return await self._webhooks.rotate(
            webhook_id, tenant_id=self._cli.tenant, overlap=overlap, actor=self._cli.actor
        )

    async def rekey_webhooks(self) -> Rekeyed:
        """Of all tenants. No server does this: the key is not its clients' to change."""
        self._check_key()
        await self._audit.done("rekeyWebhooks", Action.MANAGE_WEBHOOKS, "webhook")
        return await self._webhooks.rekey()

    async def enable_webhook(self, webhook_id: UUID) -> WebhookEndpoint:
        await self._managing("enableWebhook", webhook_id)
        return await self._webhooks.enable(webhook_id, tenant_id=self._cli.tenant)

    async def disable_webhook(self, webhook_id: UUID) -> WebhookEndpoint:
        await self._managing("disableWebhook", webhook_id)
        reason = f"Disabled by {self._cli.actor}."
        return await self._webhooks.disable(webhook_id, tenant_id=self._cli.tenant, reason=reason)

    async def test_webhook(self, webhook_id: UUID) -> ListedDelivery:
        await self._managing("testWebhook", webhook_id)
        made = await self._webhooks.test(
            webhook_id, tenant_id=self._cli.tenant, actor=self._cli.actor
        )
        await self._cli.hint(self._store)
        return made

    async def deliveries(
        self, webhook_id: UUID, *, status: DeliveryStatus | None, limit: int
    ) -> AsyncIterator[ListedDelivery]:
        after: Cursor | None = None
        while limit > 0:
            page, after = await self._webhooks.deliveries(
                webhook_id,
                tenant_id=self._cli.tenant,
                status=status,
                limit=min(_PAGE, limit),
                after=after,
            )
            for one in page:
                yield one
            limit -= len(page)
            if after is None:
                return

    async def delivery(self, webhook_id: UUID, delivery_id: UUID) -> WebhookDelivery:
        return await self._webhooks.delivery(webhook_id, delivery_id, tenant_id=self._cli.tenant)

    async def replay_delivery(self, webhook_id: UUID, delivery_id: UUID) -> ListedDelivery:
        await self._managing("replayDelivery", webhook_id, deliveryId=delivery_id)
        made = await self._webhooks.replay(
            webhook_id, delivery_id, tenant_id=self._cli.tenant, actor=self._cli.actor
        )
        await self._cli.hint(self._store)
        return made

    async def replay_deliveries(self, webhook_id: UUID, replay: DeliveriesToReplay) -> ReplayReport:
        which = msgspec.to_builtins(replay)
        await self._managing("replayDeliveries", webhook_id, filter=which)
        report = await self._webhooks.replay_all(
            webhook_id, replay, tenant_id=self._cli.tenant, actor=self._cli.actor
        )
        await self._cli.hint(self._store)
        return report

    async def _managing(self, operation: str, webhook_id: UUID | None, **details: Any) -> None:
        what = "webhook" if webhook_id is None else f"webhook:{webhook_id}"
        await self._audit.done(operation, Action.MANAGE_WEBHOOKS, what, details)

    def _check_key(self) -> None:
        if self._settings is None:
            raise webhooks_off()

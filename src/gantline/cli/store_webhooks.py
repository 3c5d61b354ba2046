"""Webhooks in a store, for who can reach it."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

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
    ReplayWanted,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookSpec,
    host_of,
)
from gantline.manager.manager import JobManager
from gantline.webhooks.endpoints import Rekeyed
from gantline.webhooks.secret_encryption import Vault, webhooks_off
from gantline.webhooks.service import WebhookService
from gantline.webhooks.settings import WebhookSettings

if TYPE_CHECKING:
    from gantline.cli.session import Cli

_PAGE = 200


class _Home:
    """A store in the place of an application."""

    def __init__(self, cli: "Cli", store: JobStore) -> None:
        self.clock = cli.clock
        self.store = store
        self.manager = JobManager(store)
        self.audit = StoreAudit(store)


class StoreWebhooks:
    """Acts as the user of this host. To look at webhooks, no key for their secrets is needed."""

    def __init__(self, cli: "Cli", store: JobStore) -> None:
        self._cli = cli
        self._store = store
        settings = _settings(cli)
        self._has_key = settings is not None
        without = WebhookSettings(vault=Vault(Peppers.random()))
        self._webhooks = WebhookService(_Home(cli, store), settings or without)
        self._tenant = cli.tenant
        self._audit = cli.audit(store)

    async def create(self, spec: WebhookSpec) -> IssuedWebhook:
        self._check_key()
        await self._managing("createWebhook", None, host=host_of(spec.url))
        return await self._webhooks.create(spec, tenant_id=self._tenant, actor=self._cli.actor)

    async def listed(self) -> list[WebhookEndpoint]:
        return await self._webhooks.listed(tenant_id=self._tenant)

    async def get(self, webhook_id: UUID) -> WebhookEndpoint:
        return await self._webhooks.get(webhook_id, tenant_id=self._tenant)

    async def delete(self, webhook_id: UUID) -> None:
        await self._managing("deleteWebhook", webhook_id)
        await self._webhooks.delete(webhook_id, tenant_id=self._tenant)

    async def rotate(self, webhook_id: UUID, overlap: timedelta) -> IssuedWebhook:
        self._check_key()
        seconds = overlap.total_seconds()
        await self._managing("rotateWebhook", webhook_id, overlapSeconds=seconds)
        return await self._webhooks.rotate(webhook_id, tenant_id=self._tenant, overlap=overlap)

    async def rekey(self) -> Rekeyed:
        """Of all tenants. No server does this: the key is not its clients' to change."""
        self._check_key()
        await self._audit.done("rekeyWebhooks", Action.MANAGE_WEBHOOKS, "webhook")
        return await self._webhooks.rekey()

    async def enable(self, webhook_id: UUID) -> WebhookEndpoint:
        await self._managing("enableWebhook", webhook_id)
        return await self._webhooks.enable(webhook_id, tenant_id=self._tenant)

    async def disable(self, webhook_id: UUID) -> WebhookEndpoint:
        await self._managing("disableWebhook", webhook_id)
        reason = f"Disabled by {self._cli.actor}."
        return await self._webhooks.disable(webhook_id, tenant_id=self._tenant, reason=reason)

    async def test(self, webhook_id: UUID) -> ListedDelivery:
        await self._managing("testWebhook", webhook_id)
        made = await self._webhooks.test(webhook_id, tenant_id=self._tenant, actor=self._cli.actor)
        await self._cli.hint(self._store)
        return made

    async def deliveries(
        self, webhook_id: UUID, status: DeliveryStatus | None, limit: int
    ) -> list[ListedDelivery]:
        found: list[ListedDelivery] = []
        after: Cursor | None = None
        while len(found) < limit:
            page, after = await self._webhooks.deliveries(
                webhook_id,
                tenant_id=self._tenant,
                status=status,
                limit=min(_PAGE, limit - len(found)),
                after=after,
            )
            found += page
            if after is None:
                break
        return found

    async def delivery(self, webhook_id: UUID, delivery_id: UUID) -> WebhookDelivery:
        return await self._webhooks.delivery(webhook_id, delivery_id, tenant_id=self._tenant)

    async def replay(self, webhook_id: UUID, delivery_id: UUID) -> ListedDelivery:
        await self._managing("replayDelivery", webhook_id, deliveryId=delivery_id)
        made = await self._webhooks.replay(
            webhook_id, delivery_id, tenant_id=self._tenant, actor=self._cli.actor
        )
        await self._cli.hint(self._store)
        return made

    async def replay_all(self, webhook_id: UUID, wanted: ReplayWanted) -> ReplayReport:
        which = msgspec.to_builtins(wanted)
        await self._managing("replayDeliveries", webhook_id, filter=which)
        report = await self._webhooks.replay_all(
            webhook_id, wanted, tenant_id=self._tenant, actor=self._cli.actor
        )
        await self._cli.hint(self._store)
        return report

    async def _managing(self, operation: str, webhook_id: UUID | None, **details: Any) -> None:
        what = "webhook" if webhook_id is None else f"webhook:{webhook_id}"
        await self._audit.done(operation, Action.MANAGE_WEBHOOKS, what, details)

    def _check_key(self) -> None:
        if not self._has_key:
            raise webhooks_off()


def _settings(cli: "Cli") -> WebhookSettings | None:
    """Those of the application, where one is named and has any; else as the settings say."""
    if cli.settings["app"] and (webhooks := cli.app().webhooks) is not None:
        return webhooks.settings
    return webhook_settings(cli.settings)

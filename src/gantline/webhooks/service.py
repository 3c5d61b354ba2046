"""The webhooks of an application: what the API and the command line call, and what workers run."""

from collections.abc import Mapping
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING
from uuid import UUID

from gantline.contract.audit import AuditEntry
from gantline.contract.errors import GantlineError
from gantline.contract.policy import Policy
from gantline.contract.query import Cursor
from gantline.contract.webhook import (
    DELIVERY_QUEUE,
    DELIVERY_TYPE,
    DeliveryStatus,
    IssuedWebhook,
    ListedDelivery,
    ReplayReport,
    ReplayRequest,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookSpec,
)
from gantline.manager.cursors import begin_cursor
from gantline.manager.event_reader import DeclaredConsumer
from gantline.webhooks.concurrency import DEFAULT_SLOTS, EndpointLimits
from gantline.webhooks.deliveries import Deliveries, WebhookApp
from gantline.webhooks.delivery_handler import DeliveryHandler
from gantline.webhooks.disabling import EndpointDisabler, FailureRecords
from gantline.webhooks.endpoints import Endpoints, Rekeyed
from gantline.webhooks.fan_out import CONSUMER, FanOut
from gantline.webhooks.retry import SCHEDULE
from gantline.webhooks.settings import WebhookSettings
from gantline.webhooks.url_guard import UrlGuard
from gantline.worker.handler import Handler, make_handler

if TYPE_CHECKING:
    from gantline.webhooks.http_sender import HttpSender

# Longer than the longest timeout of an endpoint, with all that is around it.
_RUN_TIMEOUT = timedelta(minutes=3)
# A delivery is postponed as often as the backlog before it takes; only attempts are counted.
_MOST_SNOOZES = 10**9


class WebhookService:
    """The webhooks of an application. A tenant is named in every call."""

    def __init__(self, app: WebhookApp, settings: WebhookSettings) -> None:
        _require_modules("cryptography", "httpcore2")
        self._app = app
        self.settings = settings
        self._guard = UrlGuard(allow=settings.allow, ports=settings.ports, resolve=settings.resolve)
        self._failures = FailureRecords(lambda: app.store)
        self._endpoints = Endpoints(
            lambda: app.store, settings, self._guard, self._failures, clock=lambda: app.clock
        )
        self._deliveries = Deliveries(app, source=settings.source)
        self._limits = EndpointLimits()

    # -- for workers ------------------------------------------------------------------------------

    def handler(self) -> Handler:
        """Make the handler of deliveries. Their type is not declared, so nobody can submit one."""
        disabler = EndpointDisabler(
            lambda: self._app.store,
            self._endpoints,
            self._failures,
            clock=lambda: self._app.clock,
            disable_after=self.settings.disable_after,
            audit=self._audit,
        )
        handler = DeliveryHandler(
            self._endpoints,
            self._make_sender,
            self._limits,
            disabler,
            clock=lambda: self._app.clock,
        )
        return make_handler(
            DELIVERY_TYPE,
            handler.deliver,
            queue=DELIVERY_QUEUE,
            timeout=_RUN_TIMEOUT,
            policy=Policy(retry=SCHEDULE, max_snoozes=_MOST_SNOOZES),
        )

    def _make_sender(self) -> "HttpSender":
        from gantline.webhooks.http_sender import HttpSender  # an extra, and slow to import

        return HttpSender(self._guard, ssl_context=self.settings.ssl_context)

    def serve(self, queues: Mapping[str, int]) -> None:
        """Divide the slots that this process has for deliveries among the tenants."""
        self._limits.quotas.slots = queues.get(DELIVERY_QUEUE, DEFAULT_SLOTS)

    async def _audit(self, entry: AuditEntry) -> None:
        await self._app.audit.record(entry)

    def consumer(self) -> DeclaredConsumer:
        """The consumer that reads the events and submits their deliveries."""
        fan_out = FanOut(
            self._endpoints,
            lambda jobs: self._app.manager.submitter.insert(jobs),
            source=self.settings.source,
            clock=lambda: self._app.clock,
        )
        return DeclaredConsumer(consumer=fan_out, wants=FanOut.wants)

    # -- endpoints --------------------------------------------------------------------------------

    async def create(self, spec: WebhookSpec, *, tenant_id: str, actor: str) -> IssuedWebhook:
        """Create an endpoint; it gets the events from now on, also those while no worker runs."""
        await begin_cursor(self._app.store, CONSUMER, from_start=False)
        return await self._endpoints.create(spec, tenant_id=tenant_id, created_by=actor)

    async def listed(self, *, tenant_id: str) -> list[WebhookEndpoint]:
        return await self._endpoints.list_all(tenant_id=tenant_id)

    async def get(self, webhook_id: UUID, *, tenant_id: str) -> WebhookEndpoint:
        """Raise WebhookNotFound, for another tenant's as well."""
        return await self._endpoints.get(webhook_id, tenant_id=tenant_id)

    async def update(
        self, webhook_id: UUID, spec: WebhookSpec, *, tenant_id: str
    ) -> WebhookEndpoint:
        return await self._endpoints.update(webhook_id, spec, tenant_id=tenant_id)

    async def delete(self, webhook_id: UUID, *, tenant_id: str) -> None:
        await self._endpoints.delete(webhook_id, tenant_id=tenant_id)

    async def rotate(
        self, webhook_id: UUID, *, tenant_id: str, overlap: timedelta
    ) -> IssuedWebhook:
        return await self._endpoints.rotate(webhook_id, tenant_id=tenant_id, overlap=overlap)

    async def enable(self, webhook_id: UUID, *, tenant_id: str) -> WebhookEndpoint:
        return await self._endpoints.enable(webhook_id, tenant_id=tenant_id)

    async def disable(self, webhook_id: UUID, *, tenant_id: str, reason: str) -> WebhookEndpoint:
        return await self._endpoints.disable(webhook_id, tenant_id=tenant_id, reason=reason)

    async def rekey(self) -> Rekeyed:
        """Encrypt the secrets of all endpoints with the key in use, so that older keys may go.

        Every process must know the key in use before."""
        return await self._endpoints.rekey()

    # -- deliveries -------------------------------------------------------------------------------

    async def test(self, webhook_id: UUID, *, tenant_id: str, actor: str) -> ListedDelivery:
        webhook = await self.get(webhook_id, tenant_id=tenant_id)
        return await self._deliveries.test(webhook, actor=actor)

    async def deliveries(
        self,
        webhook_id: UUID,
        *,
        tenant_id: str,
        status: DeliveryStatus | None = None,
        limit: int = 50,
        after: Cursor | None = None,
    ) -> tuple[list[ListedDelivery], Cursor | None]:
        """List deliveries, also of a deleted endpoint as long as they are kept."""
        return await self._deliveries.list_page(
            webhook_id, tenant_id=tenant_id, status=status, limit=limit, after=after
        )

    async def delivery(
        self, webhook_id: UUID, delivery_id: UUID, *, tenant_id: str
    ) -> WebhookDelivery:
        """Raise JobNotFound."""
        return await self._deliveries.get(webhook_id, delivery_id, tenant_id=tenant_id)

    async def replay(
        self, webhook_id: UUID, delivery_id: UUID, *, tenant_id: str, actor: str
    ) -> ListedDelivery:
        webhook = await self.get(webhook_id, tenant_id=tenant_id)
        return await self._deliveries.replay(webhook, delivery_id, actor=actor)

    async def replay_all(
        self, webhook_id: UUID, replay: ReplayRequest, *, tenant_id: str, actor: str
    ) -> ReplayReport:
        webhook = await self.get(webhook_id, tenant_id=tenant_id)
        return await self._deliveries.replay_all(webhook, replay, actor=actor)


def _require_modules(*modules: str) -> None:
    for name in modules:
        if find_spec(name) is None:
            raise GantlineError(
                f"Webhooks need the module {name}, which is not installed.",
                next_step="Run `pip install gantline[webhooks]`.",
            )

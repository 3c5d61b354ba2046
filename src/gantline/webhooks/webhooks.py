"""Webhooks, put together: what applications, the API and the command line use."""

from collections.abc import Mapping
from datetime import timedelta
from importlib.util import find_spec
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
    ReplayWanted,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookSpec,
)
from gantline.manager.cursors import begin_cursor
from gantline.manager.event_reader import DeclaredConsumer
from gantline.webhooks.deliveries import Deliveries, Home
from gantline.webhooks.delivering import Delivering
from gantline.webhooks.delivery import SCHEDULE
from gantline.webhooks.endpoints import Endpoints
from gantline.webhooks.fan_out import CONSUMER, FanOut
from gantline.webhooks.guard import Guard
from gantline.webhooks.health import Health
from gantline.webhooks.rekeying import Rekeyed, Rekeying
from gantline.webhooks.sender import Sender
from gantline.webhooks.settings import WebhookSettings
from gantline.webhooks.shares import DEFAULT_SLOTS
from gantline.webhooks.turns import Turns
from gantline.worker.handler import Handler, make_handler

# Longer than the longest timeout of an endpoint, with all that is around it.
_RUN_TIMEOUT = timedelta(minutes=3)
# A delivery is put off as often as the backlog before it takes; only attempts are counted.
_MOST_SNOOZES = 10**9


class Webhooks:
    """The webhooks of an application. A tenant is named in every call."""

    def __init__(self, home: Home, settings: WebhookSettings) -> None:
        _check_there_are("cryptography", "httpcore2")
        self._home = home
        self.settings = settings
        self._guard = Guard(allow=settings.allow, ports=settings.ports, resolve=settings.resolve)
        self._health = Health(lambda: home.store)
        self._endpoints = Endpoints(
            lambda: home.store, settings, self._guard, self._health, clock=lambda: home.clock
        )
        self._deliveries = Deliveries(home, source=settings.source)
        self._turns = Turns()

    # -- for workers ------------------------------------------------------------------------------

    def handler(self) -> Handler:
        """The handler of deliveries. Its type is not declared, so nobody can submit one."""
        delivering = Delivering(
            lambda: self._home.store,
            self._endpoints,
            self._health,
            Sender(self._guard, ssl_context=self.settings.ssl_context),
            self._turns,
            clock=lambda: self._home.clock,
            disable_after=self.settings.disable_after,
            audit=self._audit,
        )
        return make_handler(
            DELIVERY_TYPE,
            delivering.deliver,
            queue=DELIVERY_QUEUE,
            timeout=_RUN_TIMEOUT,
            policy=Policy(retry=SCHEDULE, max_snoozes=_MOST_SNOOZES),
        )

    def serve(self, queues: Mapping[str, int]) -> None:
        """Share the slots that this process has for deliveries among the tenants."""
        self._turns.shares.slots = queues.get(DELIVERY_QUEUE, DEFAULT_SLOTS)

    async def _audit(self, entry: AuditEntry) -> None:
        await self._home.audit.record(entry)

    def consumer(self) -> DeclaredConsumer:
        """What reads the events and has them delivered."""
        fan_out = FanOut(
            self._endpoints,
            lambda jobs: self._home.manager.submitter.insert(jobs),
            source=self.settings.source,
            clock=lambda: self._home.clock,
        )
        return DeclaredConsumer(consumer=fan_out, wants=FanOut.wants)

    # -- endpoints --------------------------------------------------------------------------------

    async def create(self, spec: WebhookSpec, *, tenant_id: str, actor: str) -> IssuedWebhook:
        """Make an endpoint; it is told what happens from now on, also while no worker runs."""
        await begin_cursor(self._home.store, CONSUMER, from_start=False)
        return await self._endpoints.create(spec, tenant_id=tenant_id, created_by=actor)

    async def listed(self, *, tenant_id: str) -> list[WebhookEndpoint]:
        return await self._endpoints.listed(tenant_id=tenant_id)

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
        """Seal the secrets of all tenants' endpoints by the key in use, so that older ones may go.

        Every process must know the key in use before."""
        return await Rekeying(lambda: self._home.store, self.settings.vault).run(
            self._home.clock.now()
        )

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
        """Also of an endpoint that was deleted, as long as they are kept."""
        return await self._deliveries.listed(
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
        self, webhook_id: UUID, wanted: ReplayWanted, *, tenant_id: str, actor: str
    ) -> ReplayReport:
        webhook = await self.get(webhook_id, tenant_id=tenant_id)
        return await self._deliveries.replay_all(webhook, wanted, actor=actor)


def _check_there_are(*modules: str) -> None:
    for name in modules:
        if find_spec(name) is None:
            raise GantlineError(
                f"Webhooks need the module {name}, which is not installed.",
                next_step="Run `pip install gantline[webhooks]`.",
            )

"""A shop whose jobs are told to a real receiver, on a clock that the test moves."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

from gantline import Context, Gantline, Permanent, Retry
from gantline.auth.peppers import Peppers
from gantline.consumers.event_reader import EventReader, Turn
from gantline.contract.job import DEFAULT_TENANT
from gantline.contract.store import JobStore
from gantline.contract.webhook import (
    RESERVED_TYPES,
    DeliveryStatus,
    IssuedWebhook,
    ListedDelivery,
    WebhookDelivery,
    WebhookSpec,
)
from gantline.testing.kit import Drained, JobsTest
from gantline.testing.listening import Listening
from gantline.webhooks.ip_ranges import read_networks
from gantline.webhooks.secret_encryption import Vault
from gantline.webhooks.service import WebhookService
from gantline.webhooks.settings import WebhookSettings
from tests.servers.receiver import Receiver

KEYS = "1:0123456789abcdefghijklmnopqrstuvwxyz"


def settings(**changes: Any) -> WebhookSettings:
    usual: dict[str, Any] = {
        "vault": Vault(Peppers.read(KEYS)),
        "allow": read_networks("127.0.0.0/8"),
        "cache_seconds": 0.0,
    }
    return WebhookSettings(**usual | changes)


def make_jobs(store: str | JobStore = "memory://", **changes: Any) -> Gantline:
    jobs = Gantline(store, webhooks=settings(**changes))

    @jobs.job("ship", subject=lambda order: str(order["order"]))
    async def ship(order: dict[str, Any]) -> Any:
        if order.get("fails"):
            raise Permanent("NO_SUCH_ORDER", "There is no such order.")
        if order.get("tries"):
            raise Retry("The carrier is closed.", after=timedelta(hours=1))
        return order.get("result", {"parcel": 7})

    @jobs.job("mail")
    async def mail(order: dict[str, Any]) -> None:
        """Send a mail."""

    @jobs.job("sign", subject=lambda version: str(version["id"]))
    async def sign(version: dict[str, Any], ctx: Context) -> None:
        signed = {"passport_version_id": version["id"], "key_id": "dev-key-1"}
        ctx.emit("PASSPORT_SIGNED", "PassportVersion", signed)
        ctx.emit("passport.counted", "Counter", version.get("note", 1), aggregate_id="all")

    return jobs


class Shop:
    """Everything together; each step is taken by the test."""

    def __init__(self, jobs: Gantline, kit: JobsTest, receiver: Receiver) -> None:
        self.jobs = jobs
        self.kit = kit
        self.receiver = receiver

    @property
    def webhooks(self) -> WebhookService:
        assert self.jobs.webhooks is not None
        return self.jobs.webhooks

    async def endpoint(
        self, path: str = "/", *, tenant: str = DEFAULT_TENANT, **spec: Any
    ) -> IssuedWebhook:
        wanted = WebhookSpec(**{"url": self.receiver.url(path)} | spec)
        return await self.webhooks.create(wanted, tenant_id=tenant, actor="user:me")

    async def ship(self, order: dict[str, Any] | None = None, **options: Any) -> UUID:
        job_type = self.jobs.find_type("ship")
        assert job_type is not None
        return (await job_type.submit(order or {"order": "o1"}, **options)).job_id

    async def told(self) -> None:
        """Have the events read that there are, as a worker's consumer does."""
        while await self.jobs.store.sequence(limit=1000):
            pass
        (declared,) = [one for one in self.jobs.consumers if one.name == "webhooks"]
        reader = EventReader(self.jobs.store, declared, "test", clock=self.kit.clock)
        while (turn := await reader.run_once()) is not Turn.CAUGHT_UP:
            assert turn is Turn.MORE
        await reader.resign()

    async def read_again(self) -> None:
        """Have all events read once more, as after a crash before the cursor had moved."""
        (declared,) = [one for one in self.jobs.consumers if one.name == "webhooks"]
        rows = [
            row
            for row in await self.jobs.store.events(after=0, limit=1000)
            if declared.has_any(row) and not row.job_type.startswith(RESERVED_TYPES)
        ]
        jobs = await self.jobs.store.get([row.entry.job_id for row in rows], tenant_id=None)
        await declared.consumer.consume(
            [
                event
                for row, job in zip(rows, jobs, strict=True)
                if job is not None
                for event in declared.events_of(row, job.job)
            ]
        )

    async def work(self) -> Drained:
        """Run what is due, tell what happened, deliver it; what the deliveries came to."""
        await self.kit.drain()
        await self.told()
        return await self.kit.drain()

    async def deliveries(
        self, issued: IssuedWebhook, status: DeliveryStatus | None = None
    ) -> list[ListedDelivery]:
        webhook = issued.webhook
        found, _ = await self.webhooks.deliveries(
            webhook.webhook_id, tenant_id=webhook.tenant_id, status=status, limit=1000
        )
        return found

    async def delivery(self, issued: IssuedWebhook) -> WebhookDelivery:
        """The only one that there is."""
        (listed,) = await self.deliveries(issued)
        webhook = issued.webhook
        return await self.webhooks.delivery(
            webhook.webhook_id, listed.delivery_id, tenant_id=webhook.tenant_id
        )


class _Deaf(Listening):
    """Leaves it to the test when events are read."""

    async def deliver(self) -> bool:
        return False


@asynccontextmanager
async def open_shop(receiver: Receiver, **changes: Any) -> AsyncIterator[Shop]:
    jobs = make_jobs(**changes)
    async with JobsTest(jobs) as kit:
        kit._listening = _Deaf(jobs, "test")
        yield Shop(jobs, kit, receiver)

"""A receiver of webhooks, as a customer would have one: it verifies, and counts repeats once."""

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from examples.battery_passport.steps import PASSPORT_SIGNED
from gantline import Gantline
from gantline.webhooks import BodyFormat, WebhookNotVerified, WebhookSpec, verify


class Received(NamedTuple):
    delivery_id: str
    event_type: str
    passport_version_id: str


class Receiver:
    """Keeps what came for each tenant, in memory."""

    retry_seconds = (2.0, 4.0, 8.0, 16.0)
    """The waits of the jobs themselves: five attempts, and not the three days that are usual."""

    def __init__(self) -> None:
        self._secrets: dict[str, str] = {}
        self._received: dict[str, dict[str, Received]] = {}

    async def register(self, jobs: Gantline, tenant: str, url: str) -> UUID | None:
        """Make this receiver the tenant's endpoint; None where webhooks are off."""
        if jobs.webhooks is None:
            return None
        spec = WebhookSpec(
            url=url,
            description="the demo's own receiver",
            event_types=(PASSPORT_SIGNED,),
            format=BodyFormat.BPC,
            header_prefix="X-BPC",
            retry_seconds=self.retry_seconds,
        )
        for old in await jobs.webhooks.listed(tenant_id=tenant):
            await jobs.webhooks.delete(old.webhook_id, tenant_id=tenant)
        issued = await jobs.webhooks.create(spec, tenant_id=tenant, actor="demo")
        self._secrets[tenant] = issued.secret
        return issued.webhook.webhook_id

    def take(self, tenant: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Keep a delivery; raise WebhookNotVerified. The same id again changes nothing."""
        secret = self._secrets.get(tenant)
        if secret is None:
            raise WebhookNotVerified(f"There is no receiver for {tenant!r}.")
        verified = verify(body, headers, secret)
        event: dict[str, Any] = msgspec.json.decode(body)
        received = Received(verified.webhook_id, event["event_type"], event["aggregate_id"])
        self._received.setdefault(tenant, {}).setdefault(verified.webhook_id, received)

    def of(self, tenant: str) -> list[Received]:
        return list(self._received.get(tenant, {}).values())

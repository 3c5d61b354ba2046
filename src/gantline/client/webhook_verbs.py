"""The verbs about webhooks."""

from datetime import timedelta
from typing import Any, Final, TypeVar

import msgspec

from gantline.api.documents import DeliveryPage, WebhooksDocument
from gantline.api.requests import DeliveriesToReplay, WebhookToCreate, WebhookToKeep
from gantline.client.asking import Asking, Items, JobId, read_id
from gantline.client.submission import encoded
from gantline.contract.webhook import (
    DeliveryStatus,
    IssuedWebhook,
    ListedDelivery,
    ReplayReport,
    WebhookDelivery,
    WebhookEndpoint,
)

_PATH: Final = "/api/webhooks"
_ID: Final = "an id of a webhook or a delivery"

D = TypeVar("D")


class WebhookVerbs(Asking):
    """What can be asked about webhooks; they are those of the client's tenant."""

    async def webhooks(self) -> list[WebhookEndpoint]:
        """List webhooks, oldest first."""
        return (await self._manage("GET", _PATH, WebhooksDocument)).items

    async def webhook(self, webhook_id: JobId) -> WebhookEndpoint:
        """Show a webhook, but for its secret."""
        return await self._manage("GET", _of(webhook_id), WebhookEndpoint)

    async def create_webhook(
        self, webhook: WebhookToKeep, *, secret: str | None = None
    ) -> IssuedWebhook:
        """Make a webhook; its secret is shown this once. Give the `secret` that its receiver has
        from another system: that is not shown."""
        body = WebhookToCreate(**msgspec.structs.asdict(webhook), secret=secret)
        return await self._manage("POST", _PATH, IssuedWebhook, body=encoded(body))

    async def update_webhook(self, webhook_id: JobId, webhook: WebhookToKeep) -> WebhookEndpoint:
        """Replace what a webhook wants."""
        return await self._manage("PUT", _of(webhook_id), WebhookEndpoint, body=encoded(webhook))

    async def delete_webhook(self, webhook_id: JobId) -> None:
        """Delete a webhook; what is pending fails."""
        await self._reply_to(self._request("DELETE", _of(webhook_id), values=self._of_tenant))

    async def rotate_webhook(
        self, webhook_id: JobId, *, overlap: timedelta = timedelta(days=1)
    ) -> IssuedWebhook:
        """Give a webhook a new secret; for `overlap` more, the old one signs as well."""
        values = {"overlapSeconds": int(overlap.total_seconds()), **self._of_tenant}
        return await self._call("POST", f"{_of(webhook_id)}/rotate", IssuedWebhook, values=values)

    async def enable_webhook(self, webhook_id: JobId) -> WebhookEndpoint:
        """Send events to a webhook again."""
        return await self._manage("POST", f"{_of(webhook_id)}/enable", WebhookEndpoint)

    async def disable_webhook(self, webhook_id: JobId) -> WebhookEndpoint:
        """Send no more events to a webhook."""
        return await self._manage("POST", f"{_of(webhook_id)}/disable", WebhookEndpoint)

    async def test_webhook(self, webhook_id: JobId) -> ListedDelivery:
        """Send a webhook a made-up event, once."""
        return await self._manage("POST", f"{_of(webhook_id)}/test", ListedDelivery)

    def deliveries(
        self,
        webhook_id: JobId,
        *,
        status: DeliveryStatus | None = None,
        limit: int | None = None,
    ) -> Items[ListedDelivery]:
        """List what is to be, was and could not be delivered, newest first."""
        path = f"{_of(webhook_id)}/deliveries"
        return self._list(path, {"status": status}, limit, page_of=DeliveryPage)

    async def delivery(self, webhook_id: JobId, delivery_id: JobId) -> WebhookDelivery:
        """Show all of a delivery: its body, and what was answered to each attempt."""
        path = _delivery(webhook_id, delivery_id)
        return await self._manage("GET", path, WebhookDelivery, job_id=delivery_id)

    async def replay_delivery(self, webhook_id: JobId, delivery_id: JobId) -> ListedDelivery:
        """Make a delivery once more, with the same message id and body."""
        path = f"{_delivery(webhook_id, delivery_id)}/replay"
        return await self._manage("POST", path, ListedDelivery, job_id=delivery_id)

    async def replay_deliveries(
        self, webhook_id: JobId, chosen: DeliveriesToReplay
    ) -> ReplayReport:
        """Make the deliveries that match once more; a dry run only counts them."""
        path = f"{_of(webhook_id)}/replay"
        return await self._manage("POST", path, ReplayReport, body=encoded(chosen))

    async def _manage(self, method: str, path: str, document: type[D], **parts: Any) -> D:
        return await self._call(method, path, document, values=self._of_tenant, **parts)


def _of(webhook_id: JobId) -> str:
    return f"{_PATH}/{read_id(webhook_id, _ID)}"


def _delivery(webhook_id: JobId, delivery_id: JobId) -> str:
    return f"{_of(webhook_id)}/deliveries/{read_id(delivery_id, _ID)}"

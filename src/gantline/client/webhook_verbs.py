"""The verbs about webhooks, as flows."""

from datetime import timedelta
from typing import Final, TypeVar
from uuid import UUID

from gantline.api.documents import DeliveryPage, WebhooksDocument
from gantline.api.sent import DeliveriesToReplay, WebhookToKeep
from gantline.client.asking import Asking, JobId
from gantline.client.steps import Feed, Flow
from gantline.client.submission import encoded
from gantline.contract.errors import InvalidInput
from gantline.contract.webhook import (
    DeliveryStatus,
    IssuedWebhook,
    ListedDelivery,
    ReplayReport,
    WebhookDelivery,
    WebhookEndpoint,
)

_PATH: Final = "/api/webhooks"

D = TypeVar("D")


class WebhookVerbs(Asking):
    """What can be asked about webhooks; they are those of the client's tenant."""

    def webhooks(self) -> Flow[list[WebhookEndpoint]]:
        """List webhooks, oldest first."""
        return (yield from self.read(_PATH, WebhooksDocument, self.of_tenant)).items

    def webhook(self, webhook_id: JobId) -> Flow[WebhookEndpoint]:
        """Show a webhook, but for its secret."""
        return self.read(_of(webhook_id), WebhookEndpoint, self.of_tenant)

    def create_webhook(self, webhook: WebhookToKeep) -> Flow[IssuedWebhook]:
        """Make a webhook; its secret is shown this once."""
        body = encoded(webhook)
        request = self.request("POST", _PATH, body=body, values=self.of_tenant)
        return self.ask(request, IssuedWebhook)

    def update_webhook(self, webhook_id: JobId, webhook: WebhookToKeep) -> Flow[WebhookEndpoint]:
        """Replace what a webhook wants."""
        body = encoded(webhook)
        request = self.request("PUT", _of(webhook_id), body=body, values=self.of_tenant)
        return self.ask(request, WebhookEndpoint)

    def delete_webhook(self, webhook_id: JobId) -> Flow[None]:
        """Delete a webhook; what is pending fails."""
        yield from self.reply_to(self.request("DELETE", _of(webhook_id), values=self.of_tenant))

    def rotate_webhook(
        self, webhook_id: JobId, *, overlap: timedelta = timedelta(days=1)
    ) -> Flow[IssuedWebhook]:
        """Give a webhook a new secret; for `overlap` more, the old one signs as well."""
        values = {"overlapSeconds": int(overlap.total_seconds()), **self.of_tenant}
        request = self.request("POST", f"{_of(webhook_id)}/rotate", values=values)
        return self.ask(request, IssuedWebhook)

    def enable_webhook(self, webhook_id: JobId) -> Flow[WebhookEndpoint]:
        """Tell a webhook again what happens."""
        return self._post(f"{_of(webhook_id)}/enable", WebhookEndpoint)

    def disable_webhook(self, webhook_id: JobId) -> Flow[WebhookEndpoint]:
        """Tell a webhook nothing more."""
        return self._post(f"{_of(webhook_id)}/disable", WebhookEndpoint)

    def test_webhook(self, webhook_id: JobId) -> Flow[ListedDelivery]:
        """Send a webhook a made-up event, once."""
        return self._post(f"{_of(webhook_id)}/test", ListedDelivery)

    def deliveries(
        self,
        webhook_id: JobId,
        *,
        status: DeliveryStatus | None = None,
        limit: int | None = None,
    ) -> Feed[ListedDelivery, None]:
        """List what is to be, was and could not be delivered, newest first."""
        path = f"{_of(webhook_id)}/deliveries"
        return self.pages(path, {"status": status}, limit, page_of=DeliveryPage)

    def delivery(self, webhook_id: JobId, delivery_id: JobId) -> Flow[WebhookDelivery]:
        """Show all of a delivery: its body, and what was answered to each attempt."""
        path = _delivery(webhook_id, delivery_id)
        return self.read(path, WebhookDelivery, self.of_tenant, job_id=delivery_id)

    def replay_delivery(self, webhook_id: JobId, delivery_id: JobId) -> Flow[ListedDelivery]:
        """Make a delivery once more, with the same message id and body."""
        path = f"{_delivery(webhook_id, delivery_id)}/replay"
        request = self.request("POST", path, values=self.of_tenant, job_id=delivery_id)
        return self.ask(request, ListedDelivery)

    def replay_deliveries(
        self, webhook_id: JobId, chosen: DeliveriesToReplay
    ) -> Flow[ReplayReport]:
        """Make the deliveries that match once more; a dry run only counts them."""
        path = f"{_of(webhook_id)}/replay"
        request = self.request("POST", path, body=encoded(chosen), values=self.of_tenant)
        return self.ask(request, ReplayReport)

    def _post(self, path: str, document: type[D]) -> Flow[D]:
        return self.ask(self.request("POST", path, values=self.of_tenant), document)


def _of(webhook_id: JobId) -> str:
    return f"{_PATH}/{_id(webhook_id)}"


def _delivery(webhook_id: JobId, delivery_id: JobId) -> str:
    return f"{_of(webhook_id)}/deliveries/{_id(delivery_id)}"


def _id(text: JobId) -> UUID:
    try:
        return text if isinstance(text, UUID) else UUID(text)
    except ValueError:
        raise InvalidInput(
            f"{str(text)[:64]!r} is not an id of a webhook or a delivery.",
            next_step="It is a UUID.",
        ) from None

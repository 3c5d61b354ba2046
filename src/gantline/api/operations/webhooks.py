"""Webhooks: endpoints of a tenant, and what was delivered to them."""

from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import msgspec

from gantline.api.answer import NO_STORE, Answer, Header, json_answer
from gantline.api.call import Call
from gantline.api.documents import DeliveryPage, WebhooksDocument
from gantline.api.headers import uuid_of
from gantline.api.operation import Operation
from gantline.api.paging import cursor_text, next_link, read_cursor
from gantline.api.parts import Parts
from gantline.api.port import Webhooks
from gantline.api.problems import ApiCode, Refused
from gantline.api.sent import (
    DeliveriesToReplay,
    DeliveryQuery,
    RotateQuery,
    TenantQuery,
    WebhookToKeep,
)
from gantline.auth.action import Action
from gantline.auth.authorizer import Target
from gantline.contract.errors import Code
from gantline.contract.webhook import (
    IssuedWebhook,
    ListedDelivery,
    ReplayReport,
    WebhookDelivery,
    WebhookEndpoint,
    host_of,
)

_PATH: Final = "/api/webhooks"
_ONE: Final = "/api/webhooks/{webhook_id}"
_DELIVERY: Final = "/api/webhooks/{webhook_id}/deliveries/{delivery_id}"
_OFF: Final = (ApiCode.NOT_FOUND, ApiCode.WEBHOOKS_OFF)
_OF_ONE: Final = (*_OFF, ApiCode.WEBHOOK_NOT_FOUND)
_CHANGED: Final = (*_OF_ONE, Code.VERSION_MISMATCH)


class WebhookOperations:
    """For who may manage webhooks in the tenant. Looking leaves no trace in the audit log."""

    def __init__(self, parts: Parts) -> None:
        self._jobs = parts.jobs
        self._access = parts.access

    @property
    def operations(self) -> list[Operation]:
        return [
            _operation(
                *("listWebhooks", "GET", _PATH, "List the tenant's webhooks, oldest first."),
                run=self.listed,
                answers={200: WebhooksDocument},
                problems=_OFF,
            ),
            _operation(
                *("createWebhook", "POST", _PATH, "Make a webhook; its secret is shown this once."),
                run=self.create,
                body=WebhookToKeep,
                answers={201: IssuedWebhook},
                problems=_OFF,
            ),
            _operation(
                *("getWebhook", "GET", _ONE, "Show a webhook, but for its secret."),
                run=self.get,
                answers={200: WebhookEndpoint},
                problems=_OF_ONE,
            ),
            _operation(
                *("updateWebhook", "PUT", _ONE, "Replace what a webhook wants."),
                run=self.update,
                body=WebhookToKeep,
                answers={200: WebhookEndpoint},
                problems=_CHANGED,
            ),
            _operation(
                *("deleteWebhook", "DELETE", _ONE, "Delete a webhook; what is pending fails."),
                run=self.delete,
                answers={204: None},
                problems=_OF_ONE,
            ),
            _operation(
                *("rotateWebhook", "POST", f"{_ONE}/rotate", "Give a webhook a new secret."),
                run=self.rotate,
                query=RotateQuery,
                answers={200: IssuedWebhook},
                problems=_CHANGED,
            ),
            _operation(
                *("enableWebhook", "POST", f"{_ONE}/enable", "Tell a webhook again what happens."),
                run=self.enable,
                answers={200: WebhookEndpoint},
                problems=_CHANGED,
            ),
            _operation(
                *("disableWebhook", "POST", f"{_ONE}/disable", "Tell a webhook nothing more."),
                run=self.disable,
                answers={200: WebhookEndpoint},
                problems=_CHANGED,
            ),
            _operation(
                *("testWebhook", "POST", f"{_ONE}/test", "Send a webhook a made-up event, once."),
                run=self.test,
                answers={202: ListedDelivery},
                problems=_OF_ONE,
            ),
            _operation(
                *("replayDeliveries", "POST", f"{_ONE}/replay"),
                "Make the deliveries that match once more; a dry run only counts them.",
                run=self.replay_all,
                body=DeliveriesToReplay,
                answers={200: ReplayReport},
                problems=(*_OF_ONE, Code.ILLEGAL_TRANSITION),
            ),
            _operation(
                *("listDeliveries", "GET", f"{_ONE}/deliveries"),
                "List what is to be, was and could not be delivered, newest first.",
                run=self.deliveries,
                query=DeliveryQuery,
                answers={200: DeliveryPage},
                problems=_OFF,
            ),
            _operation(
                *("getDelivery", "GET", _DELIVERY),
                "Show all of a delivery: its body, and what was answered to each attempt.",
                run=self.delivery,
                answers={200: WebhookDelivery},
                problems=(*_OFF, Code.JOB_NOT_FOUND),
            ),
            _operation(
                *("replayDelivery", "POST", f"{_DELIVERY}/replay"),
                "Make a delivery once more, with the same message id and body.",
                run=self.replay,
                answers={202: ListedDelivery},
                problems=(
                    *_OF_ONE,
                    Code.JOB_NOT_FOUND,
                    Code.ILLEGAL_TRANSITION,
                    Code.VERSION_MISMATCH,
                ),
            ),
        ]

    # -- endpoints --------------------------------------------------------------------------------

    async def listed(self, call: Call) -> Answer:
        tenant_id, webhooks = await self._looking(call)
        return json_answer(200, WebhooksDocument(items=await webhooks.listed(tenant_id=tenant_id)))

    async def create(self, call: Call) -> Answer:
        spec: WebhookToKeep = call.body
        tenant_id, webhooks = await self._managing(call, host=host_of(spec.url))
        issued = await webhooks.create(spec, tenant_id=tenant_id, actor=call.principal.id)
        location = f"{call.root}{_PATH}/{issued.webhook.webhook_id}".encode("ascii")
        return json_answer(201, issued, (b"location", location))

    async def get(self, call: Call) -> Answer:
        tenant_id, webhooks = await self._looking(call)
        return json_answer(200, await webhooks.get(_webhook_id(call), tenant_id=tenant_id))

    async def update(self, call: Call) -> Answer:
        spec: WebhookToKeep = call.body
        tenant_id, webhooks = await self._managing(call, host=host_of(spec.url))
        return json_answer(200, await webhooks.update(_webhook_id(call), spec, tenant_id=tenant_id))

    async def delete(self, call: Call) -> Answer:
        tenant_id, webhooks = await self._managing(call)
        await webhooks.delete(_webhook_id(call), tenant_id=tenant_id)
        return Answer(204, headers=(NO_STORE,))

    async def rotate(self, call: Call) -> Answer:
        query: RotateQuery = call.query
        details = {"overlapSeconds": query.overlap_seconds}
        tenant_id, webhooks = await self._managing(call, **details)
        overlap = timedelta(seconds=query.overlap_seconds)
        issued = await webhooks.rotate(_webhook_id(call), tenant_id=tenant_id, overlap=overlap)
        return json_answer(200, issued)

    async def enable(self, call: Call) -> Answer:
        tenant_id, webhooks = await self._managing(call)
        return json_answer(200, await webhooks.enable(_webhook_id(call), tenant_id=tenant_id))

    async def disable(self, call: Call) -> Answer:
        tenant_id, webhooks = await self._managing(call)
        reason = f"Disabled by {call.principal.id}."
        return json_answer(
            200, await webhooks.disable(_webhook_id(call), tenant_id=tenant_id, reason=reason)
        )

    # -- deliveries -------------------------------------------------------------------------------

    async def test(self, call: Call) -> Answer:
        tenant_id, webhooks = await self._managing(call)
        made = await webhooks.test(_webhook_id(call), tenant_id=tenant_id, actor=call.principal.id)
        return self._accepted(call, made)

    async def deliveries(self, call: Call) -> Answer:
        tenant_id, webhooks = await self._looking(call)
        query: DeliveryQuery = call.query
        items, following = await webhooks.deliveries(
            _webhook_id(call),
            tenant_id=tenant_id,
            status=query.status,
            limit=query.limit,
            after=None if query.cursor is None else read_cursor(query.cursor),
        )
        further = None if following is None else cursor_text(following)
        links: list[Header] = []
        if further is not None:
            links.append((b"link", next_link(call.path, call.parameters, further)))
        return json_answer(200, DeliveryPage(items=items, next_cursor=further), *links)

    async def delivery(self, call: Call) -> Answer:
        tenant_id, webhooks = await self._looking(call)
        return json_answer(
            200,
            await webhooks.delivery(_webhook_id(call), _delivery_id(call), tenant_id=tenant_id),
        )

    async def replay(self, call: Call) -> Answer:
        tenant_id, webhooks = await self._managing(call, deliveryId=_delivery_id(call))
        made = await webhooks.replay(
            _webhook_id(call), _delivery_id(call), tenant_id=tenant_id, actor=call.principal.id
        )
        return self._accepted(call, made)

    async def replay_all(self, call: Call) -> Answer:
        wanted: DeliveriesToReplay = call.body
        tenant_id, webhooks = await self._managing(call, filter=msgspec.to_builtins(wanted))
        report = await webhooks.replay_all(
            _webhook_id(call), wanted, tenant_id=tenant_id, actor=call.principal.id
        )
        self._jobs.wakeup.notify()
        return json_answer(200, report)

    def _accepted(self, call: Call, made: ListedDelivery) -> Answer:
        """Where to look for what becomes of it, and when."""
        self._jobs.wakeup.notify(job_id=made.delivery_id)
        place = f"{call.root}{_PATH}/{made.webhook_id}/deliveries/{made.delivery_id}"
        headers = ((b"location", place.encode("ascii")), (b"retry-after", b"1"))
        return json_answer(202, made, *headers)

    # -- who may ----------------------------------------------------------------------------------

    async def _looking(self, call: Call) -> tuple[str, Webhooks]:
        tenant_id = _tenant(call)
        target = Target(tenant_id=tenant_id)
        if not await self._access.may(call, Action.MANAGE_WEBHOOKS, target):
            await self._access.target(call, Action.MANAGE_WEBHOOKS, target, what="webhooks")
        return tenant_id, self._webhooks()

    async def _managing(self, call: Call, **details: Any) -> tuple[str, Webhooks]:
        tenant_id, named = _tenant(call), call.scope.get("path_params", {}).get("webhook_id")
        what = f"webhook:{_webhook_id(call)}" if named else "webhook"
        target = Target(tenant_id=tenant_id)
        await self._access.target(call, Action.MANAGE_WEBHOOKS, target, what=what, details=details)
        return tenant_id, self._webhooks()

    def _webhooks(self) -> Webhooks:
        webhooks = self._jobs.webhooks
        if webhooks is None:
            raise Refused(ApiCode.WEBHOOKS_OFF, "Webhooks are off here.")
        return webhooks


def _tenant(call: Call) -> str:
    query: TenantQuery = call.query
    return query.tenant_id or call.principal.tenant_id


def _webhook_id(call: Call) -> UUID:
    return uuid_of("webhookId", call.value("webhook_id"))


def _delivery_id(call: Call) -> UUID:
    return uuid_of("deliveryId", call.value("delivery_id"))


def _operation(name: str, method: str, path: str, summary: str, **rest: Any) -> Operation:
    usual: dict[str, Any] = {"query": TenantQuery}
    return Operation(
        name=name, method=method, path=path, tag="webhooks", summary=summary, **usual | rest
    )

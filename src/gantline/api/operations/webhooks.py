"""Webhooks: endpoints of a tenant, and what was delivered to them."""

from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import msgspec
from starlette.responses import Response

from gantline.api.call import Call
from gantline.api.documents import DeliveryPage, WebhooksDocument
from gantline.api.headers import uuid_of
from gantline.api.json_response import NO_STORE, JsonResponse
from gantline.api.operation import Operations
from gantline.api.paging import cursor_text, page_response, read_cursor
from gantline.api.port import WebhooksPort
from gantline.api.problems import ApiCode, Refused
from gantline.api.requests import (
    DeliveriesToReplay,
    DeliveryQuery,
    RotateQuery,
    TenantQuery,
    WebhookToCreate,
    WebhookToKeep,
)
from gantline.auth.authorizer import Target
from gantline.contract.webhook import ListedDelivery, host_of

_PATH: Final = "/api/webhooks"


class WebhookOperations(Operations):
    """For callers who may manage webhooks in the tenant. Reading is not audited."""

    # -- endpoints --------------------------------------------------------------------------------

    async def listed(self, call: Call) -> Response:
        tenant_id, webhooks = await self._looking(call)
        return JsonResponse(200, WebhooksDocument(items=await webhooks.listed(tenant_id=tenant_id)))

    async def create(self, call: Call) -> Response:
        sent: WebhookToCreate = call.sent
        tenant_id, webhooks = await self._managing(call, host=host_of(sent.url))
        issued = await webhooks.create(
            sent.spec, tenant_id=tenant_id, actor=call.principal.id, secret=sent.secret
        )
        location = f"{call.root}{_PATH}/{issued.webhook.webhook_id}"
        return JsonResponse(201, issued, {"location": location})

    async def get(self, call: Call) -> Response:
        tenant_id, webhooks = await self._looking(call)
        return JsonResponse(200, await webhooks.get(_webhook_id(call), tenant_id=tenant_id))

    async def update(self, call: Call) -> Response:
        spec: WebhookToKeep = call.sent
        tenant_id, webhooks = await self._managing(call, host=host_of(spec.url))
        updated = await webhooks.update(
            _webhook_id(call), spec, tenant_id=tenant_id, actor=call.principal.id
        )
        return JsonResponse(200, updated)

    async def delete(self, call: Call) -> Response:
        tenant_id, webhooks = await self._managing(call)
        await webhooks.delete(_webhook_id(call), tenant_id=tenant_id)
        return Response(status_code=204, headers={"cache-control": NO_STORE})

    async def rotate(self, call: Call) -> Response:
        query: RotateQuery = call.query
        details = {"overlapSeconds": query.overlap_seconds}
        tenant_id, webhooks = await self._managing(call, **details)
        overlap = timedelta(seconds=query.overlap_seconds)
        issued = await webhooks.rotate(
            _webhook_id(call), tenant_id=tenant_id, overlap=overlap, actor=call.principal.id
        )
        return JsonResponse(200, issued)

    async def enable(self, call: Call) -> Response:
        tenant_id, webhooks = await self._managing(call)
        return JsonResponse(200, await webhooks.enable(_webhook_id(call), tenant_id=tenant_id))

    async def disable(self, call: Call) -> Response:
        tenant_id, webhooks = await self._managing(call)
        reason = f"Disabled by {call.principal.id}."
        return JsonResponse(
            200, await webhooks.disable(_webhook_id(call), tenant_id=tenant_id, reason=reason)
        )

    # -- deliveries -------------------------------------------------------------------------------

    async def test(self, call: Call) -> Response:
        tenant_id, webhooks = await self._managing(call)
        made = await webhooks.test(_webhook_id(call), tenant_id=tenant_id, actor=call.principal.id)
        return self._accepted(call, made)

    async def deliveries(self, call: Call) -> Response:
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
        return page_response(call, DeliveryPage(items=items, next_cursor=further))

    async def delivery(self, call: Call) -> Response:
        tenant_id, webhooks = await self._looking(call)
        return JsonResponse(
            200,
            await webhooks.delivery(_webhook_id(call), _delivery_id(call), tenant_id=tenant_id),
        )

    async def replay(self, call: Call) -> Response:
        tenant_id, webhooks = await self._managing(call, deliveryId=_delivery_id(call))
        made = await webhooks.replay(
            _webhook_id(call), _delivery_id(call), tenant_id=tenant_id, actor=call.principal.id
        )
        return self._accepted(call, made)

    async def replay_all(self, call: Call) -> Response:
        replay: DeliveriesToReplay = call.sent
        tenant_id, webhooks = await self._managing(call, filter=msgspec.to_builtins(replay))
        report = await webhooks.replay_all(
            _webhook_id(call), replay, tenant_id=tenant_id, actor=call.principal.id
        )
        self._jobs.wakeup.notify()
        return JsonResponse(200, report)

    def _accepted(self, call: Call, made: ListedDelivery) -> Response:
        """Say where to read its outcome, and when."""
        self._jobs.wakeup.notify(job_id=made.delivery_id)
        location = f"{call.root}{_PATH}/{made.webhook_id}/deliveries/{made.delivery_id}"
        return JsonResponse(202, made, {"location": location, "retry-after": "1"})

    # -- who may ----------------------------------------------------------------------------------

    async def _looking(self, call: Call) -> tuple[str, WebhooksPort]:
        tenant_id = _tenant(call)
        target = Target(tenant_id=tenant_id)
        if not await self._access.may(call, call.right, target):
            await self._access.target(call, target, what="webhooks")
        return tenant_id, self._webhooks()

    async def _managing(self, call: Call, **details: Any) -> tuple[str, WebhooksPort]:
        tenant_id, named = _tenant(call), call.path_params.get("webhook_id")
        what = f"webhook:{_webhook_id(call)}" if named else "webhook"
        target = Target(tenant_id=tenant_id)
        await self._access.target(call, target, what=what, details=details)
        return tenant_id, self._webhooks()

    def _webhooks(self) -> WebhooksPort:
        webhooks = self._jobs.webhooks
        if webhooks is None:
            raise Refused(ApiCode.WEBHOOKS_OFF, "Webhooks are off here.")
        return webhooks


def _tenant(call: Call) -> str:
    query: TenantQuery = call.query
    return query.tenant_id or call.principal.tenant_id


def _webhook_id(call: Call) -> UUID:
    return uuid_of("webhookId", call.path_params["webhook_id"])


def _delivery_id(call: Call) -> UUID:
    return uuid_of("deliveryId", call.path_params["delivery_id"])

"""The handler of delivery jobs: finds the endpoint, signs, sends, and ends or retries the job."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from gantline.contract.errors import (
    AuthMisconfigured,
    Code,
    GantlineError,
    Permanent,
    Retry,
    Snooze,
    StoreCorrupt,
    StoreUnavailable,
)
from gantline.runtime import random
from gantline.webhooks.concurrency import EndpointLimits
from gantline.webhooks.delivery import AttemptResult, Delivery
from gantline.webhooks.disabling import EndpointDisabler
from gantline.webhooks.endpoint import StoredEndpoint
from gantline.webhooks.endpoints import Endpoints, WebhookApp
from gantline.webhooks.retry import (
    DeliveryOutcome,
    NoResponse,
    WebhookResponse,
    choose_wait,
    decide_delivery,
)
from gantline.webhooks.secret_encryption import KEY_VARIABLE
from gantline.webhooks.signing import build_headers
from gantline.worker.context import Context

if TYPE_CHECKING:
    from gantline.webhooks.http_sender import HttpSender

GONE: Final = "WEBHOOK_GONE"
DISABLED: Final = "WEBHOOK_DISABLED"
_STORE_AWAY: Final = timedelta(seconds=5)


class DeliveryHandler:
    """Sends one delivery, or postpones it while its endpoint has too many."""

    def __init__(
        self,
        app: WebhookApp,
        endpoints: Endpoints,
        make_sender: "Callable[[], HttpSender]",
        limits: EndpointLimits,
        disabler: EndpointDisabler,
    ) -> None:
        self._app = app
        self._endpoints = endpoints
        self._make_sender = make_sender
        self._sender: HttpSender | None = None
        self._limits = limits
        self._disabler = disabler

    async def deliver(self, delivery: Delivery, ctx: Context) -> AttemptResult:
        """Handle the job. What this returns or raises is all that is kept of the attempt."""
        sender = self._sender
        if sender is None:
            sender = await asyncio.to_thread(self._prepare)
        try:
            stored = await self._find_endpoint(delivery, ctx)
        except StoreUnavailable:  # no fault of the receiver, whose retries wait for hours
            raise Snooze(_STORE_AWAY) from None
        response = await self._send_within_limits(sender, delivery, stored, ctx)
        decision = decide_delivery(response, self._app.clock.now())
        try:
            await self._disabler.record(delivery, stored, ctx, decision)
        except GantlineError as error:  # no reason to deliver once more what has arrived
            ctx.logger.warning("the outcome of a delivery could not be recorded: %s", error)
        result = AttemptResult.of(response)
        match decision.outcome:
            case DeliveryOutcome.DELIVERED:
                return result
            case DeliveryOutcome.RETRY:
                wait = choose_wait(ctx.attempt, stored.spec, jitter=random())
                after = max(wait, timedelta(seconds=decision.retry_after_seconds))
                raise Retry(decision.message, after=after, code=decision.code, detail=result.text())
            case DeliveryOutcome.REFUSED:
                raise Permanent(decision.code, decision.message, detail=result.text())

    async def _find_endpoint(self, delivery: Delivery, ctx: Context) -> StoredEndpoint:
        """Find the endpoint. Only a fresh read ends a delivery: another process may have created or
        enabled the endpoint a moment ago."""
        tenant_id, webhook_id = ctx.job.tenant_id, delivery.webhook_id
        stored = (await self._endpoints.read_cached(tenant_id)).get(webhook_id)
        if stored is None or not stored.is_enabled:
            stored = (await self._endpoints.read(tenant_id)).get(webhook_id)
        if stored is None:
            raise Permanent(GONE, "The endpoint was deleted.")
        if not stored.is_enabled and not delivery.is_test:
            raise Permanent(DISABLED, "The endpoint is disabled. Enable it, then replay this.")
        return stored

    def _prepare(self) -> "HttpSender":
        """Import what is needed, in a thread: a blocked loop could not renew the leases of runs."""
        self._endpoints.prepare()
        self._sender = sender = self._make_sender()
        return sender

    async def _send_within_limits(
        self, sender: "HttpSender", delivery: Delivery, stored: StoredEndpoint, ctx: Context
    ) -> WebhookResponse | NoResponse:
        """Send, or postpone: waiting here would hold a slot that others need."""
        limits, clock, now = self._limits, self._app.clock, self._app.clock.monotonic()
        run = (ctx.job.tenant_id, delivery.webhook_id, ctx.run_token)
        if delivery.is_test:
            wait = limits.acquire_for_test(*run, now=now)
        else:
            wait = limits.acquire(*run, concurrency=stored.spec.concurrency, now=now)
        if wait is not None:
            raise Snooze(timedelta(seconds=wait))
        try:
            response = await self._send(sender, delivery, stored, ctx)
            decision = decide_delivery(response, clock.now())
        except BaseException:
            limits.abandon(*run, now=clock.monotonic())
            raise
        limits.release(
            *run,
            is_up=decision.is_up,
            pause_seconds=decision.pause_seconds,
            now=clock.monotonic(),
        )
        return response

    async def _send(
        self, sender: "HttpSender", delivery: Delivery, stored: StoredEndpoint, ctx: Context
    ) -> WebhookResponse | NoResponse:
        try:
            secrets = self._endpoints.open_secrets(
                delivery.webhook_id, stored, tenant_id=ctx.job.tenant_id
            )
        except (AuthMisconfigured, StoreCorrupt) as error:  # another worker may have the key
            message = f"{KEY_VARIABLE} of the worker does not fit the endpoint's secret."
            raise Retry(message, code=Code.CONFIGURATION_ERROR, detail=str(error)) from None
        body = delivery.body.encode()
        headers = build_headers(
            body,
            secrets,
            message_id=delivery.message_id or str(ctx.job_id),
            event_type=delivery.event_type,
            content_type=delivery.content_type,
            prefix=stored.spec.header_prefix,
            now=self._app.clock.now(),
        )
        return await sender.post(
            stored.spec.url,
            headers,
            body,
            timeout_seconds=stored.spec.timeout_seconds,
            tenant_id=ctx.job.tenant_id,
        )

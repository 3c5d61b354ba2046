"""Delivering: the handler of the jobs that send webhooks."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final

from gantline.auth.action import Action
from gantline.contract.audit import ALLOWED, AuditEntry
from gantline.contract.clock import Clock
from gantline.contract.errors import GantlineError, Permanent, Retry, Snooze
from gantline.contract.query import JobFilter
from gantline.contract.status import JobStatus
from gantline.contract.store import JobStore
from gantline.contract.version import __version__
from gantline.contract.webhook import DELIVERY_TYPE
from gantline.webhooks.delivery import Delivery, wait_after
from gantline.webhooks.endpoint import StoredEndpoint
from gantline.webhooks.endpoints import Endpoints
from gantline.webhooks.health import Health
from gantline.webhooks.sender import Answer, NoAnswer, Sender
from gantline.webhooks.signing import (
    ID_HEADER,
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
    plain_signature,
    signature,
)
from gantline.webhooks.tried import Tried
from gantline.webhooks.turns import Turns
from gantline.webhooks.verdict import Outcome, Verdict, judge
from gantline.worker.context import Context

_log = logging.getLogger("gantline.webhooks")

_ACTOR: Final = "gantline"
_AGENT: Final = f"Gantline/{__version__}"

GONE: Final = "WEBHOOK_GONE"
DISABLED: Final = "WEBHOOK_DISABLED"

Record = Callable[[AuditEntry], Awaitable[None]]


class Delivering:
    """Send one delivery: find its endpoint, wait for its turn elsewhere, sign, send, judge."""

    def __init__(
        self,
        store: Callable[[], JobStore],
        endpoints: Endpoints,
        health: Health,
        sender: Sender,
        turns: Turns,
        *,
        clock: Callable[[], Clock],
        disable_after: timedelta,
        audit: Record,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._endpoints = endpoints
        self._health = health
        self._sender = sender
        self._turns = turns
        self._clock = clock
        self._disable_after = disable_after
        self._audit = audit
        self._chance = chance
        self._is_prepared = False

    async def deliver(self, delivery: Delivery, ctx: Context) -> Tried:
        """The handler. What it returns or raises is all that is kept of the try."""
        if not self._is_prepared:
            await asyncio.to_thread(self._prepare)
        stored = await self._endpoint(delivery, ctx)
        answer = await self._in_turn(delivery, stored, ctx)
        verdict = judge(answer, self._clock().now())
        try:
            await self._note(delivery, stored, ctx, verdict)
        except GantlineError as error:  # no reason to deliver once more what has arrived
            ctx.logger.warning("how a webhook does could not be written down: %s", error)
        tried = Tried.of(answer)
        match verdict.outcome:
            case Outcome.DELIVERED:
                return tried
            case Outcome.RETRY:
                wait = wait_after(ctx.attempt, stored.spec, chance=self._chance())
                after = max(wait, timedelta(seconds=verdict.retry_after_seconds))
                raise Retry(verdict.message, after=after, code=verdict.code, detail=tried.text())
            case Outcome.REFUSED:
                raise Permanent(verdict.code, verdict.message, detail=tried.text())

    async def _endpoint(self, delivery: Delivery, ctx: Context) -> StoredEndpoint:
        """Where it goes. Only what was read right now ends a delivery: the endpoint may have been
        made or enabled a moment ago, by another process."""
        tenant_id, webhook_id = ctx.job.tenant_id, delivery.webhook_id
        stored = (await self._endpoints.of(tenant_id)).get(webhook_id)
        if stored is None or not stored.is_enabled:
            stored = (await self._endpoints.as_they_stand(tenant_id)).get(webhook_id)
        if stored is None:
            raise Permanent(GONE, "The endpoint was deleted.")
        if not stored.is_enabled and not delivery.is_test:
            raise Permanent(DISABLED, "The endpoint is disabled. Enable it, then replay this.")
        return stored

    def _prepare(self) -> None:
        """The loop must not stand still for it, with the leases of all other runs."""
        self._sender.prepare()
        self._endpoints.prepare()
        self._is_prepared = True

    async def _in_turn(
        self, delivery: Delivery, stored: StoredEndpoint, ctx: Context
    ) -> Answer | NoAnswer:
        """Send, or put it off: a slot that waits for its turn would be one less for the others."""
        turns, clock, now = self._turns, self._clock(), self._clock().monotonic()
        whose = (ctx.job.tenant_id, delivery.webhook_id, ctx.run_token)
        if delivery.is_test:
            wait = turns.take_for_test(*whose, now=now)
        else:
            wait = turns.take(*whose, concurrency=stored.spec.concurrency, now=now)
        if wait is not None:
            raise Snooze(timedelta(seconds=wait))
        try:
            answer = await self._send(delivery, stored, ctx)
            verdict = judge(answer, clock.now())
        except BaseException:
            turns.abandon(*whose, now=clock.monotonic())
            raise
        turns.give_back(
            *whose,
            is_up=verdict.is_up,
            hold_seconds=verdict.hold_seconds,
            now=clock.monotonic(),
        )
        return answer

    async def _send(
        self, delivery: Delivery, stored: StoredEndpoint, ctx: Context
    ) -> Answer | NoAnswer:
        secrets = self._endpoints.secrets_of(
            delivery.webhook_id, stored, tenant_id=ctx.job.tenant_id
        )
        message_id = delivery.message_id or str(ctx.job_id)
        headers = headers_of(
            delivery,
            message_id,
            secrets,
            prefix=stored.spec.header_prefix,
            now=self._clock().now(),
        )
        return await self._sender.post(
            stored.spec.url,
            headers,
            delivery.body.encode(),
            timeout_seconds=stored.spec.timeout_seconds,
            whose=ctx.job.tenant_id,
        )

    # -- the endpoint's health --------------------------------------------------------------------

    async def _note(
        self, delivery: Delivery, stored: StoredEndpoint, ctx: Context, verdict: Verdict
    ) -> None:
        """Remember how the endpoint does; disable one that is gone, or has failed for days."""
        tenant_id, webhook_id, now = ctx.job.tenant_id, delivery.webhook_id, self._clock().now()
        if verdict.outcome is Outcome.DELIVERED:
            await self._health.succeeded(tenant_id, webhook_id, now)
        elif verdict.is_gone:
            await self._disable(ctx, delivery, stored, "The receiver answered 410: it is gone.")
        elif not delivery.is_test:
            since = await self._health.failed(tenant_id, webhook_id, now)
            if now - since >= self._disable_after:  # as far as this process remembers
                since = await self._health.failed(tenant_id, webhook_id, now, anew=True)
            if now - since >= self._disable_after:
                await self._disable_if_nothing_arrived(ctx, delivery, stored, since)

    async def _disable_if_nothing_arrived(
        self, ctx: Context, delivery: Delivery, stored: StoredEndpoint, since: datetime
    ) -> None:
        """Ask the store, since another process may have delivered what this one does not know."""
        wanted = JobFilter(
            tenant_id=ctx.job.tenant_id,
            job_types=frozenset({DELIVERY_TYPE}),
            subject_id=str(delivery.webhook_id),
            statuses=frozenset({JobStatus.COMPLETED}),
        )
        newest = await self._store().find(wanted, limit=20)
        if any(job.completed_at and job.completed_at > since for job in newest.items):
            await self._health.forget(ctx.job.tenant_id, delivery.webhook_id)
            return
        days = self._disable_after / timedelta(days=1)
        await self._disable(ctx, delivery, stored, f"Nothing could be delivered for {days:g} days.")

    async def _disable(
        self, ctx: Context, delivery: Delivery, stored: StoredEndpoint, reason: str
    ) -> None:
        """Unless it is another one by now than the one that answered so."""
        tenant_id, webhook_id = ctx.job.tenant_id, delivery.webhook_id
        if not await self._endpoints.is_still(webhook_id, stored, tenant_id=tenant_id):
            return
        await self._audit(
            AuditEntry(
                at=self._clock().now(),
                actor=_ACTOR,
                action=Action.MANAGE_WEBHOOKS,
                operation="disableWebhook",
                outcome=ALLOWED,
                tenant_id=tenant_id,
                what=f"webhook:{webhook_id}",
                details={"reason": reason},
                correlation_id=ctx.job.correlation_id,
            )
        )
        await self._endpoints.give_up(webhook_id, stored, tenant_id=tenant_id, reason=reason)
        _log.warning("webhook %s of tenant %s was disabled: %s", webhook_id, tenant_id, reason)


def headers_of(
    delivery: Delivery, message_id: str, secrets: list[str], *, prefix: str, now: datetime
) -> dict[str, str]:
    """All headers of a delivery. The timestamp is this attempt's, the id that of all attempts."""
    sent, body = str(int(now.timestamp())), delivery.body.encode()
    headers = {
        "Content-Type": delivery.content_type,
        "User-Agent": _AGENT,
        "Accept-Encoding": "identity",
        ID_HEADER: message_id,
        TIMESTAMP_HEADER: sent,
        SIGNATURE_HEADER: " ".join(signature(one, message_id, sent, body) for one in secrets),
        f"{prefix}-Signature": plain_signature(secrets[0], body),
        f"{prefix}-Event-Type": delivery.event_type,
        f"{prefix}-Delivery-Id": message_id,
    }
    if len(secrets) > 1:
        headers[f"{prefix}-Signature-Previous"] = plain_signature(secrets[1], body)
    return headers

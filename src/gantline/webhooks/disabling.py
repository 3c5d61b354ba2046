"""Disabling of endpoints that are gone, or to which nothing could be delivered for days."""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from gantline.auth.action import Action
from gantline.contract.audit import ALLOWED, AuditEntry
from gantline.contract.query import JobFilter
from gantline.contract.records import RecordWrite
from gantline.contract.results import Applied
from gantline.contract.status import JobStatus
from gantline.contract.store import JobStore
from gantline.contract.webhook import DELIVERY_TYPE
from gantline.webhooks.delivery import Delivery
from gantline.webhooks.endpoint import StoredEndpoint, key_prefix, record_key
from gantline.webhooks.retry import DeliveryDecision, DeliveryOutcome
from gantline.worker.context import Context

if TYPE_CHECKING:
    from gantline.webhooks.endpoints import Endpoints, WebhookApp  # they need the failure records

_log = logging.getLogger("gantline.webhooks")

FAILURES: Final = "webhook-health"
_ACTOR: Final = "gantline"
_MOST_REMEMBERED: Final = 10_000
_KEPT: Final = timedelta(days=60)
_SUCCESS_RECORDED_EVERY: Final = timedelta(minutes=10)
"""How often a success is recorded again: another process may have recorded a failure."""


class EndpointDisabler:
    """Records how each delivery ended, and disables endpoints that are gone or fail for days."""

    def __init__(
        self,
        app: "WebhookApp",
        endpoints: "Endpoints",
        failures: "FailureRecords",
        *,
        disable_after: timedelta,
    ) -> None:
        self._app = app
        self._endpoints = endpoints
        self._failures = failures
        self._disable_after = disable_after

    async def record(
        self, delivery: Delivery, stored: StoredEndpoint, ctx: Context, decision: DeliveryDecision
    ) -> None:
        tenant_id, webhook_id, now = ctx.job.tenant_id, delivery.webhook_id, self._app.clock.now()
        if decision.outcome is DeliveryOutcome.DELIVERED:
            await self._failures.record_success(tenant_id, webhook_id, now)
        elif decision.is_gone:
            await self._disable(ctx, delivery, stored, "The receiver answered 410: it is gone.")
        elif not delivery.is_test:
            since = await self._failures.record_failure(tenant_id, webhook_id, now)
            if now - since >= self._disable_after:  # as far as this process knows
                since = await self._failures.record_failure(
                    tenant_id, webhook_id, now, is_cached_valid=False
                )
            if now - since >= self._disable_after:
                await self._disable_unless_delivered(ctx, delivery, stored, since)

    async def _disable_unless_delivered(
        self, ctx: Context, delivery: Delivery, stored: StoredEndpoint, since: datetime
    ) -> None:
        """Look in the store, since another process may have delivered meanwhile."""
        completed = JobFilter(
            tenant_id=ctx.job.tenant_id,
            job_types=frozenset({DELIVERY_TYPE}),
            subject_id=str(delivery.webhook_id),
            statuses=frozenset({JobStatus.COMPLETED}),
        )
        newest = await self._app.store.find(completed, limit=20)
        if any(job.completed_at and job.completed_at > since for job in newest.items):
            await self._failures.clear(ctx.job.tenant_id, delivery.webhook_id)
            return
        days = self._disable_after / timedelta(days=1)
        await self._disable(ctx, delivery, stored, f"Nothing could be delivered for {days:g} days.")

    async def _disable(
        self, ctx: Context, delivery: Delivery, stored: StoredEndpoint, reason: str
    ) -> None:
        """Disable the endpoint, unless it was changed since the delivery was sent."""
        tenant_id, webhook_id = ctx.job.tenant_id, delivery.webhook_id
        if not await self._endpoints.is_unchanged(webhook_id, stored, tenant_id=tenant_id):
            return
        await self._app.audit.record(
            AuditEntry(
                at=self._app.clock.now(),
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
        await self._endpoints.disable_unchanged(
            webhook_id, stored, tenant_id=tenant_id, reason=reason
        )
        _log.warning("webhook %s of tenant %s was disabled: %s", webhook_id, tenant_id, reason)


class FailureRecords:
    """Since when nothing could be delivered to an endpoint: records of the store, and a cache.

    Processes agree by the first failure that one of them has recorded.
    """

    def __init__(self, store: Callable[[], JobStore]) -> None:
        self._store = store
        self._failing: dict[str, datetime] = {}
        self._succeeded: dict[str, datetime] = {}

    async def record_failure(
        self, tenant_id: str, webhook_id: UUID, at: datetime, *, is_cached_valid: bool = True
    ) -> datetime:
        """Record a failure; return since when there are only failures.

        The cache is not valid where another process may have ended them: by a success, or by
        enabling the endpoint."""
        key = record_key(tenant_id, webhook_id)
        self._succeeded.pop(key, None)
        if is_cached_valid and (since := self._failing.get(key)) is not None:
            return since
        if len(self._failing) >= _MOST_REMEMBERED:  # most of them were deleted
            self._failing.clear()
        write = RecordWrite(FAILURES, key, msgspec.json.encode(at), 0, time_to_live=_KEPT)
        (result,) = await self._store().write_records([write])
        if not isinstance(result, Applied):
            at = (await self.read_failing(tenant_id)).get(webhook_id, at)
        self._failing[key] = at
        return at

    async def record_success(self, tenant_id: str, webhook_id: UUID, at: datetime) -> None:
        """Record a success: one write after a failure, and one every few minutes."""
        key = record_key(tenant_id, webhook_id)
        recorded = self._succeeded.get(key)
        if recorded is None or not timedelta(0) <= at - recorded < _SUCCESS_RECORDED_EVERY:
            await self.clear(tenant_id, webhook_id)
            if len(self._succeeded) >= _MOST_REMEMBERED:
                self._succeeded.clear()
            self._succeeded[key] = at

    async def clear(self, tenant_id: str, webhook_id: UUID) -> None:
        key = record_key(tenant_id, webhook_id)
        self._failing.pop(key, None)
        await self._store().write_records([RecordWrite(FAILURES, key, None)])

    async def read_failing(self, tenant_id: str) -> dict[UUID, datetime]:
        """Read which endpoints of a tenant fail, and since when."""
        prefix = key_prefix(tenant_id)
        records = await self._store().read_records(FAILURES, prefix=prefix)
        return {
            UUID(record.key.removeprefix(prefix)): msgspec.json.decode(record.value, type=datetime)
            for record in records
        }

"""Deliveries: listed, tested and replayed. A delivery is a job; its attempts are the job's log."""

from typing import Final
from uuid import UUID

import msgspec

from gantline.contract.errors import GantlineError, IllegalTransition, JobNotFound
from gantline.contract.job_id import new_job_id
from gantline.contract.query import Cursor, JobFilter
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.status import DEAD, Event, JobStatus
from gantline.contract.submission import NewJob
from gantline.contract.webhook import (
    DELIVERY_TYPE,
    TEST_EVENT,
    DeliveryStatus,
    ListedDelivery,
    ReplayReport,
    ReplayRequest,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookStatus,
)
from gantline.webhooks.bodies import encode_test_event
from gantline.webhooks.delivery import (
    Delivery,
    build_delivery,
    build_delivery_job,
    describe_attempt,
    read_attempt,
)
from gantline.webhooks.endpoints import Endpoints

_STATUSES: Final = {
    DeliveryStatus.PENDING: frozenset({JobStatus.QUEUED, JobStatus.RUNNING}),
    DeliveryStatus.DELIVERED: frozenset({JobStatus.COMPLETED}),
    DeliveryStatus.FAILED: frozenset({*DEAD, JobStatus.CANCELLED}),
}
# Events of runs that sent something; postponed, released and crashed runs are not known to have.
_SENT: Final = frozenset({Event.COMPLETED, Event.RETRIED, Event.FAILED, Event.POISONED})


class Deliveries(Endpoints):
    """Endpoints, with what is delivered to them. Nothing is stored beside the jobs."""

    async def deliveries(
        self,
        webhook_id: UUID,
        *,
        tenant_id: str,
        status: DeliveryStatus | None = None,
        limit: int = 50,
        after: Cursor | None = None,
    ) -> tuple[list[ListedDelivery], Cursor | None]:
        """List deliveries, newest first, also of a deleted endpoint as long as they are kept.

        Return the cursor of the next page as well."""
        query = _build_filter(webhook_id, tenant_id, status)
        page = await self._app.store.find(query, limit=limit, after=after)
        return [_describe(job) for job in page.items], page.next

    async def delivery(
        self, webhook_id: UUID, delivery_id: UUID, *, tenant_id: str
    ) -> WebhookDelivery:
        """Raise JobNotFound."""
        job = await self._job(webhook_id, delivery_id, tenant_id)
        history = await self._app.store.history(delivery_id, tenant_id=tenant_id)
        return WebhookDelivery(
            **msgspec.structs.asdict(_describe(job)),
            body=_read_delivery(job).body,
            tries=[describe_attempt(entry) for entry in history if entry.event in _SENT],
        )

    async def test(self, webhook_id: UUID, *, tenant_id: str, actor: str) -> ListedDelivery:
        """Send a test event, once, also where the endpoint is disabled."""
        webhook = await self.get(webhook_id, tenant_id=tenant_id)
        job_id, now = new_job_id(), self._app.clock.now()
        event_id = f"{TEST_EVENT}.{job_id}"
        body = encode_test_event(event_id, webhook, now, source=self.settings.source)
        delivery = build_delivery(body, webhook.webhook_id, event_id, is_test=True)
        return await self._insert(
            build_delivery_job(
                delivery,
                webhook,
                job_id=job_id,
                tenant_id=webhook.tenant_id,
                now=now,
                created_by=actor,
            )
        )

    async def replay(
        self, webhook_id: UUID, delivery_id: UUID, *, tenant_id: str, actor: str
    ) -> ListedDelivery:
        """Send a delivery again, with its id and body; raise IllegalTransition if pending."""
        webhook = await self.get(webhook_id, tenant_id=tenant_id)
        job = await self._job(webhook_id, delivery_id, tenant_id)
        return await self._replay(webhook, job, actor)

    async def replay_all(
        self, webhook_id: UUID, replay: ReplayRequest, *, tenant_id: str, actor: str
    ) -> ReplayReport:
        """Send the matching deliveries again, the newest of them."""
        webhook = await self.get(webhook_id, tenant_id=tenant_id)
        if replay.status is DeliveryStatus.PENDING:
            raise IllegalTransition("What is pending is made anyway.")
        chosen, more = await self._choose(webhook, replay)
        replayed = 0
        for job in () if replay.dry_run else chosen:
            try:
                await self._replay(webhook, job, actor)
            except (IllegalTransition, JobNotFound):
                continue  # it moved meanwhile
            replayed += 1
        return ReplayReport(
            dry_run=replay.dry_run, matching=len(chosen), replayed=replayed, more=more
        )

    async def _choose(
        self, webhook: WebhookEndpoint, replay: ReplayRequest
    ) -> tuple[list[JobSnapshot], bool]:
        """Find the newest that match, and whether there are more."""
        filtered = msgspec.structs.replace(
            _build_filter(webhook.webhook_id, webhook.tenant_id, replay.status),
            created_from=replay.created_from,
            created_before=replay.created_before,
        )
        page = await self._app.store.find(filtered, limit=replay.limit)
        return list(page.items), page.next is not None

    async def _replay(
        self, webhook: WebhookEndpoint, job: JobSnapshot, actor: str
    ) -> ListedDelivery:
        if webhook.status is WebhookStatus.DISABLED:
            raise IllegalTransition("The webhook is disabled.", next_step="Enable it first.")
        if not job.status.is_terminal:
            raise IllegalTransition("The delivery is pending: it is made anyway.")
        if job.status is JobStatus.COMPLETED:
            return await self._send_again(webhook, job, actor)
        delivery_id, tenant_id = job.job.job_id, job.job.tenant_id
        (result,) = await self._app.manager.redrive([delivery_id], tenant_id=tenant_id, actor=actor)
        if isinstance(result, GantlineError):
            raise result
        return _describe(await self._job(webhook.webhook_id, delivery_id, tenant_id))

    async def _send_again(
        self, webhook: WebhookEndpoint, job: JobSnapshot, actor: str
    ) -> ListedDelivery:
        """Send it by a new job with the same message id: a completed job stays as it is."""
        old = _read_delivery(job)
        message_id = old.message_id or str(job.job.job_id)
        return await self._insert(
            build_delivery_job(
                msgspec.structs.replace(old, message_id=message_id),
                webhook,
                job_id=new_job_id(),
                tenant_id=job.job.tenant_id,
                now=self._app.clock.now(),
                correlation_id=job.job.correlation_id,
                parent=job.job.parent_job_id,
                created_by=actor,
            )
        )

    async def _insert(self, new: NewJob) -> ListedDelivery:
        await self._app.manager.submitter.insert([new])
        webhook_id = UUID(new.job.subject_id)
        return _describe(await self._job(webhook_id, new.job.job_id, new.job.tenant_id))

    async def _job(self, webhook_id: UUID, delivery_id: UUID, tenant_id: str) -> JobSnapshot:
        (job,) = await self._app.store.get([delivery_id], tenant_id=tenant_id)
        if (
            job is None
            or job.job.job_type != DELIVERY_TYPE
            or job.job.subject_id != str(webhook_id)
        ):
            raise JobNotFound(delivery_id)
        return job


def _build_filter(webhook_id: UUID, tenant_id: str, status: DeliveryStatus | None) -> JobFilter:
    return JobFilter(
        tenant_id=tenant_id,
        job_types=frozenset({DELIVERY_TYPE}),
        subject_id=str(webhook_id),
        statuses=_STATUSES[status] if status else frozenset(),
    )


def _read_delivery(job: JobSnapshot) -> Delivery:
    return msgspec.json.decode(job.job.payload, type=Delivery)


def _describe(job: JobSnapshot) -> ListedDelivery:
    envelope, last = job.job, job.last
    delivery = _read_delivery(job)
    attempt = read_attempt(last) if last else None
    error = last.error if last else None
    status = next(one for one, statuses in _STATUSES.items() if job.status in statuses)
    return ListedDelivery(
        delivery_id=envelope.job_id,
        webhook_id=delivery.webhook_id,
        message_id=delivery.message_id or str(envelope.job_id),
        event_id=delivery.event_id,
        event_type=delivery.event_type,
        job_id=envelope.parent_job_id,
        status=status,
        attempts=job.attempt,
        max_attempts=envelope.max_attempts,
        http_status=attempt.http_status if attempt else None,
        error_code=error.code if error else None,
        error_message=error.message if error else None,
        created_at=envelope.created_at,
        next_attempt_at=job.run_at if job.status is JobStatus.QUEUED else None,
        ended_at=job.completed_at,
    )

"""Deliveries as people see them: read off the jobs that make them, listed, and made once more."""

from typing import Final, Protocol
from uuid import UUID

import msgspec

from gantline.contract.audit import AuditSink
from gantline.contract.clock import Clock
from gantline.contract.errors import GantlineError, IllegalTransition, JobNotFound
from gantline.contract.identity import new_job_id
from gantline.contract.query import Cursor, JobFilter
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.status import DEAD, Event, JobStatus
from gantline.contract.store import JobStore
from gantline.contract.submission import NewJob
from gantline.contract.webhook import (
    DELIVERY_TYPE,
    TEST_EVENT,
    DeliveryStatus,
    ListedDelivery,
    ReplayReport,
    ReplayWanted,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookStatus,
)
from gantline.manager.manager import JobManager
from gantline.webhooks.bodies import test_body
from gantline.webhooks.delivery import Delivery, delivery_job, delivery_of
from gantline.webhooks.tried import attempt_of, tried_in

_STATUSES: Final = {
    DeliveryStatus.PENDING: frozenset({JobStatus.QUEUED, JobStatus.RUNNING}),
    DeliveryStatus.DELIVERED: frozenset({JobStatus.COMPLETED}),
    DeliveryStatus.FAILED: frozenset({*DEAD, JobStatus.CANCELLED}),
}
# Put off, given back and crashed runs have sent nothing that anybody knows of.
_TRIES: Final = frozenset({Event.COMPLETED, Event.RETRIED, Event.FAILED, Event.POISONED})


class Home(Protocol):
    """What webhooks need of the application that they belong to."""

    @property
    def clock(self) -> Clock: ...

    @property
    def store(self) -> JobStore: ...

    @property
    def manager(self) -> JobManager: ...

    @property
    def audit(self) -> AuditSink: ...


class Deliveries:
    """Nothing is kept beside the jobs: a delivery is a job, its tries are its log."""

    def __init__(self, home: Home, *, source: str) -> None:
        self._home = home
        self._source = source

    async def listed(
        self,
        webhook_id: UUID,
        *,
        tenant_id: str,
        status: DeliveryStatus | None = None,
        limit: int = 50,
        after: Cursor | None = None,
    ) -> tuple[list[ListedDelivery], Cursor | None]:
        """A page of an endpoint's deliveries, newest first, and where to go on."""
        wanted = _filter(webhook_id, tenant_id, status)
        page = await self._home.store.find(wanted, limit=limit, after=after)
        return [_listed(job) for job in page.items], page.next

    async def get(self, webhook_id: UUID, delivery_id: UUID, *, tenant_id: str) -> WebhookDelivery:
        job = await self._job(webhook_id, delivery_id, tenant_id)
        history = await self._home.store.history(delivery_id, tenant_id=tenant_id)
        return WebhookDelivery(
            **msgspec.structs.asdict(_listed(job)),
            body=_delivery(job).body,
            tries=[attempt_of(entry) for entry in history if entry.event in _TRIES],
        )

    async def test(self, webhook: WebhookEndpoint, *, actor: str) -> ListedDelivery:
        """Send a made-up event, once, also where the endpoint is disabled."""
        job_id, now = new_job_id(), self._home.clock.now()
        event_id = f"{TEST_EVENT}.{job_id}"
        body = test_body(event_id, webhook, now, source=self._source)
        delivery = delivery_of(body, webhook.webhook_id, event_id, is_test=True)
        return await self._insert(
            delivery_job(
                delivery,
                webhook,
                job_id=job_id,
                tenant_id=webhook.tenant_id,
                now=now,
                created_by=actor,
            )
        )

    async def replay(
        self, webhook: WebhookEndpoint, delivery_id: UUID, *, actor: str
    ) -> ListedDelivery:
        """Make a delivery once more, with its id and body; raise IllegalTransition if pending."""
        job = await self._job(webhook.webhook_id, delivery_id, webhook.tenant_id)
        return await self._replayed(webhook, job, actor)

    async def replay_all(
        self, webhook: WebhookEndpoint, wanted: ReplayWanted, *, actor: str
    ) -> ReplayReport:
        """Make deliveries once more that match, the newest of them."""
        if wanted.status is DeliveryStatus.PENDING:
            raise IllegalTransition("What is pending is made anyway.")
        chosen, more = await self._chosen(webhook, wanted)
        replayed = 0
        for job in () if wanted.dry_run else chosen:
            try:
                await self._replayed(webhook, job, actor)
            except (IllegalTransition, JobNotFound):
                continue  # it moved meanwhile
            replayed += 1
        return ReplayReport(
            dry_run=wanted.dry_run, matching=len(chosen), replayed=replayed, more=more
        )

    async def _chosen(
        self, webhook: WebhookEndpoint, wanted: ReplayWanted
    ) -> tuple[list[JobSnapshot], bool]:
        """The newest that match, and whether there are more; never more than that is read."""
        filtered = msgspec.structs.replace(
            _filter(webhook.webhook_id, webhook.tenant_id, wanted.status),
            created_from=wanted.created_from,
            created_before=wanted.created_before,
        )
        page = await self._home.store.find(filtered, limit=wanted.limit)
        return list(page.items), page.next is not None

    async def _replayed(
        self, webhook: WebhookEndpoint, job: JobSnapshot, actor: str
    ) -> ListedDelivery:
        if webhook.status is WebhookStatus.DISABLED:
            raise IllegalTransition("The webhook is disabled.", next_step="Enable it first.")
        if not job.status.is_terminal:
            raise IllegalTransition("The delivery is pending: it is made anyway.")
        if job.status is JobStatus.COMPLETED:
            return await self._made_anew(webhook, job, actor)
        delivery_id, tenant_id = job.job.job_id, job.job.tenant_id
        (acted,) = await self._home.manager.redrive([delivery_id], tenant_id=tenant_id, actor=actor)
        if isinstance(acted, GantlineError):
            raise acted
        return _listed(await self._job(webhook.webhook_id, delivery_id, tenant_id))

    async def _made_anew(
        self, webhook: WebhookEndpoint, job: JobSnapshot, actor: str
    ) -> ListedDelivery:
        """What has ended well stays so: a second job sends it again, under the same message id."""
        old = _delivery(job)
        message_id = old.message_id or str(job.job.job_id)
        return await self._insert(
            delivery_job(
                msgspec.structs.replace(old, message_id=message_id),
                webhook,
                job_id=new_job_id(),
                tenant_id=job.job.tenant_id,
                now=self._home.clock.now(),
                correlation_id=job.job.correlation_id,
                parent=job.job.parent_job_id,
                created_by=actor,
            )
        )

    async def _insert(self, new: NewJob) -> ListedDelivery:
        await self._home.manager.submitter.insert([new])
        webhook_id = UUID(new.job.subject_id)
        return _listed(await self._job(webhook_id, new.job.job_id, new.job.tenant_id))

    async def _job(self, webhook_id: UUID, delivery_id: UUID, tenant_id: str) -> JobSnapshot:
        (job,) = await self._home.store.get([delivery_id], tenant_id=tenant_id)
        if (
            job is None
            or job.job.job_type != DELIVERY_TYPE
            or job.job.subject_id != str(webhook_id)
        ):
            raise JobNotFound(delivery_id)
        return job


def _filter(webhook_id: UUID, tenant_id: str, status: DeliveryStatus | None) -> JobFilter:
    return JobFilter(
        tenant_id=tenant_id,
        job_types=frozenset({DELIVERY_TYPE}),
        subject_id=str(webhook_id),
        statuses=_STATUSES[status] if status else frozenset(),
    )


def _delivery(job: JobSnapshot) -> Delivery:
    return msgspec.json.decode(job.job.payload, type=Delivery)


def _listed(job: JobSnapshot) -> ListedDelivery:
    envelope, last = job.job, job.last
    delivery = _delivery(job)
    tried = tried_in(last) if last else None
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
        http_status=tried.http_status if tried else None,
        error_code=error.code if error else None,
        error_message=error.message if error else None,
        created_at=envelope.created_at,
        next_attempt_at=job.run_at if job.status is JobStatus.QUEUED else None,
        ended_at=job.completed_at,
    )

"""What jobs want audited: a durable consumer that hands it to the audit trail."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, cast

from gantline.audit.chain import JOB
from gantline.consumers.event_reader import DeclaredConsumer
from gantline.contract.audit import ALLOWED, AuditEntry, AuditSink
from gantline.contract.job_event import DomainEvent, JobEvent

CONSUMER: Final = "audit"


class JobEntries:
    """Hands entries on in their order. One that comes again has the id that it had before."""

    name = CONSUMER

    def __init__(self, sink: Callable[[], AuditSink]) -> None:
        self._sink = sink

    @classmethod
    def consumer(cls, sink: Callable[[], AuditSink]) -> DeclaredConsumer:
        return DeclaredConsumer(consumer=cls(sink), of_audit=True)

    async def consume(self, events: Sequence[JobEvent]) -> None:
        """Append a page together, since every block of a chain is a write."""
        sink = self._sink()
        entries = [entry_of(event) for event in cast("Sequence[DomainEvent]", events)]
        recorded = await asyncio.gather(*map(sink.record, entries), return_exceptions=True)
        for error in filter(None, recorded):
            raise error


def entry_of(event: DomainEvent) -> AuditEntry:
    """The actor is the job, and the tenant's chain has it under what it is about."""
    job = event.job
    return AuditEntry(
        at=event.entry.at,
        actor=f"{JOB}{job.job_id}",
        actor_tenant=job.tenant_id,
        action=event.type,
        outcome=ALLOWED,
        tenant_id=job.tenant_id,
        job_type=job.job_type,
        subject_id=job.subject_id,
        what=f"{event.aggregate}:{event.aggregate_id}",
        correlation_id=job.correlation_id,
        event_id=event.event_id,
        details=event.payload,
    )

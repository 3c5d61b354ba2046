"""Sending envelopes to other systems, in the order in which they were sent.

Each waits in a job of ours, whose submission is an event: so it is stored as durably as any job, in
the caller's transaction if it has one. One process of the fleet reads these events and publishes
the envelopes. Its cursor moves when the broker has confirmed them, and the job itself does nothing.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from gantline.bridge.broker import Broker, Outgoing
from gantline.bridge.message import encode_envelope
from gantline.contract.envelope import AnyEnvelope, read_members
from gantline.contract.job import Job, read_job
from gantline.contract.job_event import JobEvent
from gantline.contract.policy import Policy
from gantline.contract.snapshot import LoggedEvent
from gantline.contract.status import Event
from gantline.worker.handler import Handler, make_handler

SEND_TYPE: Final = "gantline.bridge-send"


class EnvelopePublisher:
    """A durable consumer that publishes every envelope, by the name of its type."""

    def __init__(self, broker: Broker, *, name: str) -> None:
        self.name = name
        self._broker = broker

    @staticmethod
    def wants(event: LoggedEvent) -> bool:
        return event.job_type == SEND_TYPE and event.entry.event is Event.SUBMITTED

    async def consume(self, events: Sequence[JobEvent]) -> None:
        jobs = [read_job(bytes(event.job.payload)) for event in events]
        await self._broker.send([Outgoing(job.job_type, encode_envelope(job)) for job in jobs])


def read_sent(envelope: AnyEnvelope, *, default_tenant: str) -> tuple[Job, str]:
    """Read an envelope that is to be sent, and whose it is here; raise InvalidFormat."""
    members = read_members(envelope)
    known = {name: members[name] for name in Job.__struct_encode_fields__ if name in members}
    job = read_job(msgspec.json.encode(known))
    return job, job.tenant_id if "tenantId" in known else default_tenant


def wrap_sent(job: Job, *, tenant: str, queue: str, now: datetime) -> Job:
    """The job of ours in which an envelope waits."""
    return Job(
        job_type=SEND_TYPE,
        queue=queue,
        tenant_id=tenant,
        subject_id=job.subject_id,
        correlation_id=job.correlation_id,
        payload=msgspec.Raw(job.to_json()),
        created_at=now,
    )


def make_send_handler(queue: str) -> Handler:
    """What ends these jobs; their submission is an event."""
    policy = Policy(events=frozenset({Event.SUBMITTED}))
    return make_handler(SEND_TYPE, _end, queue=queue, policy=policy)


async def _end(envelope: Any) -> None:
    """Do nothing: the event of its submission has been written, and will be read."""

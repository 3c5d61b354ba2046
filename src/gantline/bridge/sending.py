"""Sending envelopes to other systems, in the order in which they were sent.

Each waits in a job of ours, whose submission is an event: so it is stored as durably as any job, in
the caller's transaction if it has one. One process of the fleet reads these events and publishes
the envelopes. Its cursor moves when the broker has confirmed them, and the job itself does nothing.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from gantline.bridge.broker import BridgedApp, Broker, Outgoing, Topic
from gantline.bridge.message import encode_envelope
from gantline.consumers.event_reader import DeclaredConsumer
from gantline.contract.envelope import AnyEnvelope, read_members
from gantline.contract.job import Job, read_job
from gantline.contract.job_event import JobEvent
from gantline.contract.policy import Policy
from gantline.contract.status import Event
from gantline.manager.submitter import Submission
from gantline.worker.handler import Handler, make_handler

SEND_TYPE: Final = "gantline.bridge-send"


class EnvelopePublisher:
    """A durable consumer that publishes every envelope, by the name of its type."""

    def __init__(self, broker: Broker, *, name: str) -> None:
        self.name = name
        self._broker = broker

    @staticmethod
    def wants(event_type: str, job_type: str) -> bool:
        return (event_type, job_type) == (f"job.{Event.SUBMITTED}", SEND_TYPE)

    async def consume(self, events: Sequence[JobEvent]) -> None:
        jobs = [read_job(bytes(event.job.payload)) for event in events]
        await self._broker.send([Outgoing(job.job_type, encode_envelope(job)) for job in jobs])


class EnvelopeSender:
    """Stores what is to be sent, and declares what publishes it."""

    def __init__(self, app: BridgedApp, broker: Broker, *, name: str, queue: str) -> None:
        self._home = app
        self._out = broker
        self._name = name
        self._queue = queue

    async def send(self, envelope: AnyEnvelope, *, connection: Any = None) -> Job:
        """Have an envelope published for another system; it is durable when this returns.

        Workers publish in the order of these calls, at least once, by the name of the job type.
        With `connection` it is sent if, and only if, the caller's transaction is committed. Return
        the envelope as it is sent; raise InvalidInput.
        """
        app, members = self._home, read_members(envelope)
        known = {name: members[name] for name in Job.__struct_encode_fields__ if name in members}
        job = read_job(msgspec.json.encode(known))
        prepare = app.manager.submitter.prepare
        prepare(Submission(job))  # the contract holds for it too
        self._out.check([Topic(job.job_type, (job.job_type,))])
        tenant = job.tenant_id if "tenantId" in known else app.default_tenant
        carrier = Job(
            job_type=SEND_TYPE,
            queue=self._queue,
            tenant_id=tenant,
            subject_id=job.subject_id,
            correlation_id=job.correlation_id,
            payload=msgspec.Raw(job.to_json()),
            created_at=app.clock.now(),
        )
        await app.submit_prepared(prepare(Submission(carrier)), connection=connection)
        return job

    def handler(self) -> Handler:
        """The handler of these jobs, whose submission is an event. Nobody else can submit one."""
        policy = Policy(events=frozenset({Event.SUBMITTED}))
        return make_handler(SEND_TYPE, _end, queue=self._queue, policy=policy)

    def consumer(self) -> DeclaredConsumer:
        """The consumer that publishes what is sent."""
        publisher = EnvelopePublisher(self._out, name=self._name)
        return DeclaredConsumer(
            consumer=publisher, from_start=True, wants=EnvelopePublisher.wants, own=True
        )


async def _end(envelope: Any) -> None:
    """Do nothing: the event of its submission has been written, and will be read."""

"""Sending envelopes to other systems, in the order in which they were sent.

Each waits in a job of ours, whose submission is an event: so it is stored as durably as any job, in
the caller's transaction if it has one. One process of the fleet reads these events and publishes
the envelopes. Its cursor moves when the broker has confirmed them, or when what it has refused has
a cursor of its own; the job itself does nothing.
"""

import logging
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from gantline.bridge.broker import BridgedApp, Broker, Outgoing, Topic
from gantline.bridge.message import encode_envelope
from gantline.consumers.event_reader import PAGE, DeclaredConsumer, read_events
from gantline.contract.envelope import AnyEnvelope, read_members
from gantline.contract.errors import GantlineError
from gantline.contract.job import Job, read_job
from gantline.contract.job_event import JobEvent
from gantline.contract.policy import Policy
from gantline.contract.status import Event
from gantline.contract.text import LABEL_LIMIT, storable
from gantline.manager.cursors import (
    ConsumerCursor,
    HeldCursor,
    delete_cursor,
    part_name,
    read_cursor,
    read_parts,
    write_cursor,
)
from gantline.manager.submitter import Submission
from gantline.runtime import jittered
from gantline.worker.handler import Handler, make_handler

_log = logging.getLogger("gantline.bridge")

SEND_TYPE: Final = "gantline.bridge-send"
MOST_PUT_OFF: Final = 100
"""How many types may wait for somebody to receive them; one more would hold up all others."""
_FIRST_WAIT_SECONDS: Final = 1.0
_LONGEST_WAIT_SECONDS: Final = 60.0


class _Envelope(NamedTuple):
    """What is to be published, with the number of the event by which it was sent."""

    sequence: int
    outgoing: Outgoing

    @property
    def topic(self) -> str:
        return self.outgoing.topic


class EnvelopePublisher:
    """A durable consumer that publishes every envelope, by the name of its type.

    When the broker refuses one, its type is put off: that one and all behind it are read again by a
    cursor of their own, until the broker takes them. They stay in order, and other types go on.
    """

    def __init__(self, app: BridgedApp, broker: Broker, *, name: str) -> None:
        self.name = name
        self._app = app
        self._broker = broker
        self._tries: dict[str, _Try] = {}
        self.declared = DeclaredConsumer(
            consumer=self, from_start=True, wants=_is_sent, own=True, resume=self.resume
        )

    async def consume(self, events: Sequence[JobEvent]) -> None:
        envelopes = list(map(_read_envelope, events))
        put_off = await read_parts(self._app.store, self.name)
        first = {one.topic: (one.sequence, "") for one in reversed(envelopes)}
        waiting = {topic: first[topic] for topic in first.keys() & put_off.keys()}
        for one, why in await self._send([one for one in envelopes if one.topic not in put_off]):
            waiting.setdefault(one.topic, (one.sequence, why))
        if (new := waiting.keys() - put_off.keys()) and len(put_off) + len(new) > MOST_PUT_OFF:
            raise GantlineError(
                f"At most {MOST_PUT_OFF} types of envelopes can be put off: all others wait too.",
                next_step=waiting[min(new)][1],
            )
        for topic, (sequence, why) in waiting.items():
            await self._put_off(topic, since=sequence, until=events[-1].sequence, why=why)

    async def _send(self, envelopes: Sequence[_Envelope]) -> list[tuple[_Envelope, str]]:
        """Publish; return what the broker refused, and why."""
        if not envelopes:
            return []
        refused = await self._broker.send([one.outgoing for one in envelopes])
        return [(one, why) for one, why in zip(envelopes, refused, strict=True) if why]

    # -- what is put off --------------------------------------------------------------------------

    async def _put_off(self, topic: str, *, since: int, until: int, why: str) -> None:
        """Keep the envelopes of a type, from `since` to `until`, behind those that wait already."""
        store, name = self._app.store, part_name(self.name, topic)
        new = ConsumerCursor(
            position=since - 1,
            until=until,
            part_of=self.name,
            last_error=storable(why, LABEL_LIMIT),
            failed_at=self._app.clock.now(),
        )
        written = None
        while written is None:
            held = await read_cursor(store, name) or HeldCursor(new, 0)
            end = max(until, held.cursor.until)
            cursor = msgspec.structs.replace(held.cursor, until=end)
            written = await write_cursor(store, name, cursor, expected=held.version)
        if why and not held.version:
            _log.warning("%s Its envelopes wait, in order; those of other types pass.", why)

    async def resume(self) -> bool:
        """Send what was put off and is taken by now; return whether there is more of it."""
        put_off = await read_parts(self._app.store, self.name)
        self._tries = {topic: self._tries.get(topic, _Try()) for topic in put_off}
        now = self._app.clock.monotonic()
        due = [topic for topic in put_off if self._tries[topic].at <= now]
        return any([await self._resume(topic, put_off[topic]) for topic in due])

    async def _resume(self, topic: str, held: HeldCursor) -> bool:
        store, cursor, name = self._app.store, held.cursor, part_name(self.name, topic)
        rows = await store.events(after=cursor.position, limit=PAGE)
        envelopes = [
            one
            for one in map(_read_envelope, await read_events(store, self.declared, rows))
            if one.topic == topic and one.sequence <= cursor.until
        ]
        # The first alone: none behind it may be taken before it when a queue is bound just now.
        refused = await self._send(envelopes[:1]) or await self._send(envelopes[1:])
        now = self._app.clock.now()
        if refused:
            (first, why), *_ = refused
            self._tries[topic] = self._tries[topic].next(self._app.clock.monotonic())
            error = storable(why, LABEL_LIMIT)
            cursor = msgspec.structs.replace(
                cursor, position=first.sequence - 1, last_error=error, failed_at=now
            )
        elif len(rows) == PAGE and rows[-1].sequence < cursor.until:
            cursor = msgspec.structs.replace(cursor, position=rows[-1].sequence, moved_at=now)
        else:
            if await delete_cursor(store, name, expected=held.version):
                _log.info("all envelopes of the type %r that waited have been sent", topic)
            return False
        # Where another process has written, it has sent the same.
        await write_cursor(store, name, cursor, expected=held.version)
        return not refused


class _Try(NamedTuple):
    """When a type that was put off is tried again, and after how long a wait."""

    at: float = 0.0
    wait_seconds: float = _FIRST_WAIT_SECONDS / 2

    def next(self, now: float) -> "_Try":
        wait = min(_LONGEST_WAIT_SECONDS, 2 * self.wait_seconds)
        return _Try(now + jittered(wait), wait)


def _is_sent(event_type: str, job_type: str) -> bool:
    return (event_type, job_type) == (f"job.{Event.SUBMITTED}", SEND_TYPE)


def _read_envelope(event: JobEvent) -> _Envelope:
    job = read_job(bytes(event.job.payload))
    return _Envelope(event.sequence, Outgoing(job.job_type, encode_envelope(job)))


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
        return EnvelopePublisher(self._home, self._out, name=self._name).declared


async def _end(envelope: Any) -> None:
    """Do nothing: the event of its submission has been written, and will be read."""

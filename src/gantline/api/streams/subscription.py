"""A subscription: which events one stream is about, and what waits to be sent to it, bounded."""

import asyncio
from collections import deque
from contextlib import suppress
from datetime import datetime
from enum import Enum, auto
from typing import Final
from uuid import UUID

import msgspec

from gantline.api.documents import StatusDocument
from gantline.api.json_response import encode
from gantline.api.seal import Seal
from gantline.api.views import status_document
from gantline.contract.job import Job
from gantline.contract.job_event import emitted_with
from gantline.contract.query import JobFilter, Visibility
from gantline.contract.snapshot import CurrentRun, JobSnapshot, LogEntry, LoggedEvent
from gantline.contract.status import ON_REQUEST, Event, JobStatus

_BACK_AFTER_A_FAILURE: Final = (Event.RETRIED, Event.CRASHED)
RETRY: Final = b"retry: 3000\n\n"
_PING: Final = b": ping\n"


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Every given field must match; nothing is seen that `visible_to` does not admit."""

    tenant_id: str
    job_ids: frozenset[UUID] = frozenset()
    awaited: frozenset[UUID] = frozenset()
    """Those of `job_ids` that were not there yet: each may be the external id of a job to come."""
    job_types: frozenset[str] = frozenset()
    subject_id: str | None = None
    visible_to: Visibility

    def may_concern(self, event: LoggedEvent) -> bool:
        """Whether an event may match, as far as it says itself."""
        return (
            event.tenant_id == self.tenant_id
            and self.may_name(event.entry.job_id)
            and (not self.job_types or event.job_type in self.job_types)
        )

    def may_name(self, job_id: UUID) -> bool:
        """Whether a job may be asked for, as far as its id says."""
        return not self.job_ids or bool(self.awaited) or job_id in self.job_ids

    def names(self, job: Job) -> bool:
        return job.job_id in self.job_ids or job.external_id in self.awaited

    def admits(self, job: Job) -> bool:
        """Whether a job is asked for and may be seen."""
        return (
            job.tenant_id == self.tenant_id
            and (not self.job_ids or self.names(job))
            and (not self.job_types or job.job_type in self.job_types)
            and self.subject_id in (None, job.subject_id)
            and self.visible_to.admits(job)
        )

    @property
    def living(self) -> JobFilter:
        """The jobs that are meant and have not ended."""
        return JobFilter(
            tenant_id=self.tenant_id,
            statuses=frozenset({JobStatus.QUEUED, JobStatus.RUNNING}),
            job_types=self.job_types,
            subject_id=self.subject_id,
            visible_to=self.visible_to,
        )


# -- events ---------------------------------------------------------------------------------------


class StreamedEvent:
    """One event of one job, written once for all streams that it goes to.

    It has the job's status document as it stood right after it.
    """

    __slots__ = ("ends", "fence", "is_on_request", "job", "number", "tag", "text", "version")

    def __init__(self, event: LoggedEvent, job: JobSnapshot, now: datetime, seal: Seal) -> None:
        entry, document = event.entry, document_after(event.entry, job, now)
        self.number = event.sequence
        self.job = job.job
        self.version = entry.version
        self.ends = entry.status.is_terminal
        self.is_on_request = entry.event in ON_REQUEST
        goes_on = self.is_on_request and entry.status is JobStatus.RUNNING
        self.fence = entry.fence if goes_on else None
        """Of the run that it is about, if that goes on."""
        self.tag = f'"{entry.job_id}-{entry.version}-{document.state}"'
        """As `entity_tag` makes it of the job at that time."""
        sealed = seal.number(event.sequence, event.tenant_id)
        emitted = [
            event_text(name, data, position=None) for name, data in emitted_messages(job.job, entry)
        ]
        # One text, and the position with the last: a stream breaks off before a row or after it.
        own = event_text(entry.event, encode(document), position=sealed)
        self.text = b"".join([*emitted, own])


def document_after(entry: LogEntry, job: JobSnapshot, now: datetime) -> StatusDocument:
    """Where the job stood after this row of its log; it may have moved on since."""
    if job.version == entry.version:
        return status_document(job, now)
    run: CurrentRun | None = None
    last: LogEntry | None = entry
    if entry.status is JobStatus.RUNNING:
        since = entry.started_at or entry.at
        run = CurrentRun(
            session="",
            started_at=since,
            lease_until=since,
            percent=entry.percent or 0.0,
            phase=entry.phase,
            cancel_requested=entry.event is Event.CANCEL_REQUESTED,
        )
    if entry.event in ON_REQUEST:
        # What the outcome before was is known as long as there is no newer one.
        is_older = job.last is not None and job.last.version < entry.version
        last = job.last if is_older else None
    then = msgspec.structs.replace(
        job,
        status=entry.status,
        version=entry.version,
        attempt=entry.attempt,
        run=run,
        last=last,
        run_at=_run_at(entry, job),
    )
    # The log does not say until when it was put off.
    return msgspec.structs.replace(status_document(then, now), scheduled_at=job.job.scheduled_at)


def _run_at(entry: LogEntry, job: JobSnapshot) -> datetime | None:
    if entry.event is Event.SUBMITTED:
        return job.job.scheduled_at
    return entry.at if entry.event in _BACK_AFTER_A_FAILURE else None


# -- how events are written, as WHATWG's server-sent events have it -------------------------------


def event_text(name: str, data: bytes, *, position: str | None) -> bytes:
    """An event; one without a sealed position leaves the client's Last-Event-ID as it is."""
    lines = b"\ndata: ".join(data.splitlines())
    head = b"" if position is None else b"id: %s\n" % position.encode("ascii")
    return b"%sevent: %s\ndata: %s\n\n" % (head, name.encode("ascii"), lines)


def emitted_messages(job: Job, entry: LogEntry) -> list[tuple[str, bytes]]:
    """The domain events that were emitted with a row of the log: their types and their data."""
    events = [one for one in emitted_with(0, job, entry) if not one.emitted.is_audit]
    return [(event.type, encode(event.data())) for event in events]


def position_text(position: str) -> bytes:
    """Move the client's Last-Event-ID without an event."""
    return b"id: %s\n\n" % position.encode("ascii")


def ping_text(position: str) -> bytes:
    """A comment that keeps the connection, with the position reached.

    Also where that is the one before: else it would show that others did something meanwhile.
    """
    return _PING + position_text(position)


# -- what waits -----------------------------------------------------------------------------------


class End(Enum):
    """Why a stream goes on no longer."""

    DONE = auto()
    """All that it is about was sent."""
    TOO_SLOW = auto()
    STOPPING = auto()
    REFUSED = auto()
    """Its client may not follow it any more."""
    OLD = auto()
    CLIENT_GONE = auto()


class Subscription:
    """Filled by the feed and the watch, emptied by its stream."""

    def __init__(
        self, event_filter: EventFilter, *, most_bytes: int, ends_with: UUID | None = None
    ) -> None:
        """`ends_with` is the job whose end is the end of the stream."""
        self.filter = event_filter
        self.ends_with = ends_with
        self.end: End | None = None
        self._most_bytes = most_bytes
        self._bytes = 0
        self._events: deque[StreamedEvent] = deque()
        self._standing: dict[UUID, JobSnapshot] = {}
        self._tags: dict[UUID, str] = {}
        self._some = asyncio.Event()

    # -- filling ----------------------------------------------------------------------------------

    def offer(self, event: StreamedEvent) -> None:
        """Let an event wait; one too many ends the stream after those that wait already."""
        if self.end is not None or not self.filter.admits(event.job):
            return
        if self._events and self._bytes + len(event.text) > self._most_bytes:
            self.finish(End.TOO_SLOW)
            return
        self._bytes += len(event.text)
        self._events.append(event)
        self._some.set()

    def show(self, job: JobSnapshot, tag: str) -> None:
        """Let a job's state wait, if it is another than before; of several only the last."""
        job_id = job.job.job_id
        if self.end is None and self._tags.get(job_id) != tag and self.filter.admits(job.job):
            self._tags[job_id] = tag
            self._standing[job_id] = job
            self._some.set()

    def show_again(self, job_id: UUID) -> None:
        """Its state could not be sent yet."""
        self._tags.pop(job_id, None)

    def lose(self, job_id: UUID) -> None:
        """A job that is named is not there."""
        if job_id == self.ends_with:
            self.finish(End.DONE)

    def finish(self, end: End) -> None:
        """End the stream when what waits has been sent."""
        self.end = self.end or end
        self._some.set()

    def drop(self, end: End) -> None:
        """End the stream at once."""
        self._events.clear()
        self._standing.clear()
        self.finish(end)

    # -- emptying ---------------------------------------------------------------------------------

    async def wait(self, seconds: float) -> None:
        """Wait until there is something to send or the stream has ended, but not for ever."""
        if self.end is None and not self.has_some:
            self._some.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._some.wait()

    def take(self) -> list[StreamedEvent]:
        taken, self._bytes = list(self._events), 0
        self._events.clear()
        return taken

    def take_standing(self) -> list[JobSnapshot]:
        taken = list(self._standing.values())
        self._standing.clear()
        return taken

    @property
    def has_some(self) -> bool:
        """Whether there is anything to be taken."""
        return bool(self._events or self._standing)

    @property
    def is_empty(self) -> bool:
        return not self._events

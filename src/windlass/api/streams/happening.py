"""A happening: one event of one job, written once for all streams that it goes to."""

from datetime import datetime

import msgspec

from windlass.api.answer import encode
from windlass.api.documents import StatusDocument
from windlass.api.streams.wire import event_text
from windlass.api.views import status_document
from windlass.contract.snapshot import CurrentRun, JobSnapshot, LogEntry, LoggedEvent
from windlass.contract.status import Event

_BACK_AFTER_A_FAILURE = (Event.RETRIED, Event.CRASHED)


class Happening:
    """An event with the job's status document as it stood right after it."""

    __slots__ = ("ends", "job", "number", "tag", "text", "version")

    def __init__(self, event: LoggedEvent, job: JobSnapshot, now: datetime) -> None:
        entry, document = event.entry, document_after(event.entry, job, now)
        self.number = event.sequence
        self.job = job.job
        self.version = entry.version
        self.ends = entry.status.is_terminal
        self.tag = f"{entry.job_id}-{entry.version}-{document.state}"
        """As `entity_tag` makes it of the job at that time."""
        self.text = event_text(entry.event, encode(document), number=self.number)


def is_of(event: LoggedEvent, job: JobSnapshot) -> bool:
    """Whether a job is the one that an event is of: an id may have changed hands since."""
    return (
        job.job.tenant_id == event.tenant_id
        and job.job.job_type == event.job_type
        and job.version >= event.entry.version
    )


def document_after(entry: LogEntry, job: JobSnapshot, now: datetime) -> StatusDocument:
    """Where the job stood after this row of its log; it may have moved on since."""
    if job.version == entry.version:
        return status_document(job, now)
    run = None
    if entry.event is Event.CANCEL_REQUESTED:
        since = entry.started_at or entry.at
        run = CurrentRun(session="", started_at=since, lease_until=since, cancel_requested=True)
    then = msgspec.structs.replace(
        job,
        status=entry.status,
        version=entry.version,
        attempt=entry.attempt,
        run=run,
        last=entry,
        run_at=entry.at if entry.event in _BACK_AFTER_A_FAILURE else None,
    )
    # The log does not say until when it was put off.
    return msgspec.structs.replace(status_document(then, now), scheduled_at=job.job.scheduled_at)

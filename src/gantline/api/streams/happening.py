"""A happening: one event of one job, written once for all streams that it goes to."""

from datetime import datetime

import msgspec

from gantline.api.answer import encode
from gantline.api.documents import StatusDocument
from gantline.api.streams.wire import event_text
from gantline.api.views import status_document
from gantline.contract.snapshot import CurrentRun, JobSnapshot, LogEntry, LoggedEvent
from gantline.contract.status import ON_REQUEST, Event, JobStatus

_BACK_AFTER_A_FAILURE = (Event.RETRIED, Event.CRASHED)


class Happening:
    """An event with the job's status document as it stood right after it."""

    __slots__ = ("ends", "fence", "is_on_request", "job", "number", "tag", "text", "version")

    def __init__(self, event: LoggedEvent, job: JobSnapshot, now: datetime) -> None:
        entry, document = event.entry, document_after(event.entry, job, now)
        self.number = event.sequence
        self.job = job.job
        self.version = entry.version
        self.ends = entry.status.is_terminal
        self.is_on_request = entry.event in ON_REQUEST
        goes_on = self.is_on_request and entry.status is JobStatus.RUNNING
        self.fence = entry.fence if goes_on else None
        """Of the run that it tells of, and that goes on."""
        self.tag = f'"{entry.job_id}-{entry.version}-{document.state}"'
        """As `entity_tag` makes it of the job at that time."""
        self.text = event_text(entry.event, encode(document), number=self.number)


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

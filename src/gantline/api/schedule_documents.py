"""The documents of schedules: what clients send, and what they get."""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gantline.api.documents import Document, Instant
from gantline.api.envelopes import Attempts, Group, Name, Subject
from gantline.api.requests import CursorText, Limit, Sent
from gantline.contract.bounds import Priority
from gantline.contract.clock import EPOCH
from gantline.contract.errors import InvalidEnvelope, Problem
from gantline.contract.job import Job
from gantline.schedules.recurrence import (
    EXPRESSION_LIMIT,
    LONGEST_INTERVAL,
    SHORTEST_INTERVAL,
    ZONE_LIMIT,
    Cron,
    Every,
    Recurrence,
)
from gantline.schedules.schedule import (
    DEFAULT_CATCH_UP,
    DEFAULT_GRACE,
    EXPIRY_BOUNDS,
    LONGEST_JITTER,
    MOST_CATCH_UP,
    NAME_PATTERN,
    SHOWN_RUNS,
    Misfire,
    Origin,
    Overlap,
    Schedule,
    ScheduleRecord,
)

ScheduleName = Annotated[str, Meta(pattern=NAME_PATTERN)]
Seconds = Annotated[
    float, Meta(ge=SHORTEST_INTERVAL.total_seconds(), le=LONGEST_INTERVAL.total_seconds())
]
Expiry = Annotated[float, Meta(ge=EXPIRY_BOUNDS[0], le=EXPIRY_BOUNDS[1])]
Jitter = Annotated[float, Meta(ge=0, le=LONGEST_JITTER.total_seconds())]


class ScheduleSent(Sent, frozen=True, kw_only=True):
    """A schedule as a client has it: `cron` or `everySeconds`, and what job to submit."""

    job_type: Name
    cron: Annotated[str, Meta(max_length=EXPRESSION_LIMIT)] | None = None
    timezone: Annotated[str, Meta(max_length=ZONE_LIMIT)] = "UTC"
    every_seconds: Seconds | None = None
    anchor: Instant | None = None
    payload: msgspec.Raw | UnsetType = UNSET
    subject_id: Subject | None = None
    group: Group | None = None
    queue: Name | None = None
    priority: Priority | None = None
    max_attempts: Attempts | None = None
    expires_in_seconds: Expiry | None = None
    start: Instant | None = None
    end: Instant | None = None
    jitter_seconds: Jitter = 0.0
    misfire: Misfire = "coalesce"
    catch_up_limit: Annotated[int, Meta(ge=1, le=MOST_CATCH_UP)] = DEFAULT_CATCH_UP
    grace_seconds: Annotated[float, Meta(ge=0, le=31_622_400)] = DEFAULT_GRACE.total_seconds()
    overlap: Overlap = "allow"


class NewSchedule(ScheduleSent, frozen=True, kw_only=True):
    """A schedule to be made."""

    name: ScheduleName
    tenant_id: Name | None = None


class SchedulesQuery(Sent, frozen=True, kw_only=True):
    """Which schedules to list."""

    tenant_id: Name | None = None
    limit: Limit = 50
    cursor: CursorText | None = None


class NextQuery(Sent, frozen=True, kw_only=True):
    """How many of the next runs to list."""

    tenant_id: Name | None = None
    count: Annotated[int, Meta(ge=1, le=100)] = SHOWN_RUNS


class FireDocument(Document, frozen=True, kw_only=True):
    """A run that was due, and whether a job was submitted."""

    at: Instant
    """The instant that it was for."""
    job_id: UUID | None
    """Null where no job was submitted; `reason` says why."""
    reason: str
    lateness_seconds: float
    since: Instant | None
    """The first of the missed instants that it stands for, if it does."""
    by: str
    """Who asked for it, of a run by hand."""


class ScheduleDocument(Document, frozen=True, kw_only=True):
    """A schedule, and where it stands."""

    name: str
    tenant_id: str
    job_type: str
    cron: str | None
    timezone: str | None
    every_seconds: float | None
    anchor: Instant | None
    explanation: str
    """Its times in plain words."""
    payload: Any
    """Null to those who may not read it, and in lists."""
    payload_version: int
    subject_id: str
    queue: str
    priority: int
    max_attempts: int
    expires_in_seconds: float | None
    """A job that has not started so long after its submit is Cancelled."""
    owner: str
    start: Instant | None
    end: Instant | None
    jitter_seconds: float
    misfire: Misfire
    catch_up_limit: int
    grace_seconds: float
    overlap: Overlap
    group: str = ""
    origin: Origin
    """Where it was made; what code declares can be paused and run, and changed only there."""
    paused: bool
    created_at: Instant
    changed_at: Instant
    next_run: Instant | None
    next_runs: list[Instant]
    """The next five, without jitter."""
    fires: list[FireDocument]
    """The last runs, newest first."""


class SchedulesPage(Document, frozen=True, kw_only=True):
    """A page of schedules, by name."""

    items: list[ScheduleDocument]
    next_cursor: str | None


class RunToCome(Document, frozen=True, kw_only=True):
    """A run to come."""

    at: Instant
    local: str
    """The same as clocks in the schedule's zone show it."""
    due_at: Instant
    """When it is made: with jitter, a little later."""


class RunsToCome(Document, frozen=True, kw_only=True):
    """The next runs of a schedule."""

    name: str
    explanation: str
    timezone: str
    items: list[RunToCome]


def recurrence_of(sent: ScheduleSent) -> Recurrence:
    """What was sent: one of the two; raise InvalidEnvelope."""
    if (sent.cron is None) == (sent.every_seconds is None):
        detail = "is there beside cron" if sent.cron is not None else "and cron are both missing"
        raise InvalidEnvelope([Problem("#/everySeconds", f"{detail}; send one of them")])
    if sent.cron is not None:
        if sent.anchor is not None:
            raise InvalidEnvelope([Problem("#/anchor", "belongs to everySeconds, not to cron")])
        return Cron(sent.cron, sent.timezone)
    if sent.timezone != "UTC":
        raise InvalidEnvelope([Problem("#/timezone", "belongs to cron; an interval knows no zone")])
    return Every(sent.every_seconds or 0.0, sent.anchor or EPOCH)


def schedule_of(sent: ScheduleSent, name: str, recurrence: Recurrence, job: Job) -> Schedule:
    """What was sent as a schedule; `job` is what it submits, as its type has completed it."""
    return Schedule(
        name=name,
        tenant_id=job.tenant_id,
        recurrence=recurrence,
        job_type=job.job_type,
        payload=job.payload,
        payload_version=job.payload_version,
        subject_id=job.subject_id,
        group=job.group,
        queue=job.queue,
        priority=job.priority,
        max_attempts=job.max_attempts,
        expires_in_seconds=(
            (job.expires_at - job.created_at).total_seconds()
            if sent.expires_in_seconds is None and job.expires_at is not None
            else sent.expires_in_seconds
        ),
        owner=job.created_by,
        start=sent.start,
        end=sent.end,
        jitter_seconds=sent.jitter_seconds,
        misfire=sent.misfire,
        catch_up_limit=sent.catch_up_limit,
        grace_seconds=sent.grace_seconds,
        overlap=sent.overlap,
    )


def schedule_document(record: ScheduleRecord, *, with_payload: bool) -> ScheduleDocument:
    fields = msgspec.structs.asdict(record.schedule)
    recurrence, payload = fields.pop("recurrence"), fields.pop("payload")
    cron = recurrence if isinstance(recurrence, Cron) else None
    every = recurrence if isinstance(recurrence, Every) else None
    return ScheduleDocument(
        **fields,
        cron=None if cron is None else cron.expression,
        timezone=None if cron is None else cron.timezone,
        every_seconds=None if every is None else every.seconds,
        anchor=None if every is None else every.anchor,
        explanation=recurrence.explain(),
        payload=msgspec.json.decode(payload) if with_payload else None,
        origin=record.origin,
        paused=record.paused,
        created_at=record.created_at,
        changed_at=record.changed_at,
        next_run=record.next_run,
        next_runs=list(record.upcoming(SHOWN_RUNS)),
        fires=[FireDocument(**msgspec.structs.asdict(fire)) for fire in record.fires],
    )


def runs_to_come(record: ScheduleRecord, runs: Iterable[datetime]) -> RunsToCome:
    recurrence = record.schedule.recurrence
    zone = recurrence.zone
    return RunsToCome(
        name=record.schedule.name,
        explanation=recurrence.explain(),
        timezone=zone.key,
        items=[
            RunToCome(
                at=at,
                local=at.astimezone(zone).isoformat(timespec="seconds"),
                due_at=record.when_due(at),
            )
            for at in runs
        ],
    )

"""Firing: which instants of a schedule are run now, which are not, and what comes next. Pure."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from gantline.contract.clock import to_micros
from gantline.contract.job import Job
from gantline.contract.status import JobStatus
from gantline.contract.submission import DedupeKey, KeyKind
from gantline.manager.submitter import Submission
from gantline.schedules.schedule import KEPT_FIRES, Fire, ScheduleRecord, correlation_of

MISSED: Final = "missed"
STILL_RUNNING: Final = "the last run has not ended"
STILL_WAITING: Final = "the last run has not begun"

# Twice as long as completed jobs are kept by default: until then not even a leader that stood still
# since before the job was pruned can submit it again.
_HOLD: Final = timedelta(days=14)


class Due(NamedTuple):
    """One instant to be run; `since` is the first of those that it stands for, if it does."""

    at: datetime
    since: datetime | None = None


class Plan(NamedTuple):
    """What is to be done about a schedule that is due."""

    runs: Sequence[Due]
    """In their order."""
    skipped: Sequence[Fire]
    next_run: datetime | None


def plan(record: ScheduleRecord, now: datetime, last_status: JobStatus | None) -> Plan:
    """Decide about all instants that are due; `last_status` is that of the job fired last."""
    first = record.next_run
    if first is None or record.when_due(first) > now:
        return Plan((), (), first)
    latest = _latest_due(record, first, now)
    due, missed = _by_misfire(record, first, latest, now)
    runs, overlapping = _by_overlap(record, due, last_status)
    return Plan(runs, (*missed, *overlapping), record.schedule.first_after(latest))


def _latest_due(record: ScheduleRecord, first: datetime, now: datetime) -> datetime:
    following = record.schedule.first_after(first)
    if following is None or record.when_due(following) > now:
        return first  # as it nearly always is
    recurrence, end = record.schedule.recurrence, record.schedule.end
    latest = recurrence.latest_until(now if end is None else min(now, end), floor=first)
    while latest > first and record.when_due(latest) > now:
        latest = _before(record, latest, first)
    return latest


def _before(record: ScheduleRecord, instant: datetime, floor: datetime) -> datetime:
    until = instant - timedelta(microseconds=1)
    return record.schedule.recurrence.latest_until(until, floor=floor)


def _by_misfire(
    record: ScheduleRecord, first: datetime, latest: datetime, now: datetime
) -> tuple[Sequence[Due], Sequence[Fire]]:
    schedule = record.schedule
    since = first if first < latest else None
    match schedule.misfire:
        case "coalesce":
            return [Due(latest, since)], ()
        case "skip":
            lateness = (now - record.when_due(latest)).total_seconds()
            if lateness <= schedule.grace_seconds:
                return [Due(latest, since)], ()
            return (), [Fire(at=latest, reason=MISSED, lateness_seconds=lateness, since=since)]
        case "catch_up":
            due = [Due(at) for at in _latest_ones(record, first, latest)]
            oldest = due[0].at
            if oldest == first:
                return due, ()
            return due, [Fire(at=_before(record, oldest, first), reason=MISSED, since=first)]


def _latest_ones(record: ScheduleRecord, first: datetime, latest: datetime) -> list[datetime]:
    """The instants from the first to the latest; of too many the last, in their order.

    Walked forwards, which is quicker by far, from as far back as it takes.
    """
    limit = record.schedule.catch_up_limit
    span = latest - _before(record, latest, first) if latest > first else timedelta(0)
    span *= limit
    while True:
        start = max(first, latest - span)
        found = deque(_from(record, start, latest), maxlen=limit)
        if len(found) == limit or start == first:
            return list(found)
        span *= 2


def _from(record: ScheduleRecord, start: datetime, latest: datetime) -> Iterator[datetime]:
    at = record.schedule.recurrence.next_after(start - timedelta(microseconds=1))
    while at is not None and at <= latest:
        yield at
        at = record.schedule.recurrence.next_after(at)


def _by_overlap(
    record: ScheduleRecord, due: Sequence[Due], last_status: JobStatus | None
) -> tuple[Sequence[Due], Sequence[Fire]]:
    """As if they came one after the other: what the first submits may block the next."""
    overlap = record.schedule.overlap
    if overlap == "allow" or not due:
        return due, ()
    is_free = last_status is None or last_status.is_terminal
    if is_free or (overlap == "one_waiting" and last_status is JobStatus.RUNNING):
        return due[:1], [_skipped(one, STILL_WAITING) for one in due[1:]]
    reason = STILL_RUNNING if last_status is JobStatus.RUNNING else STILL_WAITING
    return (), [_skipped(one, reason) for one in due]


def _skipped(due: Due, reason: str) -> Fire:
    return Fire(at=due.at, reason=reason, since=due.since)


def submission_of(record: ScheduleRecord, at: datetime, now: datetime) -> Submission:
    """The job of an instant. Its id and its key are the instant's, so there can be only one."""
    key = DedupeKey(
        KeyKind.REQUEST,
        record.schedule.tenant_id,
        "schedule",
        f"{record.id}/{to_micros(at)}",
        hold=_HOLD,
    )
    job = msgspec.structs.replace(job_of(record, now), job_id=record.job_id_of(at), scheduled_at=at)
    return Submission(job, request_key=key)


def job_of(record: ScheduleRecord, now: datetime) -> Job:
    """A job of a schedule, for no instant. It has no idempotency key: two runs are never one."""
    schedule = record.schedule
    return Job(
        job_type=schedule.job_type,
        subject_id=schedule.subject_id,
        group=schedule.group,
        correlation_id=correlation_of(schedule.name),
        max_attempts=schedule.max_attempts,
        payload=schedule.payload,
        created_at=now,
        expires_at=schedule.expires_at(now),
        tenant_id=schedule.tenant_id,
        queue=schedule.queue,
        priority=schedule.priority,
        payload_version=schedule.payload_version,
        created_by=schedule.owner,
    )


def with_fires(record: ScheduleRecord, fires: Iterable[Fire]) -> ScheduleRecord:
    """The record with what was done for instants; old ones are dropped."""
    new = sorted(fires, key=lambda fire: fire.at, reverse=True)
    submitted = [fire.job_id for fire in new if fire.job_id is not None]
    return msgspec.structs.replace(
        record,
        last_job_id=submitted[0] if submitted else record.last_job_id,
        fires=(*new, *record.fires)[:KEPT_FIRES],
    )

"""Schedules: what is run again and again, when, and what happens to missed runs."""

import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal
from uuid import UUID

import msgspec

from gantline.contract.bounds import SHORTEST
from gantline.contract.clock import is_within_time, later, to_micros
from gantline.contract.errors import InvalidEnvelope, InvalidInput, Problem
from gantline.contract.job import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_PRIORITY,
    DEFAULT_QUEUE,
    DEFAULT_TENANT,
    MAX_DELAY,
    Job,
    check_job,
)
from gantline.contract.job_id import uuid_from_bytes
from gantline.schedules.recurrence import Recurrence

Misfire = Literal["coalesce", "catch_up", "skip"]
"""What happens to missed runs: one for all, each of them, or none."""
Overlap = Literal["allow", "skip", "one_waiting"]
"""Whether a run is made while the job of the one before has not ended, or has not begun."""
Origin = Literal["code", "api", "cli"]
"""Where a schedule was made; only code changes and removes what code has declared."""

DEFAULT_CATCH_UP: Final = 100
MOST_CATCH_UP: Final = 1000
DEFAULT_GRACE: Final = timedelta(seconds=60)
LONGEST_JITTER: Final = timedelta(days=1)
EXPIRY_BOUNDS: Final = (SHORTEST.total_seconds(), MAX_DELAY.total_seconds())
KEPT_FIRES: Final = 10
NAME_LIMIT: Final = 128
SHOWN_RUNS: Final = 5

# Not . and .., which no URL can hold.
NAME_PATTERN: Final = r"^(?!\.{1,2}$)[A-Za-z0-9._:-]{1,128}$"

_NAME: Final = re.compile(NAME_PATTERN.strip("^$"))
_VERSION_8: Final = 0x8 << 76
_VARIANT: Final = 0b10 << 62
_HASHED_BITS: Final = (0xFFF << 64) | ((1 << 62) - 1)


class _Stored(
    msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """What is read as a whole or not at all.

    Code that does not know a field, an older leader for example, would write the rest without it.
    """


class Schedule(_Stored, frozen=True, kw_only=True):
    """What is to be run, and when; as it was declared."""

    name: str
    tenant_id: str = DEFAULT_TENANT
    recurrence: Recurrence
    job_type: str
    payload: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"null"))
    payload_version: int = 1
    subject_id: str = ""
    group: str = ""
    queue: str = DEFAULT_QUEUE
    priority: int = DEFAULT_PRIORITY
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    expires_in_seconds: float | None = None
    """A job that has not started so long after its submit is Cancelled."""
    owner: str = ""
    """In whose name the jobs are submitted."""
    start: datetime | None = None
    """No run before it."""
    end: datetime | None = None
    """No run after it."""
    jitter_seconds: float = 0.0
    """By how much a run may be put off, so that not all begin at once; the same for one instant."""
    misfire: Misfire = "coalesce"
    catch_up_limit: int = DEFAULT_CATCH_UP
    """How many missed runs `catch_up` makes, the latest ones."""
    grace_seconds: float = DEFAULT_GRACE.total_seconds()
    """How late a run may be for `skip` to make it still."""
    overlap: Overlap = "allow"

    def expires_at(self, submitted_at: datetime) -> datetime | None:
        """When a job of it expires that is submitted then; None: never."""
        seconds = self.expires_in_seconds
        return None if seconds is None else submitted_at + timedelta(seconds=seconds)

    def first_after(self, instant: datetime) -> datetime | None:
        """The first instant after this one that is neither before its start nor after its end."""
        if self.start is not None and instant < self.start:
            instant = self.start - timedelta(microseconds=1)
        at = self.recurrence.next_after(instant)
        return None if at is None or (self.end is not None and at > self.end) else at

    def is_same_time(self, other: "Schedule") -> bool:
        """Whether both have the same instants."""
        mine, theirs = ((one.recurrence, one.start, one.end) for one in (self, other))
        return mine == theirs


class Fire(_Stored, frozen=True, kw_only=True):
    """What was done for an instant."""

    at: datetime
    """The instant that was due, without jitter; of a run by hand when it was asked for."""
    job_id: UUID | None = None
    """None where no job was submitted; then there is a reason."""
    reason: str = ""
    lateness_seconds: float = 0.0
    since: datetime | None = None
    """The first of the missed instants, where this stands for several."""
    by: str = ""
    """Who asked for it, of a run by hand."""


class ScheduleRecord(_Stored, frozen=True, kw_only=True):
    """A schedule as it is stored, and where it stands."""

    id: UUID
    """New for every creation: one that is made again is not mistaken for the one before."""
    schedule: Schedule
    origin: Origin
    created_at: datetime
    changed_at: datetime
    paused: bool = False
    next_run: datetime | None = None
    """The instant that is due next; None when there is none, or it is paused."""
    last_job_id: UUID | None = None
    fires: tuple[Fire, ...] = ()
    """What was done for the last instants, newest first."""

    @property
    def due_at(self) -> datetime | None:
        """When the next run is made: its instant, and what jitter adds."""
        return None if self.next_run is None else self.when_due(self.next_run)

    def when_due(self, instant: datetime) -> datetime:
        return later(instant, self._jitter(instant))

    def upcoming(self, count: int) -> Sequence[datetime]:
        """The next instants, as far as there are any."""
        return list(self.each_upcoming(count))

    def each_upcoming(self, count: int) -> Iterator[datetime]:
        """The same, one after the other: rare ones take a millisecond each to be found."""
        at = self.next_run
        while at is not None and count > 0:
            yield at
            count -= 1
            at = self.schedule.first_after(at) if count else None

    def _jitter(self, instant: datetime) -> timedelta:
        """The same for every leader, however often it is asked for."""
        if not self.schedule.jitter_seconds:
            return timedelta(0)
        share = int.from_bytes(_digest(self.id, instant, b"jitter")[:8], "big") / 2**64
        return timedelta(seconds=share * self.schedule.jitter_seconds)

    def job_id_of(self, instant: datetime) -> UUID:
        """The id of the job of an instant: there is one, however often it is submitted.

        A UUIDv8 that begins like a v7, with the milliseconds, so that ids sort by their time.
        """
        digest = int.from_bytes(_digest(self.id, instant, b"job")[:16], "big")
        millis = to_micros(instant) // 1000
        number = (millis << 80) | (digest & _HASHED_BITS) | _VERSION_8 | _VARIANT
        return uuid_from_bytes(number.to_bytes(16, "big"))


def _digest(schedule_id: UUID, instant: datetime, what: bytes) -> bytes:
    return hashlib.sha256(b"%b %b %d" % (what, schedule_id.bytes, to_micros(instant))).digest()


def correlation_of(name: str) -> str:
    """What all jobs of a schedule have in common, and can be listed by."""
    return f"schedule:{name}"


def check_schedule(schedule: Schedule, now: datetime) -> None:
    """Hold a schedule to the contract; raise InvalidInput. Of its job, what every job must be."""
    check_name(schedule.name)
    schedule.recurrence.checked(now)
    problems = [*_number_problems(schedule), *_time_problems(schedule)]
    if problems:
        raise InvalidEnvelope(problems)
    check_job(
        Job(
            job_type=schedule.job_type,
            payload=schedule.payload,
            tenant_id=schedule.tenant_id,
            queue=schedule.queue,
            priority=schedule.priority,
            max_attempts=schedule.max_attempts,
            payload_version=schedule.payload_version,
            subject_id=schedule.subject_id,
            group=schedule.group,
            created_by=schedule.owner,
            created_at=now,
        )
    )


def is_name(text: str) -> bool:
    """Whether a schedule can have this name."""
    return _NAME.fullmatch(text) is not None


def check_name(name: str) -> None:
    if not is_name(name):
        raise InvalidInput(
            f"{name[:NAME_LIMIT]!r} cannot be the name of a schedule.",
            next_step=f"Use 1 to {NAME_LIMIT} letters, digits or . _ : - (not . or .. alone).",
        )


def _number_problems(schedule: Schedule) -> list[Problem]:
    bounds = (
        ("jitterSeconds", schedule.jitter_seconds, 0, LONGEST_JITTER.total_seconds()),
        ("catchUpLimit", schedule.catch_up_limit, 1, MOST_CATCH_UP),
        ("graceSeconds", schedule.grace_seconds, 0, timedelta(days=366).total_seconds()),
        ("expiresInSeconds", schedule.expires_in_seconds, *EXPIRY_BOUNDS),
    )
    return [
        Problem(f"#/{field}", f"is {value:g}; it must be from {low:g} to {high:g}")
        for field, value, low, high in bounds
        if value is not None and not (math.isfinite(value) and low <= value <= high)
    ]


def _time_problems(schedule: Schedule) -> list[Problem]:
    given = {"start": schedule.start, "end": schedule.end}
    problems = [
        Problem(f"#/{field}", "has no time zone")
        for field, instant in given.items()
        if instant is not None and instant.tzinfo is None
    ] + [
        Problem(f"#/{field}", "is an instant that UTC cannot hold")
        for field, instant in given.items()
        if instant is not None and not is_within_time(instant)
    ]
    if problems or schedule.end is None:
        return problems
    if schedule.start is not None and schedule.end <= schedule.start:
        return [Problem("#/end", "is not after the start")]
    return []

"""Schedules that code declares: options of `cron` and `every`, made into schedules and checked."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import msgspec

from gantline.contract.bounds import held_as
from gantline.contract.errors import InvalidInput
from gantline.contract.job import DEFAULT_TENANT
from gantline.contract.payload import DEFAULT_PAYLOAD_LIMIT
from gantline.runtime import now
from gantline.schedules.recurrence import Recurrence
from gantline.schedules.schedule import (
    DEFAULT_CATCH_UP,
    DEFAULT_GRACE,
    Misfire,
    Overlap,
    Schedule,
    check_schedule,
)

if TYPE_CHECKING:
    from gantline.app.job_type import JobType


class ScheduleOptions(TypedDict, total=False):
    """How a schedule differs from what its job's declaration and the defaults say."""

    name: str
    """Unique in its tenant; the job type's name where none is given."""
    tenant: str
    owner: str
    subject: str
    group: str
    queue: str
    priority: int
    max_attempts: int
    expires_in: timedelta | float
    start: datetime
    end: datetime
    jitter: timedelta | float
    misfire: Misfire
    catch_up_limit: int
    grace: timedelta | float
    overlap: Overlap


class CronOptions(ScheduleOptions, total=False):
    """Those of `@jobs.cron`."""

    timezone: str
    payload: Any


class EveryOptions(ScheduleOptions, total=False):
    """Those of `@jobs.every`."""

    anchor: datetime
    payload: Any


class DeclaredSchedule(NamedTuple):
    """A schedule on a job type; its tenant may be the application's, which is not known yet."""

    schedule: Schedule
    has_tenant: bool

    def of_tenant(self, default: str) -> Schedule:
        if self.has_tenant:
            return self.schedule
        return msgspec.structs.replace(self.schedule, tenant_id=default)


def declare_schedule(
    job_type: "JobType[..., Any]", recurrence: Recurrence, payload: Any, options: ScheduleOptions
) -> DeclaredSchedule:
    """Make a schedule of a job; raise InvalidInput for whatever is wrong with it."""
    handler = job_type.handler
    payload = handler.signature.completed(payload)
    body = handler.codec.encode(payload, limit=DEFAULT_PAYLOAD_LIMIT).body
    grace = held_as("grace", options.get("grace", DEFAULT_GRACE), timedelta)
    expires_in = held_as(
        "expires_in", options.get("expires_in", job_type.expires_in), timedelta | None
    )
    schedule = Schedule(
        name=options.get("name", job_type.name),
        tenant_id=options.get("tenant", DEFAULT_TENANT),
        recurrence=recurrence,
        job_type=job_type.name,
        payload=msgspec.Raw(body),
        payload_version=handler.version,
        subject_id=options.get("subject") or job_type.subject_of(payload),
        group=options["group"] if "group" in options else job_type.group_of(payload),
        queue=options.get("queue", handler.queue),
        priority=options.get("priority", job_type.priority),
        max_attempts=options.get("max_attempts", handler.policy.retry.attempts),
        expires_in_seconds=None if expires_in is None else expires_in.total_seconds(),
        owner=options.get("owner", ""),
        start=options.get("start"),
        end=options.get("end"),
        jitter_seconds=held_as("jitter", options.get("jitter", 0), timedelta).total_seconds(),
        misfire=options.get("misfire", "coalesce"),
        catch_up_limit=options.get("catch_up_limit", DEFAULT_CATCH_UP),
        grace_seconds=grace.total_seconds(),
        overlap=options.get("overlap", "allow"),
    )
    check_schedule(schedule, now())
    return DeclaredSchedule(schedule, "tenant" in options)


def gathered(
    job_types: "Iterable[JobType[..., Any]]", *, default_tenant: str
) -> tuple[Schedule, ...]:
    """The schedules of all these jobs; raise InvalidInput where two have one name."""
    found: dict[tuple[str, str], Schedule] = {}
    for job_type in job_types:
        for declared in job_type.schedules:
            schedule = declared.of_tenant(default_tenant)
            key = (schedule.tenant_id, schedule.name)
            if key in found:
                raise InvalidInput(
                    f"Two schedules are named {schedule.name!r}.",
                    next_step="Give one of them another name: name=….",
                )
            found[key] = schedule
    return tuple(found.values())

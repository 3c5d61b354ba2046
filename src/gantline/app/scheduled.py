"""Schedules that code declares: options of `cron` and `every`, made into schedules and checked."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, TypeVar

import msgspec

from gantline.contract.errors import InvalidInput
from gantline.contract.job import DEFAULT_TENANT
from gantline.contract.payload import DEFAULT_PAYLOAD_LIMIT
from gantline.contract.recurrence import Recurrence
from gantline.contract.schedule import (
    DEFAULT_CATCH_UP,
    DEFAULT_GRACE,
    Misfire,
    Overlap,
    Schedule,
    check_schedule,
)
from gantline.runtime import now

if TYPE_CHECKING:
    from gantline.app.job_type import JobType

V = TypeVar("V")


class ScheduleOptions(TypedDict, total=False):
    """How a schedule differs from what its job's declaration and the defaults say."""

    name: str
    """Unique in its tenant; the job type's name where none is given."""
    tenant: str
    owner: str
    subject: str
    queue: str
    priority: int
    max_attempts: int
    start: datetime
    end: datetime
    jitter: timedelta
    misfire: Misfire
    catch_up_limit: int
    grace: timedelta
    overlap: Overlap


class DeclaredSchedule(NamedTuple):
    """A schedule on a job type; its tenant may be the application's, which is not known yet."""

    schedule: Schedule
    has_tenant: bool

    def of_tenant(self, default: str) -> Schedule:
        if self.has_tenant:
            return self.schedule
        return msgspec.structs.replace(self.schedule, tenant_id=default)


def typed(value: Any, kind: type[V], name: str) -> V:
    """Hold what code gives to its type; raise InvalidInput."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        said, _, path = str(error).partition(" - at `$.")
        raise InvalidInput(f"{path.rstrip('`') or name}: {said}.") from None


def declare_schedule(
    job_type: "JobType[Any, Any]", recurrence: Recurrence, payload: Any, options: ScheduleOptions
) -> DeclaredSchedule:
    """Make a schedule of a job; raise InvalidInput for whatever is wrong with it."""
    for name in options.keys() - ScheduleOptions.__annotations__.keys():
        alike = get_close_matches(name, ScheduleOptions.__annotations__, n=1)
        raise InvalidInput(
            f"A schedule has no option {name!r}.",
            next_step=f"Is {alike[0]!r} meant?" if alike else "",
        )
    options = typed(options, ScheduleOptions, "options")
    handler = job_type.handler
    body = handler.codec.encode(payload, limit=DEFAULT_PAYLOAD_LIMIT).body
    schedule = Schedule(
        name=options.get("name", job_type.name),
        tenant_id=options.get("tenant", DEFAULT_TENANT),
        recurrence=recurrence,
        job_type=job_type.name,
        payload=msgspec.Raw(body),
        payload_version=handler.version,
        subject_id=options.get("subject") or job_type.subject_of(payload),
        queue=options.get("queue", handler.queue),
        priority=options.get("priority", job_type.priority),
        max_attempts=options.get("max_attempts", handler.policy.retry.attempts),
        owner=options.get("owner", ""),
        start=options.get("start"),
        end=options.get("end"),
        jitter_seconds=options.get("jitter", timedelta(0)).total_seconds(),
        misfire=options.get("misfire", "coalesce"),
        catch_up_limit=options.get("catch_up_limit", DEFAULT_CATCH_UP),
        grace_seconds=options.get("grace", DEFAULT_GRACE).total_seconds(),
        overlap=options.get("overlap", "allow"),
    )
    check_schedule(schedule, now())
    return DeclaredSchedule(schedule, "tenant" in options)


def gathered(
    job_types: "Iterable[JobType[Any, Any]]", *, default_tenant: str
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

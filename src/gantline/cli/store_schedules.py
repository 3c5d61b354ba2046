"""The store as the keeper of the schedules, for who can reach it."""

from functools import cached_property
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from gantline.api.schedule_documents import (
    NewSchedule,
    RunsToCome,
    ScheduleDocument,
    recurrence_of,
    runs_to_come,
    schedule_document,
)
from gantline.app.settings import most_schedules
from gantline.auth.action import Action
from gantline.cli.audited import CliAudit
from gantline.cli.output import say
from gantline.contract.errors import InvalidInput
from gantline.contract.job import DEFAULT_MAX_ATTEMPTS, DEFAULT_PRIORITY, DEFAULT_QUEUE, Job
from gantline.contract.schedule import NAME_LIMIT, Schedule
from gantline.contract.store import JobStore
from gantline.contract.wakeup import Hint
from gantline.manager.manager import JobManager
from gantline.manager.schedules import Schedules, all_schedules, tenant_prefix

if TYPE_CHECKING:
    from gantline.cli.session import Cli

_NULL = msgspec.Raw(b"null")


class StoreSchedules:
    """Reads and decides here; acts as the user of this host."""

    def __init__(self, cli: "Cli", store: JobStore, manager: JobManager, audit: CliAudit) -> None:
        self._cli = cli
        self._audit = audit
        self._store = store
        self._manager = manager

    @cached_property
    def _schedules(self) -> Schedules:
        """Made when it is needed: a bad setting of schedules is no harm to other commands."""
        return Schedules(self._store, self._manager, most=most_schedules(self._cli.settings))

    async def all(self) -> list[ScheduleDocument]:
        prefix = tenant_prefix(self._cli.tenant)
        return [
            schedule_document(stored.record, with_payload=True)
            async for stored in all_schedules(self._store, prefix=prefix)
        ]

    async def get(self, name: str) -> ScheduleDocument:
        stored = await self._schedules.get(self._cli.tenant, name)
        return schedule_document(stored.record, with_payload=True)

    async def add(self, new: NewSchedule) -> ScheduleDocument:
        job = self._declared(new) if self._cli.settings["app"] else self._undeclared(new)
        schedule = Schedule(
            name=new.name,
            tenant_id=job.tenant_id,
            recurrence=recurrence_of(new),
            job_type=job.job_type,
            payload=job.payload,
            payload_version=job.payload_version,
            subject_id=job.subject_id,
            queue=job.queue,
            priority=job.priority,
            max_attempts=job.max_attempts,
            owner=job.created_by,
            start=new.start,
            end=new.end,
            jitter_seconds=new.jitter_seconds,
            misfire=new.misfire,
            catch_up_limit=new.catch_up_limit,
            grace_seconds=new.grace_seconds,
            overlap=new.overlap,
        )
        await self._audited("createSchedule", new.name)
        stored = await self._schedules.create(schedule, origin="cli")
        await self._hint()
        return schedule_document(stored.record, with_payload=True)

    def _declared(self, new: NewSchedule) -> Job:
        """A job as its declaration makes it: checked, with its subject and queue."""
        declared = self._cli.app().find_type(new.job_type)
        if declared is None:
            raise InvalidInput(f"The application declares no job {new.job_type!r}.")
        return declared.prepare(
            declared.handler.codec.decode(bytes(_payload(new))),
            tenant=self._cli.tenant,
            owner=self._cli.actor,
            subject=new.subject_id,
            queue=new.queue,
            priority=new.priority,
            max_attempts=new.max_attempts,
        ).job

    def _undeclared(self, new: NewSchedule) -> Job:
        say("No application is named (--app), so the payload is not checked.")
        return Job(
            job_type=new.job_type,
            payload=_payload(new),
            tenant_id=self._cli.tenant,
            created_by=self._cli.actor,
            subject_id=new.subject_id or "",
            queue=new.queue or DEFAULT_QUEUE,
            priority=DEFAULT_PRIORITY if new.priority is None else new.priority,
            max_attempts=new.max_attempts or DEFAULT_MAX_ATTEMPTS,
        )

    async def pause(self, name: str, *, paused: bool) -> ScheduleDocument:
        await self._audited("pauseSchedule" if paused else "resumeSchedule", name)
        stored = await self._schedules.pause(self._cli.tenant, name, paused=paused)
        await self._hint()
        return schedule_document(stored.record, with_payload=True)

    async def run(self, name: str) -> UUID:
        await self._audited("runSchedule", name)
        submitted = await self._schedules.run(self._cli.tenant, name, owner=self._cli.actor)
        await self._cli.hint(self._store)
        return submitted.job_id

    async def delete(self, name: str) -> None:
        await self._audited("deleteSchedule", name)
        await self._schedules.delete(self._cli.tenant, name, origin="cli")
        await self._hint()

    async def next_runs(self, name: str, count: int) -> RunsToCome:
        stored = await self._schedules.get(self._cli.tenant, name)
        return runs_to_come(stored.record, count)

    async def _audited(self, operation: str, name: str) -> None:
        await self._audit.done(operation, Action.MANAGE_SCHEDULES, f"schedule:{name[:NAME_LIMIT]}")

    async def _hint(self) -> None:
        await self._cli.hint(self._store, Hint.SCHEDULED)


def _payload(new: NewSchedule) -> msgspec.Raw:
    return new.payload if isinstance(new.payload, msgspec.Raw) else _NULL

"""The schedules of a store, for users who can reach it: a part of StoreBackend."""

from collections.abc import AsyncIterator
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from gantline.api.schedule_documents import (
    NewSchedule,
    RunsToCome,
    ScheduleDocument,
    recurrence_of,
    runs_to_come,
    schedule_document,
    schedule_of,
)
from gantline.auth.action import Action
from gantline.cli.prepare import prepare
from gantline.contract.store import JobStore
from gantline.contract.wakeup import Hint
from gantline.manager.manager import JobManager, Submitted
from gantline.schedules.schedule import NAME_LIMIT
from gantline.schedules.schedules import Schedules, all_schedules, tenant_prefix

if TYPE_CHECKING:
    from gantline.cli.session import Cli, CliAudit

_NULL = msgspec.Raw(b"null")


class StoreSchedules:
    """Reads and decides here; acts as the user of this host."""

    _cli: "Cli"
    _store: JobStore
    _manager: JobManager
    _audit: "CliAudit"

    @cached_property
    def _schedules(self) -> Schedules:
        """Made when it is needed: a bad setting of schedules is no harm to other commands."""
        return Schedules(self._store, self._manager, most=self._cli.settings.most_schedules)

    async def schedules(self) -> AsyncIterator[ScheduleDocument]:
        async for stored in all_schedules(self._store, prefix=tenant_prefix(self._cli.tenant)):
            yield schedule_document(stored.record, with_payload=True)

    async def schedule(self, name: str) -> ScheduleDocument:
        stored = await self._schedules.get(self._cli.tenant, name)
        return schedule_document(stored.record, with_payload=True)

    async def next_runs(self, name: str, count: int) -> RunsToCome:
        stored = await self._schedules.get(self._cli.tenant, name)
        return runs_to_come(stored.record, stored.record.upcoming(count))

    async def add_schedule(self, new: NewSchedule) -> ScheduleDocument:
        payload = new.payload if isinstance(new.payload, msgspec.Raw) else _NULL
        job = prepare(
            self._cli,
            new.job_type,
            payload,
            owner=self._cli.actor,
            subject=new.subject_id,
            group=new.group,
            queue=new.queue,
            priority=new.priority,
            max_attempts=new.max_attempts,
        ).job
        schedule = schedule_of(new, new.name, recurrence_of(new), job)
        await self._audited("createSchedule", new.name)
        stored = await self._schedules.create(schedule, origin="cli")
        await self._hint()
        return schedule_document(stored.record, with_payload=True)

    async def pause_schedule(self, name: str) -> ScheduleDocument:
        return await self._pause(name, "pauseSchedule", paused=True)

    async def resume_schedule(self, name: str) -> ScheduleDocument:
        return await self._pause(name, "resumeSchedule", paused=False)

    async def _pause(self, name: str, operation: str, *, paused: bool) -> ScheduleDocument:
        await self._audited(operation, name)
        stored = await self._schedules.pause(self._cli.tenant, name, paused=paused)
        await self._hint()
        return schedule_document(stored.record, with_payload=True)

    async def run_schedule(self, name: str) -> Submitted:
        await self._audited("runSchedule", name)
        submitted = await self._schedules.run(self._cli.tenant, name, owner=self._cli.actor)
        await self._cli.hint(self._store)
        return submitted

    async def delete_schedule(self, name: str) -> None:
        await self._audited("deleteSchedule", name)
        await self._schedules.delete(self._cli.tenant, name, origin="cli")
        await self._hint()

    async def _audited(self, operation: str, name: str) -> None:
        await self._audit.done(operation, Action.MANAGE_SCHEDULES, f"schedule:{name[:NAME_LIMIT]}")

    async def _hint(self) -> None:
        await self._cli.hint(self._store, Hint.SCHEDULED)

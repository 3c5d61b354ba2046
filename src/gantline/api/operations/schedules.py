"""Schedules: listing, making, changing, pausing, running and removing them."""

import asyncio

from starlette.responses import Response

from gantline.api.call import Call
from gantline.api.headers import entity_tags
from gantline.api.json_response import PRIVATE, Headers, JsonResponse
from gantline.api.operation import Operations
from gantline.api.operations.read import unchanged
from gantline.api.paging import name_cursor_text, page_response, read_name_cursor
from gantline.api.requests import JobToSubmit
from gantline.api.schedule_documents import (
    NewSchedule,
    NextQuery,
    ScheduleDocument,
    ScheduleSent,
    SchedulesPage,
    SchedulesQuery,
    recurrence_of,
    runs_to_come,
    schedule_document,
    schedule_of,
)
from gantline.api.views import accepted_document
from gantline.auth.action import Action
from gantline.auth.authorizer import Target
from gantline.contract.errors import NotThere, VersionMismatch
from gantline.contract.status import JobStatus
from gantline.schedules.schedule import NAME_LIMIT, Schedule
from gantline.schedules.schedules import StoredSchedule


class ScheduleOperations(Operations):
    # -- reading ----------------------------------------------------------------------------------

    async def listed(self, call: Call) -> Response:
        query: SchedulesQuery = call.query
        tenant_id = await self._access.tenant(call, query.tenant_id)
        after = "" if query.cursor is None else read_name_cursor(query.cursor)
        page = await self._jobs.schedules.page(tenant_id, after=after, limit=query.limit)
        items: list[ScheduleDocument] = []
        for one in page:
            if await self._access.may(call, call.right, _target(one.record.schedule)):
                items.append(schedule_document(one.record, with_payload=False))
                await asyncio.sleep(0)  # rare times take a while to be found
        is_full = len(page) == query.limit
        further = name_cursor_text(page[-1].record.schedule.name) if is_full else None
        return page_response(call, SchedulesPage(items=items, next_cursor=further))

    async def get(self, call: Call) -> Response:
        stored = await self._found(call)
        return unchanged(call, {"etag": await self._tag(stored)}) or await self._shown(call, stored)

    async def next_runs(self, call: Call) -> Response:
        query: NextQuery = call.query
        stored = await self._found(call)
        runs = []
        for at in stored.record.each_upcoming(query.count):
            runs.append(at)
            await asyncio.sleep(0)
        return JsonResponse(200, runs_to_come(stored.record, runs), cache=PRIVATE)

    # -- changing ---------------------------------------------------------------------------------

    async def create(self, call: Call) -> Response:
        sent: NewSchedule = call.sent
        tenant_id = sent.tenant_id or call.principal.tenant_id
        schedule = await self._schedule(call, sent, sent.name, tenant_id, is_new=True)
        stored = await self._jobs.schedules.create(schedule, origin="api")
        headers = {"location": f"{call.root}/api/schedules/{sent.name}"}
        return await self._shown(call, stored, headers, status=201)

    async def replace(self, call: Call) -> Response:
        found = await self._found(call)
        tenant_id, name = found.record.schedule.tenant_id, found.record.schedule.name
        schedule = await self._schedule(call, call.sent, name, tenant_id, is_new=False)
        stored = await self._jobs.schedules.replace(
            schedule, origin="api", version=await self._version(call, found)
        )
        return await self._shown(call, stored)

    async def delete(self, call: Call) -> Response:
        found = await self._found(call)
        schedule = found.record.schedule
        await self._jobs.schedules.delete(
            schedule.tenant_id,
            schedule.name,
            origin="api",
            version=await self._version(call, found),
        )
        return Response(status_code=204, headers={"cache-control": PRIVATE})

    async def pause(self, call: Call) -> Response:
        return await self._switch(call, paused=True)

    async def resume(self, call: Call) -> Response:
        return await self._switch(call, paused=False)

    async def _switch(self, call: Call, *, paused: bool) -> Response:
        found = await self._found(call)
        schedule = found.record.schedule
        stored = await self._jobs.schedules.pause(
            schedule.tenant_id,
            schedule.name,
            paused=paused,
            version=await self._version(call, found),
        )
        return await self._shown(call, stored)

    async def run_now(self, call: Call) -> Response:
        found = await self._found(call)
        schedule = found.record.schedule
        await self._access.target(
            call, _target(schedule, owner=call.principal.id), action=Action.SUBMIT
        )
        submitted = await self._jobs.schedules.run(
            schedule.tenant_id, schedule.name, owner=call.principal.id
        )
        self._jobs.wakeup.notify(job_id=submitted.job_id)
        accepted = accepted_document(
            call.root,
            submitted.job_id,
            schedule.subject_id,
            JobStatus.QUEUED,
            duplicate=submitted.duplicate,
        )
        after = str(self._settings.retry_after_seconds)
        headers = {"location": accepted.status_url, "retry-after": after}
        return JsonResponse(202, accepted, headers)

    # -- what they share --------------------------------------------------------------------------

    async def _found(self, call: Call) -> StoredSchedule:
        """The schedule of the path, if the caller may do this to it."""
        tenant_id = call.query.tenant_id or call.principal.tenant_id
        name = call.path_params["schedule"]
        try:
            found = await self._jobs.schedules.get(tenant_id, name)
        except NotThere:
            await self._access.target(call, Target(tenant_id=tenant_id), what=_what(name))
            raise
        await self._access.target(call, _target(found.record.schedule), what=_what(name))
        return found

    async def _schedule(
        self, call: Call, sent: ScheduleSent, name: str, tenant_id: str, *, is_new: bool
    ) -> Schedule:
        """What was sent, checked against its type, if the caller may submit such jobs."""
        recurrence = recurrence_of(sent)
        new = await self._submitter.prepare(
            call,
            JobToSubmit(
                job_type=sent.job_type,
                payload=sent.payload,
                subject_id=sent.subject_id,
                group=sent.group,
                queue=sent.queue,
                priority=sent.priority,
                max_attempts=sent.max_attempts,
                tenant_id=tenant_id,
            ),
            None,
        )
        job = new.job
        if is_new:
            await self._access.target(call, Target.of(job), what=_what(name))
        await self._access.target(call, Target.of(job), action=Action.SUBMIT)
        return schedule_of(sent, name, recurrence, job)

    async def _shown(
        self,
        call: Call,
        stored: StoredSchedule,
        headers: Headers | None = None,
        *,
        status: int = 200,
    ) -> Response:
        may_read = await self._access.may(
            call, Action.READ_PAYLOAD, _target(stored.record.schedule)
        )
        document = schedule_document(stored.record, with_payload=may_read)
        every = {**(headers or {}), "etag": await self._tag(stored)}
        return JsonResponse(status, document, every, cache=PRIVATE)

    async def _tag(self, stored: StoredSchedule) -> str:
        """In its quotes, as it is sent. The version counts the writes of all tenants."""
        seal = await self._seals.seal()
        return f'"schedule-{seal.tag(stored.version, stored.record.schedule.tenant_id)}"'

    async def _version(self, call: Call, found: StoredSchedule) -> int | None:
        """The version that must not have moved since, where the caller named a state."""
        tags = entity_tags(call.joined_headers, "if-match")
        if tags in (None, ["*"]):
            return None
        if await self._tag(found) in (tags or ()):
            return found.version
        raise VersionMismatch("The schedule is not in the state that If-Match names.")


def _target(schedule: Schedule, *, owner: str | None = None) -> Target:
    return Target(
        tenant_id=schedule.tenant_id,
        job_type=schedule.job_type,
        subject_id=schedule.subject_id,
        owner=schedule.owner if owner is None else owner,
    )


def _what(name: str) -> str:
    return f"schedule:{name[:NAME_LIMIT]}"

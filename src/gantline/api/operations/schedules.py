"""Schedules: listing, making, changing, pausing, running and removing them."""

import asyncio
from typing import Final

from gantline.api.answer import PRIVATE, Answer, Header, json_answer
from gantline.api.call import Call
from gantline.api.documents import AcceptedDocument
from gantline.api.headers import entity_tags
from gantline.api.operation import Operation, RequestHeader
from gantline.api.operations.read import IF_NONE_MATCH, etag_headers, is_known
from gantline.api.paging import name_cursor_text, next_link, read_name_cursor
from gantline.api.parts import Parts
from gantline.api.problems import ApiCode
from gantline.api.schedule_documents import (
    NewSchedule,
    NextQuery,
    RunsToCome,
    ScheduleDocument,
    ScheduleSent,
    SchedulesPage,
    SchedulesQuery,
    recurrence_of,
    runs_to_come,
    schedule_document,
)
from gantline.api.sent import JobToSubmit, TenantQuery
from gantline.api.views import status_url
from gantline.auth.action import Action
from gantline.auth.authorizer import Target
from gantline.contract.errors import Code, NotThere, VersionMismatch
from gantline.contract.schedule import NAME_LIMIT, Schedule
from gantline.contract.status import JobStatus
from gantline.manager.schedules import StoredSchedule

_TAG: Final = "schedules"
_IF_MATCH: Final = RequestHeader(
    "If-Match", "Do it only while the ETag is still this one; else 412.", {"type": "string"}
)
_SENT_PROBLEMS: Final = (
    ApiCode.NOT_FOUND,
    Code.SCHEDULE_CONFLICT,
    Code.PAYLOAD_TOO_LARGE,
    ApiCode.UNKNOWN_JOB_TYPE,
    Code.STORE_CLOSED,
)
_NAMED: Final = "/api/schedules/{schedule}"


class ScheduleOperations:
    def __init__(self, parts: Parts) -> None:
        self._jobs = parts.jobs
        self._access = parts.access
        self._submitter = parts.submitter
        self._settings = parts.settings

    @property
    def operations(self) -> list[Operation]:
        return [
            Operation(
                name="listSchedules",
                method="GET",
                path="/api/schedules",
                tag=_TAG,
                summary="List schedules by name; only those of types that the caller may see.",
                run=self.listed,
                query=SchedulesQuery,
                answers={200: SchedulesPage},
                problems=(ApiCode.NOT_FOUND,),
            ),
            Operation(
                name="createSchedule",
                method="POST",
                path="/api/schedules",
                tag=_TAG,
                summary="Make a schedule; its jobs are submitted in the name of who makes it.",
                run=self.create,
                body=NewSchedule,
                answers={201: ScheduleDocument},
                problems=_SENT_PROBLEMS,
            ),
            Operation(
                name="getSchedule",
                method="GET",
                path=_NAMED,
                tag=_TAG,
                summary="Show a schedule, its last and its next runs.",
                run=self.get,
                query=TenantQuery,
                headers=(IF_NONE_MATCH,),
                answers={200: ScheduleDocument, 304: None},
                problems=(ApiCode.NOT_FOUND,),
            ),
            Operation(
                name="replaceSchedule",
                method="PUT",
                path=_NAMED,
                tag=_TAG,
                summary="Change a schedule; its pause stays, and its place unless times change.",
                run=self.replace,
                query=TenantQuery,
                body=ScheduleSent,
                headers=(_IF_MATCH,),
                answers={200: ScheduleDocument},
                problems=(*_SENT_PROBLEMS, Code.VERSION_MISMATCH),
            ),
            Operation(
                name="deleteSchedule",
                method="DELETE",
                path=_NAMED,
                tag=_TAG,
                summary="Remove a schedule; the jobs that it has submitted stay.",
                run=self.delete,
                query=TenantQuery,
                headers=(_IF_MATCH,),
                answers={204: None},
                problems=(
                    ApiCode.NOT_FOUND,
                    Code.SCHEDULE_CONFLICT,
                    Code.VERSION_MISMATCH,
                    Code.STORE_CLOSED,
                ),
            ),
            *(
                Operation(
                    name=f"{verb}Schedule",
                    method="POST",
                    path=f"{_NAMED}/{verb}",
                    tag=_TAG,
                    summary=summary,
                    run=run,
                    query=TenantQuery,
                    headers=(_IF_MATCH,),
                    answers={200: ScheduleDocument},
                    problems=(ApiCode.NOT_FOUND, Code.VERSION_MISMATCH, Code.STORE_CLOSED),
                )
                for verb, summary, run in (
                    ("pause", "Submit nothing more until it is resumed.", self.pause),
                    ("resume", "Go on with the first run from now.", self.resume),
                )
            ),
            Operation(
                name="runSchedule",
                method="POST",
                path=f"{_NAMED}/run",
                tag=_TAG,
                summary="Submit a job of it now, in the name of who asks; its own runs stay.",
                run=self.run_now,
                query=TenantQuery,
                answers={202: AcceptedDocument},
                problems=(
                    ApiCode.NOT_FOUND,
                    Code.JOB_TYPE_DISABLED,
                    Code.QUEUE_FULL,
                    Code.STORE_CLOSED,
                ),
            ),
            Operation(
                name="nextRuns",
                method="GET",
                path=f"{_NAMED}/next",
                tag=_TAG,
                summary="Tell the next runs, in UTC and as clocks in its zone show them.",
                run=self.next_runs,
                query=NextQuery,
                answers={200: RunsToCome},
                problems=(ApiCode.NOT_FOUND,),
            ),
        ]

    # -- reading ----------------------------------------------------------------------------------

    async def listed(self, call: Call) -> Answer:
        query: SchedulesQuery = call.query
        tenant_id = await self._access.tenant(call, Action.READ_SCHEDULES, query.tenant_id)
        after = "" if query.cursor is None else read_name_cursor(query.cursor)
        page = await self._jobs.schedules.page(tenant_id, after=after, limit=query.limit)
        items: list[ScheduleDocument] = []
        for one in page:
            if await self._access.may(call, Action.READ_SCHEDULES, _target(one)):
                items.append(schedule_document(one.record, with_payload=False))
                await asyncio.sleep(0)  # rare times take a while to be found
        links: list[Header] = []
        further = None
        if len(page) == query.limit:
            further = name_cursor_text(page[-1].record.schedule.name)
            links.append((b"link", next_link(call.path, call.parameters, further)))
        return json_answer(200, SchedulesPage(items=items, next_cursor=further), *links)

    async def get(self, call: Call) -> Answer:
        stored = await self._found(call, Action.READ_SCHEDULES)
        if is_known(call, _tag(stored)):
            return Answer(304, headers=(PRIVATE, *etag_headers(_tag(stored))))
        return await self._shown(call, stored)

    async def next_runs(self, call: Call) -> Answer:
        query: NextQuery = call.query
        stored = await self._found(call, Action.READ_SCHEDULES)
        return json_answer(200, runs_to_come(stored.record, query.count), cache=PRIVATE)

    # -- changing ---------------------------------------------------------------------------------

    async def create(self, call: Call) -> Answer:
        sent: NewSchedule = call.body
        tenant_id = sent.tenant_id or call.principal.tenant_id
        schedule = await self._schedule(call, sent, sent.name, tenant_id, is_new=True)
        stored = await self._jobs.schedules.create(schedule, origin="api")
        location = f"{call.root}/api/schedules/{sent.name}".encode("ascii")
        return await self._shown(call, stored, (b"location", location), status=201)

    async def replace(self, call: Call) -> Answer:
        found = await self._found(call, Action.MANAGE_SCHEDULES)
        tenant_id, name = found.record.schedule.tenant_id, found.record.schedule.name
        schedule = await self._schedule(call, call.body, name, tenant_id, is_new=False)
        stored = await self._jobs.schedules.replace(
            schedule, origin="api", version=_version(call, found)
        )
        return await self._shown(call, stored)

    async def delete(self, call: Call) -> Answer:
        found = await self._found(call, Action.MANAGE_SCHEDULES)
        schedule = found.record.schedule
        await self._jobs.schedules.delete(
            schedule.tenant_id, schedule.name, origin="api", version=_version(call, found)
        )
        return Answer(204, headers=(PRIVATE,))

    async def pause(self, call: Call) -> Answer:
        return await self._switch(call, paused=True)

    async def resume(self, call: Call) -> Answer:
        return await self._switch(call, paused=False)

    async def _switch(self, call: Call, *, paused: bool) -> Answer:
        found = await self._found(call, Action.MANAGE_SCHEDULES)
        schedule = found.record.schedule
        stored = await self._jobs.schedules.pause(
            schedule.tenant_id, schedule.name, paused=paused, version=_version(call, found)
        )
        return await self._shown(call, stored)

    async def run_now(self, call: Call) -> Answer:
        found = await self._found(call, Action.MANAGE_SCHEDULES)
        schedule = found.record.schedule
        await self._access.target(call, Action.SUBMIT, _submitting(call, schedule))
        submitted = await self._jobs.schedules.run(
            schedule.tenant_id, schedule.name, owner=call.principal.id
        )
        self._jobs.wakeup.notify(job_id=submitted.job_id)
        url = status_url(call.root, submitted.job_id)
        accepted = AcceptedDocument(
            job_id=submitted.job_id,
            subject_id=schedule.subject_id,
            status_url=url,
            status=JobStatus.QUEUED,
            duplicate=submitted.duplicate,
        )
        retry_after = (b"retry-after", b"%d" % self._settings.retry_after_seconds)
        return json_answer(202, accepted, (b"location", url.encode("ascii")), retry_after)

    # -- what they share --------------------------------------------------------------------------

    async def _found(self, call: Call, action: Action) -> StoredSchedule:
        """The schedule of the path, if the caller may do this to it."""
        tenant_id = call.query.tenant_id or call.principal.tenant_id
        name = call.value("schedule")
        try:
            found = await self._jobs.schedules.get(tenant_id, name)
        except NotThere:
            target = Target(tenant_id=tenant_id)
            await self._access.target(call, action, target, what=_what(name))
            raise
        await self._access.target(call, action, _target(found), what=_what(name))
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
                queue=sent.queue,
                priority=sent.priority,
                max_attempts=sent.max_attempts,
                tenant_id=tenant_id,
            ),
            None,
        )
        job = new.job
        if is_new:
            await self._access.target(
                call, Action.MANAGE_SCHEDULES, Target.of(job), what=_what(name)
            )
        await self._access.target(call, Action.SUBMIT, Target.of(job))
        return Schedule(
            name=name,
            tenant_id=job.tenant_id,
            recurrence=recurrence,
            job_type=job.job_type,
            payload=job.payload,
            payload_version=job.payload_version,
            subject_id=job.subject_id,
            queue=job.queue,
            priority=job.priority,
            max_attempts=job.max_attempts,
            owner=job.created_by,
            start=sent.start,
            end=sent.end,
            jitter_seconds=sent.jitter_seconds,
            misfire=sent.misfire,
            catch_up_limit=sent.catch_up_limit,
            grace_seconds=sent.grace_seconds,
            overlap=sent.overlap,
        )

    async def _shown(
        self, call: Call, stored: StoredSchedule, *headers: Header, status: int = 200
    ) -> Answer:
        may_read = await self._access.may(call, Action.READ_PAYLOAD, _target(stored))
        document = schedule_document(stored.record, with_payload=may_read)
        return json_answer(status, document, *headers, *etag_headers(_tag(stored)), cache=PRIVATE)


def _target(stored: StoredSchedule) -> Target:
    schedule = stored.record.schedule
    return Target(
        tenant_id=schedule.tenant_id,
        job_type=schedule.job_type,
        subject_id=schedule.subject_id,
        owner=schedule.owner,
    )


def _submitting(call: Call, schedule: Schedule) -> Target:
    return Target(
        tenant_id=schedule.tenant_id,
        job_type=schedule.job_type,
        subject_id=schedule.subject_id,
        owner=call.principal.id,
    )


def _what(name: str) -> str:
    return f"schedule:{name[:NAME_LIMIT]}"


def _tag(stored: StoredSchedule) -> str:
    """In its quotes, as it is sent."""
    return f'"schedule-{stored.version}"'


def _version(call: Call, found: StoredSchedule) -> int | None:
    """The version that must not have moved since, where the caller named a state."""
    tags = entity_tags(call.headers, "if-match")
    if tags in (None, ["*"]):
        return None
    if _tag(found) in (tags or ()):
        return found.version
    raise VersionMismatch("The schedule is not in the state that If-Match names.")

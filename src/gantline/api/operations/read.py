"""Reading jobs: status, the whole job, lists, history and attempts."""

from typing import Final, TypedDict

from gantline.api.answer import PRIVATE, Answer, Header, json_answer
from gantline.api.call import Call
from gantline.api.documents import (
    AttemptsDocument,
    HistoryDocument,
    JobDocument,
    JobPage,
    StatusDocument,
)
from gantline.api.headers import entity_tags
from gantline.api.operation import Operation, RequestHeader
from gantline.api.paging import cursor_text, next_link, read_cursor
from gantline.api.parts import Parts
from gantline.api.problems import ApiCode, invalid_parameter
from gantline.api.sent import JobQuery
from gantline.api.views import (
    attempts_of,
    entity_tag,
    error_type_of,
    history_entry,
    job_document,
    listed_job,
    status_document,
)
from gantline.auth.action import Action
from gantline.auth.authorizer import Target
from gantline.contract.errors import Code, InvalidInput
from gantline.contract.query import JobFilter
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.status import JobStatus

IF_NONE_MATCH: Final = RequestHeader(
    "If-None-Match", "Answer 304 while the ETag is still this one.", {"type": "string"}
)
JOB_PROBLEMS: Final = (Code.JOB_NOT_FOUND, ApiCode.JOB_PURGED)


class _Shown(TypedDict):
    """What of a job's runs is for some eyes only, and whether these are such."""

    with_session: bool
    with_error_type: bool


class Reading:
    def __init__(self, parts: Parts) -> None:
        self._jobs = parts.jobs
        self._access = parts.access
        self._responses = parts.responses

    @property
    def operations(self) -> list[Operation]:
        return [
            Operation(
                name="getStatus",
                method="GET",
                path="/api/jobs/{job_id}/status",
                tag="jobs",
                summary="Tell where a job stands.",
                run=self.status,
                headers=(IF_NONE_MATCH,),
                answers={200: StatusDocument, 304: None},
                problems=JOB_PROBLEMS,
            ),
            Operation(
                name="getJob",
                method="GET",
                path="/api/jobs/{job_id}",
                tag="jobs",
                summary="Show all of a job; its payload to those who may read it.",
                run=self.job,
                headers=(IF_NONE_MATCH,),
                answers={200: JobDocument, 304: None},
                problems=JOB_PROBLEMS,
            ),
            Operation(
                name="listJobs",
                method="GET",
                path="/api/jobs",
                tag="jobs",
                summary="List jobs, newest first; only those that the caller may see.",
                run=self.listed,
                query=JobQuery,
                answers={200: JobPage},
                problems=(ApiCode.NOT_FOUND,),
            ),
            Operation(
                name="getHistory",
                method="GET",
                path="/api/jobs/{job_id}/history",
                tag="jobs",
                summary="Tell what happened to a job, oldest first.",
                run=self.history,
                answers={200: HistoryDocument},
                problems=JOB_PROBLEMS,
            ),
            Operation(
                name="getAttempts",
                method="GET",
                path="/api/jobs/{job_id}/attempts",
                tag="jobs",
                summary="List the runs of a job, oldest first; the last may be going on.",
                run=self.attempts,
                answers={200: AttemptsDocument},
                problems=JOB_PROBLEMS,
            ),
        ]

    async def status(self, call: Call) -> Answer:
        job = await self._access.job(call, Action.READ)
        now = self._jobs.clock.now()
        tag = entity_tag(job, now)
        headers = etag_headers(tag)
        if is_known(call, tag):
            return Answer(304, headers=(PRIVATE, *headers))
        return self._responses.status(status_document(job, now), headers)

    async def job(self, call: Call) -> Answer:
        return await self.whole(call, await self._access.job(call, Action.READ))

    async def whole(self, call: Call, job: JobSnapshot) -> Answer:
        """Answer all of a job that the caller may read."""
        now = self._jobs.clock.now()
        tag = entity_tag(job, now)
        headers = etag_headers(tag)
        if is_known(call, tag):
            return Answer(304, headers=(PRIVATE, *headers))
        with_payload = await self._access.may(call, Action.READ_PAYLOAD, Target.of(job.job))
        document = job_document(
            job,
            now,
            with_payload=with_payload,
            with_error_type=await self._shows_error_type(call, job),
        )
        return json_answer(200, document, *headers, cache=PRIVATE)

    async def listed(self, call: Call) -> Answer:
        query: JobQuery = call.query
        tenant_id, visible_to = await self._access.visible(call, Action.READ, query.tenant_id)
        wanted = JobFilter(
            tenant_id=tenant_id,
            statuses=_statuses(query.status),
            job_types=frozenset(query.job_type),
            queues=frozenset(query.queue),
            subject_id=query.subject_id,
            created_by=query.created_by,
            correlation_id=query.correlation_id,
            parent_job_id=query.parent_job_id,
            created_from=query.created_from,
            created_before=query.created_before,
            visible_to=visible_to,
        )
        return await self.page(call, wanted, limit=query.limit, cursor=query.cursor)

    async def page(
        self, call: Call, wanted: JobFilter, *, limit: int, cursor: str | None
    ) -> Answer:
        """Answer a page. The filter is narrowed already; asking for each job is the second line."""
        after = None if cursor is None else read_cursor(cursor)
        page = await self._jobs.store.find(wanted, limit=limit, after=after)
        now = self._jobs.clock.now()
        items = [
            listed_job(job, now, with_error_type=await self._shows_error_type(call, job))
            for job in page.items
            if await self._access.may(call, Action.READ, Target.of(job.job))
        ]
        further = None if page.next is None else cursor_text(page.next)
        links: list[Header] = []
        if further is not None:
            links.append((b"link", next_link(call.path, call.parameters, further)))
        return json_answer(200, JobPage(items=items, next_cursor=further), *links)

    async def history(self, call: Call) -> Answer:
        job = await self._access.job(call, Action.READ)
        rows = await self._jobs.store.history(job.job.job_id, tenant_id=job.job.tenant_id)
        shown = await self._shown(call, job)
        entries = [history_entry(row, **shown) for row in rows]
        return json_answer(200, HistoryDocument(items=entries))

    async def attempts(self, call: Call) -> Answer:
        job = await self._access.job(call, Action.READ)
        rows = await self._jobs.store.history(job.job.job_id, tenant_id=job.job.tenant_id)
        shown = await self._shown(call, job)
        return json_answer(200, AttemptsDocument(items=attempts_of(job, rows, **shown)))

    async def _shown(self, call: Call, job: JobSnapshot) -> _Shown:
        """The names of workers are those of hosts, which are not every submitter's business."""
        tenant, own = Target(tenant_id=job.job.tenant_id), Target.of(job.job)
        return {
            "with_session": await self._access.may(call, Action.STATISTICS, tenant),
            "with_error_type": await self._access.may(call, Action.READ_ERRORS, own),
        }

    async def _shows_error_type(self, call: Call, job: JobSnapshot) -> bool:
        """Asked only where there is one to show: an authorizer may have to look it up."""
        if error_type_of(job.last) is None:
            return False
        return await self._access.may(call, Action.READ_ERRORS, Target.of(job.job))


def etag_headers(tag: str) -> list[Header]:
    return [(b"etag", tag.encode("ascii"))]


def is_known(call: Call, tag: str) -> bool:
    """Whether If-None-Match names this state; weak comparison, as for any GET."""
    tags = entity_tags(call.headers, "if-none-match")
    if tags is None:
        return False
    return tags == ["*"] or tag in [one.removeprefix("W/") for one in tags]


def _statuses(names: "list[str]") -> frozenset[JobStatus]:
    try:
        return frozenset(JobStatus.parse(name) for name in names)
    except InvalidInput:
        known = ", ".join(JobStatus)
        raise invalid_parameter("status", f"must be one of {known}") from None

"""Reading jobs: status, the whole job, lists, history and attempts."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, TypedDict

from starlette.responses import Response

from gantline.api.call import Call
from gantline.api.documents import AttemptsDocument, HistoryDocument, JobPage
from gantline.api.headers import is_known
from gantline.api.json_response import PRIVATE, JsonResponse
from gantline.api.operation import Operations
from gantline.api.paging import cursor_text, page_response, read_cursor
from gantline.api.problems import invalid_parameter
from gantline.api.requests import JobQuery
from gantline.api.searching import filter_of
from gantline.api.views import (
    attempts_of,
    entity_tag,
    error_type_of,
    history_entry,
    job_document,
    listed_job,
    poll_headers,
    status_document,
    why_document,
)
from gantline.auth.action import Action
from gantline.auth.authorizer import Target
from gantline.contract.errors import InvalidInput
from gantline.contract.query import Cursor, JobFilter, Page
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.status import DerivedState, JobStatus, State, parse_state
from gantline.runtime import monotonic
from gantline.why.explain import explain

# So long a list goes on where it has found nothing yet; then its page is empty, with a cursor.
_SEARCH_SECONDS: Final = 2.0


class _Shown(TypedDict):
    """What of a job's runs only some callers may see, and whether this one may."""

    with_session: bool
    with_error_type: bool


class JobReading(Operations):
    async def status(self, call: Call) -> Response:
        job = await self._access.job(call)
        now = self._jobs.clock.now()
        headers = self._headers(job, now)
        return unchanged(call, headers) or self._responses.status(
            status_document(job, now), headers
        )

    async def job(self, call: Call) -> Response:
        return await self.whole(call, await self._access.job(call))

    async def whole(self, call: Call, job: JobSnapshot) -> Response:
        """Answer all of a job that the caller may read."""
        now = self._jobs.clock.now()
        headers = self._headers(job, now)
        if known := unchanged(call, headers):
            return known
        with_payload = await self._access.may(call, Action.READ_PAYLOAD, Target.of(job.job))
        document = job_document(
            job,
            now,
            with_payload=with_payload,
            with_error_type=await self._shows_error_type(call, job),
        )
        return JsonResponse(200, document, headers, cache=PRIVATE)

    def _headers(self, job: JobSnapshot, now: datetime) -> dict[str, str]:
        usual = self._settings.retry_after_seconds
        return {"etag": entity_tag(job, now)} | poll_headers(job, now, usual)

    async def listed(self, call: Call) -> Response:
        query: JobQuery = call.query
        tenant_id, visible_to = await self._access.visible(call, query.tenant_id)
        statuses = _statuses(query.status)
        job_filter = filter_of(
            query, tenant_id, visible_to, statuses=statuses, due_before=query.due_before
        )
        return await self.page(call, job_filter, limit=query.limit, cursor=query.cursor)

    async def page(
        self, call: Call, job_filter: JobFilter, *, limit: int, cursor: str | None
    ) -> Response:
        """Answer a page. The filter is narrowed already; each job is checked as well."""
        after = None if cursor is None else read_cursor(cursor)
        page = await self._find(job_filter, limit, after)
        now = self._jobs.clock.now()
        items = [
            listed_job(job, now, with_error_type=await self._shows_error_type(call, job))
            for job in page.items
            if await self._access.may(call, Action.READ, Target.of(job.job))
        ]
        further = None if page.next is None else cursor_text(page.next)
        return page_response(call, JobPage(items=items, next_cursor=further))

    async def _find(self, job_filter: JobFilter, limit: int, after: Cursor | None) -> Page:
        """Read a page; while nothing is in the part that the store reads at once, read the next."""
        until = monotonic() + _SEARCH_SECONDS
        page = await self._jobs.store.find(job_filter, limit=limit, after=after)
        while not page.items and page.next and monotonic() < until:
            page = await self._jobs.store.find(job_filter, limit=limit, after=page.next)
        return page

    async def history(self, call: Call) -> Response:
        job = await self._access.job(call)
        rows = await self._jobs.store.history(job.job.job_id, tenant_id=job.job.tenant_id)
        shown = await self._shown(call, job)
        entries = [history_entry(row, **shown) for row in rows]
        return JsonResponse(200, HistoryDocument(items=entries))

    async def attempts(self, call: Call) -> Response:
        job = await self._access.job(call)
        rows = await self._jobs.store.history(job.job.job_id, tenant_id=job.job.tenant_id)
        shown = await self._shown(call, job)
        return JsonResponse(200, AttemptsDocument(items=attempts_of(job, rows, **shown)))

    async def why(self, call: Call) -> Response:
        job = await self._access.job(call)
        view = await self._access.view(call, job.job.tenant_id)
        why = await explain(self._jobs.store, job, view=view)
        return JsonResponse(200, why_document(why), cache=PRIVATE)

    async def _shown(self, call: Call, job: JobSnapshot) -> _Shown:
        """The names of workers are those of hosts, which not every submitter may see."""
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


def unchanged(call: Call, headers: Mapping[str, str]) -> Response | None:
    """304 where the caller has the state of this ETag already."""
    if not is_known(call.joined_headers, headers["etag"]):
        return None
    return Response(status_code=304, headers={"cache-control": PRIVATE, **headers})


def _statuses(names: "list[str]") -> frozenset[State]:
    try:
        return frozenset(map(parse_state, names))
    except InvalidInput:
        known = ", ".join((*JobStatus, *DerivedState))
        raise invalid_parameter("status", f"must be one of {known}") from None

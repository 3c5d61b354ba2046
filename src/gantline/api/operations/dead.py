"""Dead letters: jobs that failed or were poisoned, in numbers, listed, and queued again."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import msgspec
from starlette.responses import Response

from gantline.api.call import Call
from gantline.api.documents import ErrorDetail, RedrivenItem, RedriveReport
from gantline.api.json_response import JsonResponse
from gantline.api.operation import Operations, Parts
from gantline.api.operations.read import JobReading
from gantline.api.problems import Refused
from gantline.api.requests import DeadQuery, RedriveByFilter, TenantQuery
from gantline.api.searching import filter_of
from gantline.api.views import dead_summary
from gantline.auth.authorizer import Target
from gantline.contract.errors import Code, GantlineError, JobNotFound
from gantline.contract.query import Cursor, JobFilter
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.status import DEAD
from gantline.manager.manager import Acted

_PAGE: Final = 200


class DeadLetters(Operations):
    def __init__(self, parts: Parts, reading: JobReading) -> None:
        super().__init__(parts)
        self._reading = reading

    async def summary(self, call: Call) -> Response:
        query: TenantQuery = call.query
        tenant_id = await self._access.tenant(call, query.tenant_id)
        every = await self._jobs.store.dead_counts(tenant_id=tenant_id)
        counted = await self._access.visible_rows(call, tenant_id, every)
        return JsonResponse(200, dead_summary(counted))

    async def listed(self, call: Call) -> Response:
        query: DeadQuery = call.query
        tenant_id, visible_to = await self._access.visible(call, query.tenant_id)
        job_filter = filter_of(query, tenant_id, visible_to, statuses=DEAD, reasons=query.reason)
        return await self._reading.page(call, job_filter, limit=query.limit, cursor=query.cursor)

    async def get(self, call: Call) -> Response:
        job = await self._access.job(call)
        if job.status not in DEAD:
            raise JobNotFound(job.job.job_id)
        return await self._reading.whole(call, job)

    async def redrive(self, call: Call) -> Response:
        asked: RedriveByFilter = call.sent
        _check_choice(asked)
        chosen, more = await self._chosen(call, asked)
        if not asked.dry_run:
            await self._audited(call, asked, chosen)
        items = [] if asked.dry_run else await self._redriven(call, chosen)
        redriven = sum(item.redriven for item in items)
        report = RedriveReport(
            dry_run=asked.dry_run,
            matching=len(chosen),
            redriven=redriven,
            failed=len(items) - redriven,
            more=more,
            items=items,
        )
        return JsonResponse(200, report)

    async def _chosen(self, call: Call, asked: RedriveByFilter) -> tuple[list[JobSnapshot], bool]:
        """What is meant, and whether there is more; only what the caller may redrive."""
        tenant_id, visible_to = await self._access.visible(call, asked.tenant_id)
        if asked.job_ids:
            ids = list(dict.fromkeys(asked.job_ids))
            named = await self._access.jobs(call, ids, tenant_id=tenant_id)
            found = {job.job.job_id: job for job in named}.values()
            return [job for job in found if job.status in DEAD], False
        job_filter = JobFilter(
            tenant_id=tenant_id,
            statuses=DEAD,
            job_types=frozenset(asked.job_types),
            reasons=frozenset(asked.reasons),
            subject_id=asked.subject_id,
            created_from=asked.created_from,
            created_before=asked.created_before,
            visible_to=visible_to,
        )
        return await self._matching(call, job_filter, asked.limit)

    async def _matching(
        self, call: Call, job_filter: JobFilter, limit: int
    ) -> tuple[list[JobSnapshot], bool]:
        """The filter is narrowed already, so what is looked at is bounded by the limit."""
        chosen: list[JobSnapshot] = []
        after: Cursor | None = None
        while True:
            page = await self._jobs.store.find(job_filter, limit=_PAGE, after=after)
            chosen += await self._permitted(call, page.items)
            if len(chosen) > limit or page.next is None:
                return chosen[:limit], len(chosen) > limit
            after = page.next

    async def _permitted(self, call: Call, jobs: Sequence[JobSnapshot]) -> list[JobSnapshot]:
        """A second check, job by job."""
        return [job for job in jobs if await self._access.may(call, call.right, Target.of(job.job))]

    async def _audited(
        self, call: Call, asked: RedriveByFilter, chosen: Sequence[JobSnapshot]
    ) -> None:
        """One entry for all of it and one for each job, before the first is touched."""
        tenant_id = asked.tenant_id or call.principal.tenant_id
        details = {"filter": _filter_of(asked), "matching": len(chosen)}
        await self._access.begun(call, tenant_id, what="dead-letters", details=details)
        await asyncio.gather(*(self._access.allowed(call, job) for job in chosen))

    async def _redriven(self, call: Call, chosen: list[JobSnapshot]) -> list[RedrivenItem]:
        """Each is redriven at the version in which it was found to match."""
        items = []
        for job in chosen:
            job_id = job.job.job_id
            (answer,) = await self._jobs.manager.redrive(
                [job_id],
                tenant_id=job.job.tenant_id,
                actor=call.principal.id,
                version=job.version,
            )
            items.append(_item(job_id, answer))
        if any(item.redriven for item in items):
            self._jobs.wakeup.notify()
        return items


def _check_choice(asked: RedriveByFilter) -> None:
    """Ids, or a filter, or all: an empty body must not redrive everything."""
    filters = (asked.subject_id, asked.created_from, asked.created_before)
    has_filter = bool(asked.job_types or asked.reasons) or any(one is not None for one in filters)
    if bool(asked.job_ids) + has_filter + asked.all != 1:
        detail = "name either jobIds, or a filter, or all"
        error = ErrorDetail(pointer="#", detail=detail)
        raise Refused(Code.VALIDATION_ERROR, f"The body must {detail}.", errors=[error])


def _filter_of(asked: RedriveByFilter) -> dict[str, Any]:
    """What was asked for, without empty fields; the jobs have entries of their own."""
    data: dict[str, Any] = msgspec.to_builtins(asked)
    named = data.pop("jobIds")
    kept = {name: value for name, value in data.items() if value not in (None, [], False)}
    return kept | ({"jobIds": len(named)} if named else {})


def _item(job_id: UUID, answer: Acted | GantlineError) -> RedrivenItem:
    code = answer.code if isinstance(answer, GantlineError) else None
    return RedrivenItem(job_id=job_id, redriven=code is None, error_code=code)

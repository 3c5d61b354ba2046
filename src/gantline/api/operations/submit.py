"""Submitting jobs: one, or a batch."""

import asyncio
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta
from starlette.responses import Response

from gantline.api.call import Call
from gantline.api.dispatcher import problem_document
from gantline.api.documents import BatchDocument, BatchItem, ErrorDetail
from gantline.api.headers import async_request_id, idempotency_key
from gantline.api.json_response import JsonResponse
from gantline.api.operation import Operations
from gantline.api.parsing import decode
from gantline.api.problems import Refused, invalid_parameter, refused_for
from gantline.api.requests import JobToSubmit, Sent
from gantline.contract.errors import GantlineError
from gantline.contract.results import InsertResult
from gantline.contract.submission import NewJob

# So many jobs of a batch are written together: others who submit wait for no more than these.
_AT_A_TIME: Final = 100
# So many are read without a pause, in half a millisecond.
_WITHOUT_PAUSE: Final = 10


class BatchSent(Sent, frozen=True, kw_only=True):
    """As JobsToSubmit, but each job is read on its own, so that a bad one harms no other."""

    jobs: Annotated[list[msgspec.Raw], Meta(min_length=1, max_length=1000)]


class Submitting(Operations):
    async def submit(self, call: Call) -> Response:
        asked, warnings = await self._submitter.taken(call, _with_id(call), call.raw_body)
        tenant_id = asked.tenant_id or call.principal.tenant_id
        key = self._submitter.request_key(call, call.raw_body, tenant_id=tenant_id)
        new = await self._submitter.prepare(call, asked, key)
        return await self._submitter.accept(call, new, root=call.root, warnings=warnings)

    async def batch(self, call: Call) -> Response:
        batch: BatchSent = call.sent
        idempotency_key(call.joined_headers)  # a bad one refuses all of them
        items: list[BatchItem] = []
        for first in range(0, len(batch.jobs), _AT_A_TIME):
            items += await self._some(call, first, batch.jobs[first : first + _AT_A_TIME])
        accepted = sum(item.job is not None for item in items)
        document = BatchDocument(accepted=accepted, rejected=len(items) - accepted, items=items)
        return JsonResponse(202, document)

    async def _some(self, call: Call, first: int, bodies: list[msgspec.Raw]) -> list[BatchItem]:
        """Submit some of a batch; what others have to do comes before the next ones."""
        prepared: list[_Prepared | Refused] = []
        for index, body in enumerate(bodies, start=first):
            prepared.append(await self._prepared(call, index, body))
            if index % _WITHOUT_PAUSE == 0:
                await asyncio.sleep(0)
        ready = [one.new for one in prepared if not isinstance(one, Refused)]
        answers = iter(await self._jobs.submit_each_prepared(ready) if ready else [])
        return [
            _refused_item(call, one)
            if isinstance(one, Refused)
            else await self._item(call, one, next(answers))
            for one in prepared
        ]

    async def _prepared(self, call: Call, index: int, body: msgspec.Raw) -> "_Prepared | Refused":
        """Each job is decoded, checked and authorized by itself."""
        within = f"#/jobs/{index}"
        try:
            asked: JobToSubmit = decode(JobToSubmit, bytes(body), within=within)
            asked, warnings = await self._submitter.taken(call, asked, bytes(body))
            tenant_id = asked.tenant_id or call.principal.tenant_id
            key = self._submitter.request_key(
                call, bytes(body), tenant_id=tenant_id, part=f"/{index}"
            )
            new = await self._submitter.prepare(call, asked, key)
            await self._submitter.allow(call, new.job)
        except Refused as refused:
            return refused
        except GantlineError as error:
            return refused_for(error, within=f"{within}/payload")
        return _Prepared(new, warnings)

    async def _item(
        self, call: Call, one: "_Prepared", answer: InsertResult | GantlineError
    ) -> BatchItem:
        try:
            if isinstance(answer, GantlineError):
                raise answer
            accepted, _ = await self._submitter.accepted(
                call, one.new, answer, root=call.root, warnings=one.warnings
            )
        except Refused as refused:
            return _refused_item(call, refused)
        except GantlineError as error:
            return _refused_item(call, refused_for(error))
        return BatchItem(job=accepted)


class _Prepared(NamedTuple):
    """A job of a batch that is ready, and what was ignored of it."""

    new: NewJob
    warnings: list[ErrorDetail]


def _with_id(call: Call) -> JobToSubmit:
    """The job that was sent, under the id that the header names; raise Refused for two ids."""
    asked: JobToSubmit = call.sent
    job_id = async_request_id(call.joined_headers)
    if job_id is None:
        return asked
    if asked.job_id not in (None, job_id):
        raise invalid_parameter("X-Async-Request-Id", "is another id than jobId; send one of them")
    return msgspec.structs.replace(asked, job_id=job_id)


def _refused_item(call: Call, refused: Refused) -> BatchItem:
    return BatchItem(problem=problem_document(call, refused))

"""Submitting jobs: one, or a batch."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from gantline.api.answer import Answer, json_answer
from gantline.api.body import decode
from gantline.api.call import Call
from gantline.api.documents import (
    AcceptedDocument,
    BatchDocument,
    BatchItem,
    StatusDocument,
)
from gantline.api.front_desk import problem_document
from gantline.api.headers import idempotency_key
from gantline.api.operation import Operation, RequestHeader
from gantline.api.parts import Parts
from gantline.api.problems import ApiCode, Refused, refused_for
from gantline.api.sent import JobsToSubmit, JobToSubmit, Sent
from gantline.auth.action import Action
from gantline.auth.authorizer import Target
from gantline.contract.errors import Code, GantlineError
from gantline.contract.results import InsertResult
from gantline.contract.submission import NewJob

IDEMPOTENCY_KEY: Final = RequestHeader(
    "Idempotency-Key",
    "A repeat of the same request with the same key finds the job of the first one; 24 hours.",
    {"type": "string", "minLength": 1, "maxLength": 255},
)
PREFER: Final = RequestHeader(
    "Prefer",
    "`wait=N` holds the answer up to N seconds, at most 30, until the job has ended.",
    {"type": "string"},
)
SUBMIT_PROBLEMS: Final = (
    ApiCode.NOT_FOUND,
    Code.IDEMPOTENCY_CONFLICT,
    Code.JOB_ID_CONFLICT,
    Code.PAYLOAD_TOO_LARGE,
    ApiCode.UNKNOWN_JOB_TYPE,
    ApiCode.IDEMPOTENCY_KEY_REUSED,
    Code.JOB_TYPE_DISABLED,
    Code.QUEUE_FULL,
    Code.STORE_CLOSED,
)


class _Batch(Sent, frozen=True, kw_only=True):
    """As JobsToSubmit, but each job is read on its own, so that a bad one harms no other."""

    jobs: Annotated[list[msgspec.Raw], Meta(min_length=1, max_length=1000)]


_job_decoder: Final = msgspec.json.Decoder(JobToSubmit)


class Submitting:
    def __init__(self, parts: Parts) -> None:
        self._jobs = parts.jobs
        self._access = parts.access
        self._submitter = parts.submitter

    @property
    def operations(self) -> list[Operation]:
        return [
            Operation(
                name="submitJob",
                method="POST",
                path="/api/jobs",
                tag="jobs",
                summary="Submit a job. It is durable when the answer comes.",
                run=self.submit,
                body=JobToSubmit,
                headers=(IDEMPOTENCY_KEY, PREFER),
                answers={202: AcceptedDocument, 200: StatusDocument},
                problems=SUBMIT_PROBLEMS,
            ),
            Operation(
                name="submitBatch",
                method="POST",
                path="/api/jobs/batch",
                tag="jobs",
                summary="Submit many jobs; each is accepted or refused on its own.",
                run=self.batch,
                body=_Batch,
                body_shown=JobsToSubmit,
                headers=(IDEMPOTENCY_KEY,),
                answers={202: BatchDocument},
                problems=SUBMIT_PROBLEMS,
            ),
        ]

    async def submit(self, call: Call) -> Answer:
        asked: JobToSubmit = call.body
        tenant_id = asked.tenant_id or call.principal.tenant_id
        key = self._submitter.request_key(call, call.raw_body, tenant_id=tenant_id)
        new = await self._submitter.prepare(call, asked, key)
        return await self._submitter.accept(call, new, root=call.root)

    async def batch(self, call: Call) -> Answer:
        batch: _Batch = call.body
        idempotency_key(call.headers)  # a bad one refuses all of them
        prepared = [
            await self._prepared(call, index, body) for index, body in enumerate(batch.jobs)
        ]
        ready = [one for one in prepared if not isinstance(one, Refused)]
        answers = iter(await self._jobs.submit_each_prepared(ready) if ready else [])
        items = [
            _refused_item(call, one)
            if isinstance(one, Refused)
            else await self._item(call, one, next(answers))
            for one in prepared
        ]
        accepted = sum(item.job is not None for item in items)
        document = BatchDocument(accepted=accepted, rejected=len(items) - accepted, items=items)
        return json_answer(202, document)

    async def _prepared(self, call: Call, index: int, body: msgspec.Raw) -> NewJob | Refused:
        """Each job is decoded, checked and authorized by itself."""
        within = f"#/jobs/{index}"
        try:
            asked: JobToSubmit = decode(_job_decoder, bytes(body), within=within)
            tenant_id = asked.tenant_id or call.principal.tenant_id
            key = self._submitter.request_key(
                call, bytes(body), tenant_id=tenant_id, part=f"/{index}"
            )
            new = await self._submitter.prepare(call, asked, key)
            await self._access.target(call, Action.SUBMIT, Target.of(new.job))
        except Refused as refused:
            return refused
        except GantlineError as error:
            return refused_for(error, within=f"{within}/payload")
        return new

    async def _item(
        self, call: Call, new: NewJob, answer: InsertResult | GantlineError
    ) -> BatchItem:
        try:
            if isinstance(answer, GantlineError):
                raise answer
            accepted, _ = await self._submitter.accepted(call, new, answer, root=call.root)
        except Refused as refused:
            return _refused_item(call, refused)
        except GantlineError as error:
            return _refused_item(call, refused_for(error))
        return BatchItem(job=accepted)


def _refused_item(call: Call, refused: Refused) -> BatchItem:
    return BatchItem(problem=problem_document(call, refused))

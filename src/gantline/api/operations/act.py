"""Acting on a job: cancel, redrive, redrive edited, delete."""

from typing import Final

import msgspec

from gantline.api.answer import PRIVATE, Answer, json_answer
from gantline.api.call import Call
from gantline.api.documents import AcceptedDocument, StatusDocument
from gantline.api.headers import entity_tags
from gantline.api.operation import Operation, RequestHeader
from gantline.api.operations.read import JOB_PROBLEMS, etag_headers
from gantline.api.operations.submit import IDEMPOTENCY_KEY, PREFER, SUBMIT_PROBLEMS
from gantline.api.parts import Parts
from gantline.api.sent import JobEdited, JobToSubmit
from gantline.api.views import entity_tag, status_document, status_url
from gantline.auth.action import Action
from gantline.contract.errors import (
    Code,
    GantlineError,
    IllegalTransition,
    JobNotFound,
    VersionMismatch,
)
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.status import REDRIVABLE, JobStatus
from gantline.contract.wakeup import Hint
from gantline.manager.manager import Acted

IF_MATCH: Final = RequestHeader(
    "If-Match", "Act only while the ETag is still this one; else 412.", {"type": "string"}
)
_PROBLEMS: Final = (
    *JOB_PROBLEMS,
    Code.ILLEGAL_TRANSITION,
    Code.VERSION_MISMATCH,
    Code.STORE_CLOSED,
)


class Acting:
    def __init__(self, parts: Parts) -> None:
        self._jobs = parts.jobs
        self._access = parts.access
        self._cache = parts.cache
        self._submitter = parts.submitter
        self._streams = parts.streams

    @property
    def operations(self) -> list[Operation]:
        return [
            Operation(
                name="cancelJob",
                method="POST",
                path="/api/jobs/{job_id}/cancel",
                tag="jobs",
                summary="Cancel a job: 200 when it is, 202 when its run has been asked to stop.",
                run=self.cancel,
                headers=(IF_MATCH,),
                answers={200: StatusDocument, 202: StatusDocument},
                problems=_PROBLEMS,
            ),
            Operation(
                name="redriveJob",
                method="POST",
                path="/api/jobs/{job_id}/redrive",
                tag="jobs",
                summary="Queue a failed, poisoned or cancelled job again, with its id and history.",
                run=self.redrive,
                headers=(IF_MATCH,),
                answers={200: StatusDocument},
                problems=(*_PROBLEMS, Code.IDEMPOTENCY_CONFLICT),
            ),
            Operation(
                name="redriveEdited",
                method="POST",
                path="/api/jobs/{job_id}/edited-redrive",
                tag="jobs",
                summary="Submit a new job made of a dead one and what is different; checked anew.",
                run=self.redrive_edited,
                body=JobEdited,
                headers=(IF_MATCH, IDEMPOTENCY_KEY, PREFER),
                answers={202: AcceptedDocument, 200: StatusDocument},
                problems=(*_PROBLEMS, *SUBMIT_PROBLEMS),
            ),
            Operation(
                name="deleteJob",
                method="DELETE",
                path="/api/jobs/{job_id}",
                tag="jobs",
                summary="Remove a job that has ended, and all that is known of it.",
                run=self.delete,
                headers=(IF_MATCH,),
                answers={204: None},
                problems=_PROBLEMS,
            ),
        ]

    async def cancel(self, call: Call) -> Answer:
        job = await self._job(call, Action.CANCEL)
        (acted,) = await self._jobs.manager.cancel(
            [job.job.job_id],
            tenant_id=job.job.tenant_id,
            actor=call.principal.id,
            version=_version(call, job),
        )
        done = _done(acted)
        self._streams.look()
        if done.status is JobStatus.RUNNING:
            self._jobs.wakeup.notify(Hint.CANCEL, job_id=done.job_id)
            return await self._standing(call, job, status=202)
        self._jobs.endings.look()
        return await self._standing(call, job, status=200)

    async def redrive(self, call: Call) -> Answer:
        job = await self._job(call, Action.REDRIVE)
        (acted,) = await self._jobs.manager.redrive(
            [job.job.job_id],
            tenant_id=job.job.tenant_id,
            actor=call.principal.id,
            version=_version(call, job),
        )
        _done(acted)
        self._streams.look()
        self._cache.forget(job.job.job_id)
        self._jobs.wakeup.notify(job_id=job.job.job_id)
        return await self._standing(call, job, status=200)

    async def redrive_edited(self, call: Call) -> Answer:
        job = await self._job(call, Action.REDRIVE)
        if job.status not in REDRIVABLE:
            raise IllegalTransition(f"A job that is {job.status} cannot be redriven.")
        old, edited = job.job, call.body
        assert isinstance(edited, JobEdited)  # noqa: S101  # decoded into it
        keeps_payload = not isinstance(edited.payload, msgspec.Raw)
        asked = JobToSubmit(
            job_type=old.job_type,
            payload=old.payload if keeps_payload else edited.payload,
            subject_id=edited.subject_id,
            correlation_id=old.correlation_id,
            idempotency_key=edited.idempotency_key,
            max_attempts=edited.max_attempts or old.max_attempts,
            tenant_id=old.tenant_id,
            queue=edited.queue or old.queue,
            priority=old.priority if edited.priority is None else edited.priority,
            delay_seconds=edited.delay_seconds,
            payload_version=old.payload_version if keeps_payload else None,
        )
        key = self._submitter.request_key(call, call.raw_body, tenant_id=old.tenant_id)
        new = await self._submitter.prepare(call, asked, key, parent=old.job_id)
        return await self._submitter.accept(call, new, root=call.root)

    async def delete(self, call: Call) -> Answer:
        job = await self._job(call, Action.DELETE)
        (answer,) = await self._jobs.manager.delete(
            [job.job.job_id], tenant_id=job.job.tenant_id, version=_version(call, job)
        )
        if isinstance(answer, GantlineError):
            raise answer
        self._cache.forget(job.job.job_id)
        return Answer(204, headers=(PRIVATE,))

    async def _job(self, call: Call, action: Action) -> JobSnapshot:
        """The job, if the caller may do this to it, and its ETag is the one that he has."""
        job = await self._access.job(call, action)
        tags = entity_tags(call.headers, "if-match")
        if tags in (None, ["*"]) or entity_tag(job, self._jobs.clock.now()) in (tags or ()):
            return job
        raise VersionMismatch("The job is not in the state that If-Match names.")

    async def _standing(self, call: Call, job: JobSnapshot, *, status: int) -> Answer:
        """How the job stands after what was done to it."""
        after = await self._access.read(job.job.job_id)
        if after is None:
            raise JobNotFound(job.job.job_id)
        now = self._jobs.clock.now()
        location = status_url(call.root, after.job.job_id).encode("ascii")
        headers = [*etag_headers(entity_tag(after, now)), (b"location", location)]
        return json_answer(status, status_document(after, now), *headers, cache=PRIVATE)


def _version(call: Call, job: JobSnapshot) -> int | None:
    """The version that must not have moved since, where the caller named a state."""
    return job.version if entity_tags(call.headers, "if-match") not in (None, ["*"]) else None


def _done(acted: Acted | GantlineError) -> Acted:
    if isinstance(acted, GantlineError):
        raise acted
    return acted

"""Acting on a job: cancel, redrive, redrive edited, delete."""

import msgspec
from starlette.responses import Response

from gantline.api.call import Call
from gantline.api.headers import entity_tags
from gantline.api.json_response import PRIVATE, JsonResponse
from gantline.api.operation import Operations
from gantline.api.requests import JobEdited, JobToSubmit
from gantline.api.views import entity_tag, status_document, status_url
from gantline.auth.action import Action
from gantline.auth.authorizer import Target
from gantline.contract.errors import (
    GantlineError,
    IllegalTransition,
    JobNotFound,
    KeyTaken,
    VersionMismatch,
)
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.status import REDRIVABLE, JobStatus
from gantline.contract.wakeup import Hint
from gantline.manager.manager import Acted


class Acting(Operations):
    async def cancel(self, call: Call) -> Response:
        job = await self._job(call)
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
        self._jobs.waiter.look()
        return await self._standing(call, job, status=200)

    async def redrive(self, call: Call) -> Response:
        job = await self._job(call)
        (acted,) = await self._jobs.manager.redrive(
            [job.job.job_id],
            tenant_id=job.job.tenant_id,
            actor=call.principal.id,
            version=_version(call, job),
        )
        if isinstance(acted, KeyTaken):
            raise await self._key_taken(call, acted)
        _done(acted)
        self._streams.look()
        self._jobs.wakeup.notify(job_id=job.job.job_id)
        return await self._standing(call, job, status=200)

    async def _key_taken(self, call: Call, taken: KeyTaken) -> KeyTaken:
        """Name the job that has the key to a caller who may read it."""
        holder = await self._access.read(taken.holder) if taken.holder else None
        is_shown = holder is not None and await self._access.may(
            call, Action.READ, Target.of(holder.job)
        )
        return KeyTaken(taken.holder, is_shown=is_shown)

    async def redrive_edited(self, call: Call) -> Response:
        job = await self._job(call)
        if job.status not in REDRIVABLE:
            raise IllegalTransition(f"A job that is {job.status} cannot be redriven.")
        old, edited = job.job, call.sent
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
            parent_job_id=old.job_id,
            # Of another payload its type makes another group, where it makes one.
            group=old.group if keeps_payload or not self._submitter.has_groups(old) else None,
        )
        key = self._submitter.request_key(call, call.raw_body, tenant_id=old.tenant_id)
        new = await self._submitter.prepare(call, asked, key, named=edited)
        return await self._submitter.accept(call, new, root=call.root)

    async def delete(self, call: Call) -> Response:
        job = await self._job(call)
        (answer,) = await self._jobs.manager.delete(
            [job.job.job_id], tenant_id=job.job.tenant_id, version=_version(call, job)
        )
        if isinstance(answer, GantlineError):
            raise answer
        return Response(status_code=204, headers={"cache-control": PRIVATE})

    async def _job(self, call: Call) -> JobSnapshot:
        """The job, if the caller may do this to it, and its ETag is the one that he has."""
        job = await self._access.job(call)
        tags = entity_tags(call.joined_headers, "if-match")
        if tags in (None, ["*"]) or entity_tag(job, self._jobs.clock.now()) in (tags or ()):
            return job
        raise VersionMismatch("The job is not in the state that If-Match names.")

    async def _standing(self, call: Call, job: JobSnapshot, *, status: int) -> Response:
        """How the job stands after what was done to it."""
        after = await self._access.read(job.job.job_id)
        if after is None:
            raise JobNotFound(job.job.job_id)
        now = self._jobs.clock.now()
        location = status_url(call.root, after.job.job_id)
        headers = {"etag": entity_tag(after, now), "location": location}
        return JsonResponse(status, status_document(after, now), headers, cache=PRIVATE)


def _version(call: Call, job: JobSnapshot) -> int | None:
    """The version that must not have moved since, where the caller named a state."""
    return (
        job.version if entity_tags(call.joined_headers, "if-match") not in (None, ["*"]) else None
    )


def _done(acted: Acted | GantlineError) -> Acted:
    if isinstance(acted, GantlineError):
        raise acted
    return acted

"""Submitting: from what was sent to a durable job, and the 202 that says where to ask about it."""

import asyncio
import copy
import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec
from msgspec import UNSET
from starlette.responses import Response

from gantline.api import headers as request_headers
from gantline.api.access import Access, SubjectMissing
from gantline.api.call import Call, ClientGone
from gantline.api.documents import AcceptedDocument, ErrorDetail
from gantline.api.parsing import decode
from gantline.api.port import DeclaredJob, Jobs
from gantline.api.problems import ApiCode, Refused
from gantline.api.requests import JobEdited, JobToSubmit
from gantline.api.responses import Responses
from gantline.api.settings import ApiSettings
from gantline.api.shares import Holder, Shares
from gantline.api.user_code import UserCode, name_of
from gantline.api.views import accepted_document, entity_tag, status_document
from gantline.auth.action import Action
from gantline.auth.authorizer import Target
from gantline.contract.envelope import ignored, read_members
from gantline.contract.errors import (
    Code,
    Forbidden,
    InvalidInput,
    JobNotFound,
    Problem,
    StoreUnavailable,
    SubmitConflict,
)
from gantline.contract.job import Job
from gantline.contract.results import Applied, Conflict, Duplicate, InsertResult
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.status import JobStatus
from gantline.contract.submission import DedupeKey, KeyKind, NewJob
from gantline.worker.handler import Handler

T = TypeVar("T")

_NO_PARENT: Final = Problem("#/parentJobId", "is no job that you may read, and was ignored")
_MOST_TENANTS_KNOWN: Final = 1000


class Submitter:
    """Take jobs in. What several endpoints share: one at a time, in batches, by async endpoints."""

    def __init__(
        self,
        jobs: Jobs,
        access: Access,
        code: UserCode,
        *,
        settings: ApiSettings,
        responses: Responses,
    ) -> None:
        self._jobs = jobs
        self._access = access
        self._code = code
        self._waits = Shares(settings.waits, "requests that wait")
        self._settings = settings
        self._responses = responses
        self._hold = timedelta(hours=settings.hold_request_key_hours)
        self._queues: dict[str, set[str]] = {}
        """Where tenants have jobs, of those for whom undeclared queues were named."""

    def responding_by(self, responses: Responses) -> "Submitter":
        """The same with other response factories."""
        other = copy.copy(self)
        other._responses = responses
        return other

    # -- preparing --------------------------------------------------------------------------------

    def find_type(self, name: str) -> DeclaredJob:
        found = self._jobs.find_type(name)
        if found is None:
            error = ErrorDetail(pointer="#/jobType", detail="is not a type that is declared")
            raise Refused(
                ApiCode.UNKNOWN_JOB_TYPE,
                f"There is no job type {name!r}. GET /api/job-types lists them.",
                errors=[error],
            )
        return found

    async def taken(
        self, call: Call, asked: JobToSubmit, body: bytes
    ) -> tuple[JobToSubmit, list[ErrorDetail]]:
        """What counts of an envelope, and the warnings about the rest of it."""
        problems = [*ignored(read_members(body))]
        if asked.parent_job_id is not None:
            tenant_id = asked.tenant_id or call.principal.tenant_id
            parent = await self._access.own_id(call, asked.parent_job_id, tenant_id)
            asked = msgspec.structs.replace(asked, parent_job_id=parent)
            problems += [] if parent else [_NO_PARENT]
        return asked, [ErrorDetail(pointer=at, detail=detail) for at, detail in problems]

    async def prepare(
        self,
        call: Call,
        asked: JobToSubmit,
        request_key: DedupeKey | None,
        *,
        named: JobToSubmit | JobEdited | None = None,
    ) -> NewJob:
        """Check what was sent against its type; raise Refused, Forbidden or InvalidInput.

        `named`: what the caller named himself, where that is not all of it.
        """
        job_type = self.find_type(asked.job_type)
        try:
            new = await self.checked(
                call, job_type, lambda: self._new_job(call, job_type, asked, request_key)
            )
        except (Refused, InvalidInput):
            # A caller who may not submit it at all learns nothing of its type.
            target = Target(
                tenant_id=asked.tenant_id or call.principal.tenant_id,
                job_type=job_type.name,
                subject_id=asked.subject_id or "",
                owner=call.principal.id,
            )
            with suppress(SubjectMissing):  # the type may make the subject of the payload
                await self._access.target(call, target, action=Action.SUBMIT)
            raise
        target = _own_target(call, new.job)
        await self._check_route(call, job_type, named or asked, target)
        if named is None and asked.group is not None:
            await self._check_group(call, job_type, asked.group, target)
        return new

    async def allow(self, call: Call, job: Job) -> None:
        """Raise unless the caller may submit this job, and in the name that it has."""
        own = _own_target(call, job)
        await self._access.target(call, own, action=Action.SUBMIT)
        if job.created_by == own.owner:
            return
        what, target = f"createdBy:{job.created_by}", Target.of(job)
        try:
            await self._access.target(call, target, action=Action.SUBMIT_FOR, what=what)
        except Forbidden as error:
            raise Forbidden(
                f"The job's createdBy is not the caller. {error.cause}",
                next_step="Leave createdBy out: then the job is the caller's own.",
            ) from None

    async def _check_route(
        self, call: Call, job_type: DeclaredJob, named: JobToSubmit | JobEdited, target: Target
    ) -> None:
        """Raise unless the caller may have the job where, and before what, he wants it."""
        queues, queue = job_type.handler.all_queues, named.queue
        is_elsewhere = queue is not None and queue not in queues
        is_first = named.priority is not None and named.priority < job_type.priority
        if not is_elsewhere and not is_first:
            return
        await self._access.target(call, target, action=Action.SUBMIT)
        what = f"queue:{queue}" if is_elsewhere else f"priority:{named.priority}"
        try:
            await self._access.target(call, target, action=Action.ROUTE, what=what)
        except Forbidden as error:
            raise Forbidden(
                f"Jobs of type {job_type.name!r} go to the queue {' or '.join(map(repr, queues))}, "
                f"with a priority from {job_type.priority} to 3. {error.cause}",
                next_step="Leave queue and priority out, or have the type declare them.",
            ) from None
        if is_elsewhere and queue is not None:
            await self._check_number_of_queues(target.tenant_id, queue)

    async def _check_group(
        self, call: Call, job_type: DeclaredJob, group: str, target: Target
    ) -> None:
        """Raise unless the caller may say in which group the job is: he could get round limits by
        making up groups. Where there are none, a group only divides his tenant's own turns."""
        limits = self._jobs.limits
        await limits.refresh()
        names = job_type.handler.job_types
        is_limited = job_type.flows is not None or any(limits.holding(name) for name in names)
        if not is_limited and not job_type.has_groups:
            return
        await self._access.target(call, target, action=Action.SUBMIT)
        try:
            await self._access.target(
                call, target, action=Action.ROUTE, what=f"group:{group[:128]}"
            )
        except Forbidden as error:
            raise Forbidden(
                f"Jobs of type {job_type.name!r} have limits, or groups that their type makes. "
                f"{error.cause}",
                next_step="Leave group out.",
            ) from None

    def has_groups(self, job: Job) -> bool:
        """Whether its type says itself in which groups its jobs are."""
        found = self._jobs.find_type(job.job_type)
        return found is not None and found.has_groups

    async def _check_number_of_queues(self, tenant_id: str, queue: str) -> None:
        """Raise Refused where a tenant has jobs in too many queues for a new one."""
        known, most = self._queues.get(tenant_id, set()), self._settings.queues_per_tenant
        if queue in known:
            return
        if not known or len(known) >= most:  # jobs of some may be gone by now
            counted = await self._jobs.store.counts(tenant_id=tenant_id)
            if len(self._queues) >= _MOST_TENANTS_KNOWN:
                self._queues.clear()
            known = self._queues[tenant_id] = {lane.queue for lane in counted}
        if queue not in known and len(known) >= most:
            raise _invalid("#/queue", f"is new, and a tenant may have jobs in {most} queues")
        known.add(queue)

    async def checked(self, call: Call, job_type: DeclaredJob, check: Callable[[], T]) -> T:
        """Call what reads or makes a payload of this type, with checks of the user's own."""
        name = f"what checks the payload of {name_of(job_type.handler.function)}"
        return await self._code.call(check, name=name, tenant_id=call.principal.tenant_id)

    def _new_job(
        self,
        call: Call,
        job_type: DeclaredJob,
        asked: JobToSubmit,
        request_key: DedupeKey | None,
    ) -> NewJob:
        principal = call.principal
        given = {
            "tenant": principal.tenant_id,
            "correlation_id": call.correlation_id,
            "trace_context": request_headers.trace_context(call.joined_headers),
            **asked.options(),
            "owner": asked.created_by or principal.id,
        }
        payload = read_payload(job_type.handler, asked.body, asked.payload_version)
        return job_type.prepare(payload, request_key=request_key, **given)

    def request_key(
        self, call: Call, content: bytes, *, tenant_id: str, part: str = ""
    ) -> DedupeKey | None:
        """The record that makes a repeated request find the job of the first one."""
        key = request_headers.idempotency_key(call.joined_headers)
        if key is None:
            return None
        what = f"{call.method} {call.path}\n".encode()
        return DedupeKey(
            KeyKind.REQUEST,
            tenant_id,
            call.principal.id,
            key + part,
            hashlib.sha256(what + _canonical(content)).digest(),
            self._hold,
        )

    # -- accepting --------------------------------------------------------------------------------

    async def accept(
        self, call: Call, new: NewJob, *, root: str, warnings: Sequence[ErrorDetail] = ()
    ) -> Response:
        """Store a prepared job, if the caller may submit it; wait for its end, if he prefers."""
        await self.allow(call, new.job)
        result = await self._jobs.submit_prepared(new)
        accepted, is_readable = await self.accepted(call, new, result, root=root, warnings=warnings)
        most = self._settings.longest_wait_seconds
        seconds = request_headers.wait_seconds(call.joined_headers, most)
        headers = {"vary": "Prefer"}
        if seconds is not None:
            headers["preference-applied"] = f"wait={int(seconds)}"
            ended = await self._waited(call, accepted.job_id, seconds) if is_readable else None
            if ended is not None:
                return self._ended(ended, accepted, headers)
        headers |= {"location": accepted.status_url, "retry-after": self._retry_after(new)}
        return self._responses.submitted(accepted, headers)

    async def _waited(self, call: Call, job_id: UUID, seconds: float) -> JobSnapshot | None:
        """Wait for the end of a job while the client is there; raise ClientGone."""
        holder = Holder.of(call.principal)
        try:
            self._waits.take(holder)
        except Refused:
            return None
        call.turn.end()
        waiting = asyncio.create_task(self._ended_within(job_id, seconds))
        leaving = asyncio.create_task(call.until_gone())
        try:
            await asyncio.wait({waiting, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                raise ClientGone
            return waiting.result()
        finally:
            self._waits.give_back(holder)
            waiting.cancel()
            leaving.cancel()
            await asyncio.gather(waiting, leaving, return_exceptions=True)

    async def _ended_within(self, job_id: UUID, seconds: float) -> JobSnapshot | None:
        try:
            job = await self._jobs.waiter.wait(job_id, seconds)
        except (JobNotFound, StoreUnavailable):
            return None  # removed, or the application is being closed
        return job if job is not None and job.status.is_terminal else None

    async def accepted(
        self,
        call: Call,
        new: NewJob,
        result: InsertResult,
        *,
        root: str,
        warnings: Sequence[ErrorDetail] = (),
    ) -> tuple[AcceptedDocument, bool]:
        """The document for what the store said, and whether the caller may read that job."""
        document, is_readable = await self._answered(call, new, result, root)
        if warnings:
            document = msgspec.structs.replace(document, warnings=[*warnings])
        return document, is_readable

    async def _answered(
        self, call: Call, new: NewJob, result: InsertResult, root: str
    ) -> tuple[AcceptedDocument, bool]:
        match result:
            case Applied():
                # Needed only where the caller would wait.
                is_readable = "prefer" in call.joined_headers and await self._access.may(
                    call, Action.READ, Target.of(new.job)
                )
                document = accepted_document(
                    root, new.job.job_id, new.job.subject_id, JobStatus.QUEUED, duplicate=False
                )
                return document, is_readable
            case Duplicate():
                return await self._duplicate(call, result, new, root)
            case Conflict(by=KeyKind.REQUEST):
                raise Refused(
                    ApiCode.IDEMPOTENCY_KEY_REUSED,
                    "The Idempotency-Key was used before for another request.",
                )
            case Conflict():
                raise _taken(result.by)

    async def _duplicate(
        self, call: Call, found: Duplicate, new: NewJob, root: str
    ) -> tuple[AcceptedDocument, bool]:
        """Of a job of the caller's that he may not read, a repeated submit shows its id alone.

        Another's, that he may not read, is a conflict like one with another payload: the answer
        must not show that the payload is the same.
        """
        job_id, subject, status = found.existing, new.job.subject_id, None
        existing = await self._access.read(job_id)
        is_readable = existing is not None and await self._access.may(
            call, Action.READ, Target.of(existing.job)
        )
        if existing is not None and is_readable:
            subject, status = existing.job.subject_id, existing.status
        elif existing is not None and existing.job.created_by != new.job.created_by:
            raise _taken(found.by)
        return accepted_document(root, job_id, subject, status, duplicate=True), is_readable

    def _ended(
        self, job: JobSnapshot, accepted: AcceptedDocument, headers: dict[str, str]
    ) -> Response:
        now = self._jobs.clock.now()
        headers |= {"content-location": accepted.status_url, "etag": entity_tag(job, now)}
        document = status_document(job, now)
        if accepted.warnings is not UNSET:
            document = msgspec.structs.replace(document, warnings=accepted.warnings)
        return self._responses.status(document, headers)

    def _retry_after(self, new: NewJob) -> str:
        waits = int(min(new.delay.total_seconds(), 3600.0))
        return str(max(waits, self._settings.retry_after_seconds))


def read_payload(handler: Handler, body: bytes, version: int | None) -> Any:
    """Read a payload by its type; one of an older version is upgraded first."""
    version = handler.version if version is None else version
    if version > handler.version:
        raise _invalid("#/payloadVersion", f"is newer than {handler.version}, the newest known")
    try:
        body = handler.upgraded(body, version)
    except Exception as error:
        name = type(error).__name__
        raise _invalid("#/payload", f"cannot be upgraded from version {version} ({name})") from None
    return handler.codec.decode(body)


def _own_target(call: Call, job: Job) -> Target:
    """A job to be submitted, as the caller's own: in whose name it is, is another question."""
    return msgspec.structs.replace(Target.of(job), owner=call.principal.id)


def _taken(by: str | None) -> Refused | SubmitConflict:
    """The id or the key is another job's; `by` is what the store says."""
    if by in (None, KeyKind.ID):
        return SubmitConflict.of_id()
    return Refused(
        Code.IDEMPOTENCY_CONFLICT,
        "The idempotency key is taken by another job: one with another payload, or one that you "
        "may not read. Use a new key.",
    )


def _invalid(pointer: str, detail: str) -> Refused:
    error = ErrorDetail(pointer=pointer, detail=detail)
    return Refused(Code.VALIDATION_ERROR, f"{pointer}: {detail}.", errors=[error])


def _canonical(content: bytes) -> bytes:
    """The same for the same JSON, whatever the order of keys or spacing; raise Refused.

    It looks at all of it, also at what is passed over where the job itself is read.
    """
    return msgspec.json.encode(decode(Any, content or b"null"), order="deterministic")

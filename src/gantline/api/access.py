"""Access: finding what an operation is about, and asking the gate whether the caller may.

Another tenant's job is answered like one that is not there, after the same calls of the store.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar
from uuid import UUID

import msgspec

from gantline.api.call import Call
from gantline.api.documents import ErrorDetail
from gantline.api.port import Jobs
from gantline.api.problems import ApiCode, Refused
from gantline.auth.action import INSTALLATION_WIDE, Action
from gantline.auth.authorizer import Target
from gantline.auth.gate import Decision, Gate
from gantline.contract.errors import Code, Forbidden, JobNotFound
from gantline.contract.query import Visibility
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.submission import external_key
from gantline.why.explain import View


class OfType(Protocol):
    """What is shown by job type: a row of counts, a declared type."""

    @property
    def job_type(self) -> str: ...


_OfType = TypeVar("_OfType", bound=OfType)


class SubjectMissing(Refused):
    """A caller who may submit this, had it a subject."""

    def __init__(self) -> None:
        error = ErrorDetail(pointer="#/subjectId", detail="is required here")
        detail = "A job needs a subject here: what it is about."
        super().__init__(Code.VALIDATION_ERROR, detail, errors=[error])


class Access:
    """The second question of every operation: may this principal do this to that?"""

    def __init__(self, jobs: Jobs, gate: Gate) -> None:
        self._jobs = jobs
        self._gate = gate

    async def job(self, call: Call) -> JobSnapshot:
        """The job that the path names; raise Refused or a GantlineError if the caller may not."""
        action = call.right
        tenant_id = call.principal.tenant_id
        # Another tenant's is always read, so that it takes no less time than one that is not there.
        kept = self._jobs.snapshots.find(call.job_id, tenant_id) if action is Action.READ else None
        job = kept or await self._find(call.job_id, tenant_id)
        job_id = call.job_id if job is None else job.job.job_id
        verdict = await self._gate.to_job(call.principal, action, job_id, job, asker=call.asker)
        call.is_decided = True
        if verdict is Decision.ALLOWED and job is not None:
            return job
        if verdict is Decision.FORBIDDEN:
            raise forbidden(action)
        raise await self._not_there(call, job_id, job)

    async def _find(self, job_id: UUID, tenant_id: str) -> JobSnapshot | None:
        job = await self.read(job_id)
        if job is None or job.job.tenant_id != tenant_id:
            # It may be the external id of a job of this very tenant, whoever has it as id.
            (own,) = await self._jobs.store.held([external_key(tenant_id, job_id)])
            job = await self.read(own) if own is not None else job
        return job

    async def own_id(self, call: Call, job_id: UUID, tenant_id: str) -> UUID | None:
        """The id of a job of this tenant that the caller may read; of all others None."""
        job = await self._find(job_id, tenant_id)
        if job is None or job.job.tenant_id != tenant_id:
            return None
        return job.job.job_id if await self.may(call, Action.READ, Target.of(job.job)) else None

    async def jobs(
        self, call: Call, job_ids: Sequence[UUID], *, tenant_id: str
    ) -> list[JobSnapshot]:
        """Those jobs that the caller may do this to; that others were named is audited."""
        found: list[JobSnapshot] = []
        named = await self._jobs.manager.get(job_ids, tenant_id=tenant_id)
        for job_id, job in zip(job_ids, named, strict=True):
            if job is not None and await self.may(call, call.right, Target.of(job.job)):
                found.append(job)
            else:
                await self._gate.to_job(call.principal, call.right, job_id, job, asker=call.asker)
        return found

    async def allowed(self, call: Call, job: JobSnapshot) -> None:
        """Raise unless the caller may do this to a job that was found; it is audited."""
        verdict = await self._gate.to_job(
            call.principal, call.right, job.job.job_id, job, asker=call.asker
        )
        if verdict is not Decision.ALLOWED:
            raise forbidden(call.right)

    async def read(self, job_id: UUID) -> JobSnapshot | None:
        return (await self._jobs.snapshots.get([job_id], tenant_id=None))[0]

    async def _not_there(
        self, call: Call, job_id: UUID, job: JobSnapshot | None
    ) -> Refused | JobNotFound:
        """410 for those who may know that there was a job; 404 for everybody else."""
        (key,) = await self._jobs.store.request_keys([job_id])
        if job is None and key is not None:
            principal = call.principal
            own = (key.tenant_id, key.scope) == (principal.tenant_id, principal.id)
            target = Target(tenant_id=key.tenant_id, owner=key.scope)
            if own or await self.may(call, Action.READ, target):
                return Refused(ApiCode.JOB_PURGED, f"The job {job_id} has ended and was removed.")
        return JobNotFound(job_id)

    async def target(
        self,
        call: Call,
        target: Target,
        *,
        action: Action | None = None,
        what: str = "",
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Raise unless the caller may do this to what is no stored job.

        `action`: where it is not the operation's own right that is asked for. Raise SubjectMissing
        where a subject is all that a submit lacks.
        """
        action = action or call.right
        verdict = await self._gate.to_target(
            call.principal, action, target, what=what, details=details, asker=call.asker
        )
        call.is_decided = call.is_decided or verdict is not Decision.ALLOWED
        if verdict is Decision.HIDDEN:
            raise Refused(ApiCode.NOT_FOUND, "There is no such tenant.")
        if verdict is not Decision.ALLOWED:
            if action is Action.SUBMIT and await self._lacks_only_subject(call, target):
                raise SubjectMissing
            raise forbidden(action)

    async def _lacks_only_subject(self, call: Call, target: Target) -> bool:
        if target.subject_id or not getattr(self._gate.authorizer, "subject_required", False):
            return False
        any_subject = msgspec.structs.replace(target, subject_id="-")
        return await self.may(call, Action.SUBMIT, any_subject)

    async def begun(
        self, call: Call, tenant_id: str, *, what: str, details: Mapping[str, Any]
    ) -> None:
        """Audit an action on many jobs before it begins."""
        target = Target(tenant_id=tenant_id)
        await self._gate.record_bulk(
            call.principal, call.right, target, what=what, details=details, asker=call.asker
        )

    async def may(self, call: Call, action: Action, target: Target) -> bool:
        """Whether the caller may, without an audit entry: for what is left out, not refused."""
        return await self._gate.authorizer.may(call.principal, action, target)

    async def view(self, call: Call, tenant_id: str) -> View:
        """How much of what other jobs do the caller may know, where he asks why one waits."""
        if await self.may(call, Action.READ_WORKERS, Target(tenant_id=call.principal.tenant_id)):
            return View.INSTALLATION
        counts = self._gate.authorizer.scope(call.principal, Action.STATISTICS)
        # Who may count some types only, may not count what is ahead: it may be of any type.
        if counts.job_types is None and await self.may(
            call, Action.STATISTICS, Target(tenant_id=tenant_id)
        ):
            return View.TENANT
        return View.JOB

    async def visible_rows(
        self,
        call: Call,
        tenant_id: str,
        rows: Iterable[_OfType],
        *,
        action: Action | None = None,
    ) -> list[_OfType]:
        """The rows, each of one job type, that the caller may see."""
        action = action or call.right
        types = self._gate.authorizer.scope(call.principal, action).job_types
        return [
            row
            for row in rows
            if (types is None or row.job_type in types)
            and await self.may(call, action, Target(tenant_id=tenant_id, job_type=row.job_type))
        ]

    async def tenant(self, call: Call, named: str | None) -> str:
        """The tenant that is meant: the caller's own, or another one that he may name."""
        tenant_id = named or call.principal.tenant_id
        await self.target(call, Target(tenant_id=tenant_id))
        return tenant_id

    async def visible(self, call: Call, named: str | None) -> tuple[str, Visibility]:
        """The tenant that is meant, and which of its jobs the caller may do this to.

        A caller who may do it to none at all is refused.
        """
        tenant_id = named or call.principal.tenant_id
        scope = self.scope(call)
        if scope.tenant_id not in (None, tenant_id) or scope.is_blind:
            await self.target(call, Target(tenant_id=tenant_id))
        return tenant_id, scope

    def scope(self, call: Call) -> Visibility:
        """To which jobs the caller may do this."""
        return self._gate.authorizer.scope(call.principal, call.right)


def forbidden(action: Action) -> Forbidden:
    where = (
        " for all tenants, as a key made with --system has it"
        if action in INSTALLATION_WIDE
        else ""
    )
    return Forbidden(f"This needs the right {action}{where}.")

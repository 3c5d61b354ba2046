"""Access: finding what an operation is about, and asking the gate whether the caller may.

Another tenant's job is answered like one that is not there, after the same calls of the store.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar
from uuid import UUID

from gantline.api.call import Call
from gantline.api.port import Jobs
from gantline.api.problems import ApiCode, Refused
from gantline.auth.action import INSTALLATION_WIDE, Action
from gantline.auth.authorizer import Target
from gantline.auth.gate import Decision, Gate
from gantline.contract.errors import Forbidden, JobNotFound
from gantline.contract.query import Visibility
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.submission import external_key


class OfType(Protocol):
    """What is shown by job type: a row of counts, a declared type."""

    @property
    def job_type(self) -> str: ...


_OfType = TypeVar("_OfType", bound=OfType)
ReadJob = Callable[[UUID], Awaitable[JobSnapshot | None]]


class JobCache:
    """Read a job; one that has ended from memory, where it was read a moment ago. Off by default.

    What has ended changes only by a redrive or a delete: one made here is seen at once, one made
    elsewhere when the moment is over.
    """

    def __init__(self, jobs: Jobs, *, seconds: float, most: int) -> None:
        self._jobs = jobs
        self._seconds = seconds
        self._most = most
        self._kept: dict[UUID, tuple[float, JobSnapshot]] = {}

    async def get(self, job_id: UUID) -> JobSnapshot | None:
        if self._seconds <= 0:
            return (await self._jobs.store.get([job_id], tenant_id=None))[0]
        kept = self._kept.get(job_id)
        if kept is not None and kept[0] > self._jobs.clock.monotonic():
            return kept[1]
        (job,) = await self._jobs.store.get([job_id], tenant_id=None)
        if job is not None and job.status.is_terminal:
            self._keep(job_id, job)
        return job

    def _keep(self, job_id: UUID, job: JobSnapshot) -> None:
        if len(self._kept) >= self._most:
            self._kept.clear()  # it is full of what is about to expire anyhow
        self._kept[job_id] = (self._jobs.clock.monotonic() + self._seconds, job)

    def forget(self, job_id: UUID) -> None:
        self._kept.pop(job_id, None)


class Access:
    """The second question of every operation: may this principal do this to that?"""

    def __init__(self, jobs: Jobs, gate: Gate, cache: JobCache) -> None:
        self._jobs = jobs
        self._gate = gate
        self._cache = cache

    async def job(self, call: Call) -> JobSnapshot:
        """The job that the path names; raise Refused or a GantlineError if the caller may not."""
        action = call.right
        read = self._cache.get if action is Action.READ else self.read
        job = await self._find(call.job_id, call.principal.tenant_id, read)
        job_id = call.job_id if job is None else job.job.job_id
        verdict = await self._gate.to_job(call.principal, action, job_id, job, asker=call.asker)
        call.is_decided = True
        if verdict is Decision.ALLOWED and job is not None:
            return job
        if verdict is Decision.FORBIDDEN:
            raise forbidden(action)
        raise await self._not_there(call, job_id, job)

    async def _find(self, job_id: UUID, tenant_id: str, read: ReadJob) -> JobSnapshot | None:
        job = await read(job_id)
        if job is None or job.job.tenant_id != tenant_id:
            # It may be the external id of a job of this very tenant, whoever has it as id.
            (own,) = await self._jobs.store.held([external_key(tenant_id, job_id)])
            job = await read(own) if own is not None else job
        return job

    async def own_id(self, call: Call, job_id: UUID, tenant_id: str) -> UUID | None:
        """The id of a job of this tenant that the caller may read; of all others None."""
        job = await self._find(job_id, tenant_id, self.read)
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
        return (await self._jobs.store.get([job_id], tenant_id=None))[0]

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

        `action`: where it is not the operation's own right that is asked for.
        """
        action = action or call.right
        verdict = await self._gate.to_target(
            call.principal, action, target, what=what, details=details, asker=call.asker
        )
        call.is_decided = call.is_decided or verdict is not Decision.ALLOWED
        if verdict is Decision.HIDDEN:
            raise Refused(ApiCode.NOT_FOUND, "There is no such tenant.")
        if verdict is not Decision.ALLOWED:
            raise forbidden(action)

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

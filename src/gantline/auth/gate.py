"""The gate: decides whether a principal may act, and writes the audit entry of the decision."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

import msgspec

from gantline.auth.action import Action
from gantline.auth.authorizer import Authorizer, Target
from gantline.auth.principal import Principal
from gantline.contract.audit import AuditEntry, AuditSink
from gantline.contract.clock import Clock
from gantline.contract.errors import NotAuthenticated
from gantline.contract.snapshot import JobSnapshot


class Decision(StrEnum):
    ALLOWED = "allowed"
    FORBIDDEN = "forbidden"
    """403: it is in the principal's tenant, whose members may know that it exists."""
    HIDDEN = "hidden"
    """404: it is not there, or in a tenant whose jobs the principal may not know of."""


class Asker(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request comes from, for the audit log."""

    correlation_id: str = ""
    client: str = ""
    operation: str = ""
    """What exactly is asked for: `cancelJob`."""


# Reading changes nothing, and a job has the name of its submitter.
_AUDITED_ONLY_WHEN_REFUSED: Final = frozenset(
    {
        Action.READ,
        Action.READ_PAYLOAD,
        Action.READ_ERRORS,
        Action.STATISTICS,
        Action.READ_TYPES,
        Action.READ_SCHEDULES,
        Action.READ_AUDIT,
        Action.READ_WORKERS,
        Action.SUBMIT,
        Action.ROUTE,
    }
)
_UNKNOWN_ASKER: Final = Asker()


class Gate:
    """Asks the authorizer, and audits what was refused and what was allowed to change.

    A job is read by `store.get([id], tenant_id=None)` and passed in as it came, None too: so the
    same calls are made whether it is missing, another tenant's, or not allowed.
    """

    def __init__(self, authorizer: Authorizer, audit: AuditSink, *, clock: Clock) -> None:
        self.authorizer = authorizer
        self._audit = audit
        self._clock = clock

    async def to_job(
        self,
        principal: Principal,
        action: Action,
        job_id: UUID,
        job: JobSnapshot | None,
        *,
        asker: Asker = _UNKNOWN_ASKER,
    ) -> Decision:
        """Decide about one job, as it was read. A missing one is audited too."""
        target = Target.of(job.job) if job else Target(tenant_id="")
        decision = await self._decide(principal, action, target) if job else Decision.HIDDEN
        await self._record(principal, action, decision, target, asker=asker, job_id=job_id)
        return decision

    async def to_target(
        self,
        principal: Principal,
        action: Action,
        target: Target,
        *,
        what: str = "",
        details: Mapping[str, Any] | None = None,
        asker: Asker = _UNKNOWN_ASKER,
    ) -> Decision:
        """Decide about anything but a stored job: a submit, a tenant's statistics, a queue, a key.

        `what` names it for the audit log: `queue:documents`; `details` say how.
        """
        decision = await self._decide(principal, action, target)
        await self._record(
            principal, action, decision, target, asker=asker, what=what, details=details
        )
        return decision

    async def record_bulk(
        self,
        principal: Principal,
        action: Action,
        target: Target,
        *,
        what: str,
        details: Mapping[str, Any],
        asker: Asker,
    ) -> None:
        """Audit an action on many jobs before it begins; each job is decided about as well."""
        await self._record(
            principal, action, Decision.ALLOWED, target, asker=asker, what=what, details=details
        )

    async def record_unauthenticated(
        self, action: str, error: NotAuthenticated, *, asker: Asker
    ) -> None:
        """Audit a request whose sender could not be authenticated."""
        await self._audit.record(
            AuditEntry(
                at=self._clock.now(),
                actor="",
                action=action,
                operation=asker.operation,
                outcome="unauthenticated",
                what=error.code,
                correlation_id=asker.correlation_id,
                client=asker.client,
            )
        )

    async def record_refused(
        self, principal: Principal, action: Action, decision: Decision, *, what: str, asker: Asker
    ) -> None:
        """Audit what was refused for another reason than a right, or was not there."""
        here = Target(tenant_id=principal.tenant_id)
        await self._record(principal, action, decision, here, asker=asker, what=what)

    async def _decide(self, principal: Principal, action: Action, target: Target) -> Decision:
        if await self.authorizer.may(principal, action, target):
            return Decision.ALLOWED
        if principal.is_system or target.tenant_id == principal.tenant_id:
            return Decision.FORBIDDEN
        return Decision.HIDDEN

    async def _record(
        self,
        principal: Principal,
        action: Action,
        decision: Decision,
        target: Target,
        *,
        asker: Asker,
        job_id: UUID | None = None,
        what: str = "",
        details: Mapping[str, Any] | None = None,
    ) -> None:
        if decision is Decision.ALLOWED and action in _AUDITED_ONLY_WHEN_REFUSED:
            return
        await self._audit.record(
            AuditEntry(
                at=self._clock.now(),
                actor=principal.id,
                actor_tenant=principal.tenant_id,
                action=action,
                operation=asker.operation,
                outcome=decision,
                tenant_id=target.tenant_id,
                job_id=job_id,
                job_type=target.job_type or "",
                subject_id=target.subject_id,
                what=what,
                details=details or {},
                correlation_id=asker.correlation_id,
                client=asker.client,
            )
        )

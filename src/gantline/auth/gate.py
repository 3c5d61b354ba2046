"""The gate: the one question that every endpoint asks before it acts, with its audit entry."""

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


class Verdict(StrEnum):
    ALLOWED = "allowed"
    FORBIDDEN = "forbidden"
    """403: it is in the principal's tenant, whose members may know that it exists."""
    HIDDEN = "hidden"
    """404: it is not there, or in a tenant of which not even that may be known."""


class Asker(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request comes from, for the audit log."""

    correlation_id: str = ""
    client: str = ""
    operation: str = ""
    """What exactly is asked for: `cancelJob`."""


# Reading changes nothing, and a job names who submitted it.
_AUDITED_ONLY_WHEN_REFUSED: Final = frozenset(
    {
        Action.READ,
        Action.READ_PAYLOAD,
        Action.READ_ERRORS,
        Action.STATISTICS,
        Action.READ_TYPES,
        Action.READ_SCHEDULES,
        Action.READ_AUDIT,
        Action.SUBMIT,
    }
)
_UNKNOWN: Final = Asker()


class Gate:
    """Ask the authorizer, and write down what was refused and what was allowed to change.

    A job is read by `store.get([id], tenant_id=None)` and handed in as it came, None too: so the
    same calls are made whether it is missing, another tenant's, or merely not allowed.
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
        asker: Asker = _UNKNOWN,
    ) -> Verdict:
        """Decide about one job, as it was read. Asking for one that is not there is audited too."""
        target = Target.of(job.job) if job else Target(tenant_id="")
        verdict = await self._verdict(principal, action, target) if job else Verdict.HIDDEN
        await self._record(principal, action, verdict, target, asker=asker, job_id=job_id)
        return verdict

    async def to_target(
        self,
        principal: Principal,
        action: Action,
        target: Target,
        *,
        what: str = "",
        details: Mapping[str, Any] | None = None,
        asker: Asker = _UNKNOWN,
    ) -> Verdict:
        """Decide about what is no stored job: a submit, a tenant's statistics, a queue, a key.

        `what` names it for the audit log: `queue:documents`; `details` say how.
        """
        verdict = await self._verdict(principal, action, target)
        await self._record(
            principal, action, verdict, target, asker=asker, what=what, details=details
        )
        return verdict

    async def begun(
        self,
        principal: Principal,
        action: Action,
        target: Target,
        *,
        what: str,
        details: Mapping[str, Any],
        asker: Asker,
    ) -> None:
        """Write down what is about to be done to many, each of which is asked for as well."""
        await self._record(
            principal, action, Verdict.ALLOWED, target, asker=asker, what=what, details=details
        )

    async def nobody(self, action: str, error: NotAuthenticated, *, asker: Asker) -> None:
        """Write down that somebody could not say who he is."""
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

    async def _verdict(self, principal: Principal, action: Action, target: Target) -> Verdict:
        if await self.authorizer.may(principal, action, target):
            return Verdict.ALLOWED
        if principal.is_system or target.tenant_id == principal.tenant_id:
            return Verdict.FORBIDDEN
        return Verdict.HIDDEN

    async def _record(
        self,
        principal: Principal,
        action: Action,
        verdict: Verdict,
        target: Target,
        *,
        asker: Asker,
        job_id: UUID | None = None,
        what: str = "",
        details: Mapping[str, Any] | None = None,
    ) -> None:
        if verdict is Verdict.ALLOWED and action in _AUDITED_ONLY_WHEN_REFUSED:
            return
        await self._audit.record(
            AuditEntry(
                at=self._clock.now(),
                actor=principal.id,
                actor_tenant=principal.tenant_id,
                action=action,
                operation=asker.operation,
                outcome=verdict,
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

"""The authorizer port, and the default: same tenant, and own job, granted subject or a role."""

from typing import Final, Protocol

import msgspec

from gantline.auth.action import INSTALLATION_WIDE, Action
from gantline.auth.principal import Principal, Role
from gantline.contract.job import Job
from gantline.contract.query import NOTHING_VISIBLE, Visibility


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What is acted on. For a job all fields are set; for a tenant only its id."""

    tenant_id: str
    job_type: str | None = None
    subject_id: str = ""
    owner: str = ""

    @classmethod
    def of(cls, job: Job) -> "Target":
        return cls(
            tenant_id=job.tenant_id,
            job_type=job.job_type,
            subject_id=job.subject_id,
            owner=job.created_by,
        )


class Authorizer(Protocol):
    """Decides what a principal may do. `scope` and `may` must agree on every job."""

    async def may(self, principal: Principal, action: Action, target: Target) -> bool:
        """Whether this principal may do this action to the target."""
        ...

    def scope(self, principal: Principal, action: Action) -> Visibility:
        """Return the jobs to which `may` would say yes; it narrows a filter before it is paged."""
        ...


_OF_ONES_OWN: Final = frozenset(
    {Action.READ, Action.READ_PAYLOAD, Action.CANCEL, Action.REDRIVE, Action.DELETE}
)
_VIEWER: Final = frozenset(
    {Action.READ, Action.STATISTICS, Action.READ_TYPES, Action.READ_SCHEDULES}
)
_OPERATOR: Final = (
    _VIEWER
    | _OF_ONES_OWN
    | {
        Action.SUBMIT,
        Action.ROUTE,
        Action.MANAGE_QUEUES,
        Action.MANAGE_TYPES,
        Action.MANAGE_WEBHOOKS,
        Action.READ_WORKERS,
    }
    | {Action.MANAGE_SCHEDULES, Action.READ_ERRORS}
)
_ADMIN: Final = _OPERATOR | {Action.SUBMIT_FOR, Action.MANAGE_KEYS, Action.READ_AUDIT}
_BY_ROLE: Final = {Role.VIEWER: _VIEWER, Role.OPERATOR: _OPERATOR, Role.ADMIN: _ADMIN}
# Shown type by type, so that a principal of a few types gets those.
_SHOWN_BY_TYPE: Final = frozenset({Action.STATISTICS, Action.READ_TYPES, Action.READ_SCHEDULES})


class DefaultAuthorizer:
    """Same tenant and (own job, or granted subject, or a role that allows it).

    Only an admin submits in somebody else's name. Another tenant is open to a principal of the
    system only, and only by a role; so is what touches every tenant.

    With `subject_required` nobody submits a job without a subject, and one that has none is
    nobody's own: only a role opens it.
    """

    subject_required = False

    def __init__(self, *, subject_required: bool = False) -> None:
        self.subject_required = subject_required

    async def may(self, principal: Principal, action: Action, target: Target) -> bool:
        if not (_has_scope(principal, action) and _has_type(principal, action, target)):
            return False
        if action is Action.SUBMIT and target.owner != principal.id:
            return False
        lacks_subject = self.subject_required and not target.subject_id
        if action is Action.SUBMIT and lacks_subject and target.job_type is not None:
            return False
        if _allows_by_role(principal, action):
            return principal.is_system or target.tenant_id == principal.tenant_id
        if action in _OF_ONES_OWN and lacks_subject:
            return False
        return target.tenant_id == principal.tenant_id and _allows_without_role(
            principal, action, target
        )

    def scope(self, principal: Principal, action: Action) -> Visibility:
        if not _has_scope(principal, action):
            return NOTHING_VISIBLE
        if _allows_by_role(principal, action):
            tenant = None if principal.is_system else principal.tenant_id
            return Visibility(tenant_id=tenant, job_types=principal.job_types)
        if action is Action.READ_TYPES:
            return Visibility(tenant_id=principal.tenant_id, job_types=principal.job_types)
        if action not in _OF_ONES_OWN:
            return NOTHING_VISIBLE
        return Visibility(
            tenant_id=principal.tenant_id,
            job_types=principal.job_types,
            owner=principal.id,
            subjects=principal.subjects,
            subject_required=self.subject_required,
        )


def _has_scope(principal: Principal, action: Action) -> bool:
    return principal.scopes is None or action in principal.scopes


def _has_type(principal: Principal, action: Action, target: Target) -> bool:
    if principal.job_types is None:
        return True
    if target.job_type is None:
        return action in _SHOWN_BY_TYPE
    return target.job_type in principal.job_types


def _allows_by_role(principal: Principal, action: Action) -> bool:
    if action in INSTALLATION_WIDE and not principal.is_system:
        return False
    return any(action in _BY_ROLE[role] for role in principal.roles)


def _allows_without_role(principal: Principal, action: Action, target: Target) -> bool:
    """Allow what needs no role: to submit, to list job types, to act on one's own jobs."""
    if action in (Action.SUBMIT, Action.READ_TYPES):
        return True
    return action in _OF_ONES_OWN and _is_own(principal, target)


def _is_own(principal: Principal, target: Target) -> bool:
    if target.owner and target.owner == principal.id:
        return True
    return bool(target.subject_id) and target.subject_id in principal.subjects

"""The principal: who a request comes from, with all that the authorizer needs."""

from enum import StrEnum

import msgspec

from gantline.auth.action import Action
from gantline.auth.rate_limit import RateLimit


class Role(StrEnum):
    """A role in a tenant; each may do what the one before may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """A sender whose credentials were checked. Holds no secret, so it may be logged.

    Roles widen what is seen from the principal's own jobs to its whole tenant; `scopes` and
    `job_types` only ever narrow what roles, ownership and granted subjects allow.
    """

    id: str
    """`key:<key id>`, `user:<sub>`: recorded as a job's createdBy, shown in the audit log."""
    tenant_id: str
    roles: frozenset[Role] = frozenset()
    """In its own tenant. Without any it sees its own jobs, and those of granted subjects."""
    scopes: frozenset[Action] | None = None
    """What it may do at all; None: no narrowing."""
    subjects: frozenset[str] = frozenset()
    """The subjects that were granted to it."""
    job_types: frozenset[str] | None = None
    """The job types that it may use and see; None: all."""
    rate_limit: RateLimit | None = None
    """How many requests it may send; None: the limit for all."""
    is_system: bool = False
    """Operates the installation: its roles hold in every tenant, so it may name another one."""

"""Delegation: nobody gives away more than he has."""

from collections.abc import Set as AbstractSet
from typing import Final, TypeVar

from gantline.auth.api_key import KeyGrant
from gantline.auth.principal import Principal, Role

T = TypeVar("T")

_RANKS: Final = {role: rank for rank, role in enumerate(Role, start=1)}


def may_grant(principal: Principal, grant: KeyGrant) -> bool:
    """Tell whether a key made by this principal would be able to do only what he can do himself.

    That he may make keys at all is the authorizer's to say.
    """
    tenant_is_his = principal.is_system or grant.tenant_id == principal.tenant_id
    sees_all = bool(principal.roles)
    return (
        tenant_is_his
        and (principal.is_system or not grant.is_system)
        and _rank(grant.roles) <= _rank(principal.roles)
        and _is_within(grant.scopes, principal.scopes)
        and _is_within(grant.job_types, principal.job_types)
        and (sees_all or grant.subjects <= principal.subjects)
        and (principal.rate_limit is None or principal.rate_limit.allows(grant.rate_limit))
    )


def _rank(roles: AbstractSet[Role]) -> int:
    return max((_RANKS[role] for role in roles), default=0)


def _is_within(granted: AbstractSet[T] | None, held: AbstractSet[T] | None) -> bool:
    """None means everything."""
    return held is None or (granted is not None and granted <= held)

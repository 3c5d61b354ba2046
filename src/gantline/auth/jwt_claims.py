"""Maps the claims of a token to a principal, as the operator has configured."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gantline.auth.action import Action
from gantline.auth.api_key import MOST_NAMES
from gantline.auth.principal import Principal, Role
from gantline.contract.errors import InvalidCredentials
from gantline.contract.text import name_problem

Claim = str | tuple[str, ...]
"""The name of a claim; a tuple leads into nested ones: `("realm_access", "roles")`."""

_ID_LIMIT: Final = 256
_TENANT_LIMIT: Final = 128
_NAME_LIMIT: Final = 512


class ClaimMapping(msgspec.Struct, frozen=True, kw_only=True):
    """Which claim means what. Names in a token that are not mapped give no right.

    A claim with several values is a list, or one text with blanks between them.
    """

    id: Claim = "sub"
    """Who it is: `oid` where that of Entra ID shall be, or any other that is a text and stays."""
    id_prefix: str = "user"
    """Before it; use another for each issuer, whose users may have the same names."""
    tenant: Claim | None = "tenant"
    default_tenant: str | None = None
    """For tokens without the claim; None refuses them."""
    roles: Claim | None = "roles"
    role_names: Mapping[str, Role] = msgspec.field(
        default_factory=lambda: {role.value: role for role in Role}
    )
    system_role: str | None = None
    """The role of those who operate the installation; None: no token can have it."""
    scopes: Claim | None = None
    """None: tokens are not narrowed. With a claim, one that lacks it may do nothing."""
    subjects: Claim | None = "subjects"
    job_types: Claim | None = None

    def principal(self, claims: Mapping[str, Any]) -> Principal:
        """Read the claims of a token that was checked; raise InvalidCredentials."""
        roles = _read_names(claims, self.roles)
        return Principal(
            id=_check_name(
                f"{self.id_prefix}:", _read_claim(claims, self.id), _ID_LIMIT, _spell(self.id)
            ),
            tenant_id=self._tenant_of(claims),
            roles=frozenset(self.role_names[name] for name in roles if name in self.role_names),
            scopes=_read_actions(claims, self.scopes) if self.scopes else None,
            subjects=_read_names(claims, self.subjects),
            job_types=_read_names(claims, self.job_types) if self.job_types else None,
            is_system=self.system_role is not None and self.system_role in roles,
        )

    def _tenant_of(self, claims: Mapping[str, Any]) -> str:
        value = _read_claim(claims, self.tenant)
        if value is None and self.default_tenant is not None:
            return self.default_tenant
        return _check_name("", value, _TENANT_LIMIT, "tenant")


def _read_claim(claims: Mapping[str, Any], claim: Claim | None) -> Any:
    if claim is None:
        return None
    value: Any = claims
    for part in (claim,) if isinstance(claim, str) else claim:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _spell(claim: Claim) -> str:
    return claim if isinstance(claim, str) else ".".join(claim)


def _check_name(prefix: str, value: Any, limit: int, what: str) -> str:
    if not isinstance(value, str) or not value or name_problem(prefix + value, limit):
        raise InvalidCredentials(
            f"The token has no {what} that can be used.",
            next_step="Ask the identity provider for a token with one.",
        )
    return prefix + value


def _read_names(claims: Mapping[str, Any], claim: Claim | None) -> frozenset[str]:
    value = _read_claim(claims, claim)
    found = value.split() if isinstance(value, str) else value
    if not isinstance(found, list):
        return frozenset()
    names = frozenset(
        name
        for name in found
        if isinstance(name, str) and name and not name_problem(name, _NAME_LIMIT)
    )
    if len(names) > MOST_NAMES:
        raise InvalidCredentials("The token says too much.", internal=f"{len(names)} names")
    return names


def _read_actions(claims: Mapping[str, Any], claim: Claim | None) -> frozenset[Action]:
    known = {action.value: action for action in Action}
    return frozenset(known[name] for name in _read_names(claims, claim) if name in known)

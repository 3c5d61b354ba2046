"""What docs/authentication.md promises: who may do what, read from its table."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from gantline.auth.action import Action
from gantline.auth.api_key import KeyGrant
from gantline.auth.principal import Role

TENANT: Final = "acme"
"""Whose things all callers ask for."""
JOB_TYPE: Final = "document-indexing"
_PAGE: Final = Path(__file__).parents[2] / "docs" / "authentication.md"
_ROW: Final = re.compile(r"^\| [A-Z_]+ \| `([a-z:-]+)` \|(.*)\|$", re.MULTILINE)
_COLUMNS: Final = (None, *Role)


def read_table() -> dict[Action, dict[Role | None, str]]:
    """By action and role: `yes`, `own`, `tenant`, `system`, or `–` for nobody."""
    rows = _ROW.findall(_PAGE.read_text(encoding="utf-8"))
    return {
        Action(scope): dict(
            zip(_COLUMNS, (one.strip() for one in cells.split("|")), strict=True),
        )
        for scope, cells in rows
    }


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody with a key; without a grant, somebody whom nobody knows."""

    name: str
    grant: KeyGrant | None = None
    is_owner: bool = False

    @property
    def role(self) -> Role | None:
        assert self.grant is not None
        return next(iter(self.grant.roles), None)

    @property
    def is_foreign(self) -> bool:
        """Of another tenant, and not of the system."""
        return (
            self.grant is not None and self.grant.tenant_id != TENANT and not self.grant.is_system
        )


def caller(
    name: str, *roles: Role, tenant: str = TENANT, owns: bool = False, **more: object
) -> Caller:
    grant = KeyGrant(name=name, tenant_id=tenant, roles=frozenset(roles), **more)  # type: ignore[arg-type]  # fields of a grant
    return Caller(name=name, grant=grant, is_owner=owns)


UNKNOWN: Final = tuple(
    Caller(name=name)
    for name in ("nobody", "no key", "unknown key", "wrong secret", "expired key", "revoked key")
)
KNOWN: Final = (
    caller("owner", owns=True),
    caller("colleague"),
    *(caller(role, role) for role in Role),
    caller("operator of another type", Role.OPERATOR, job_types=frozenset({"mail"})),
    caller("foreign", tenant="evil"),
    *(caller(f"foreign {role}", role, tenant="evil") for role in Role),
    *(caller(f"system {role}", role, tenant="default", is_system=True) for role in Role),
)


def narrowed(right: Action, also: frozenset[Action]) -> tuple[Caller, ...]:
    """Keys of the system: one with nothing but what is needed, and one with all but that."""
    needed = {right, *also}
    system = {"tenant": "default", "is_system": True}
    return (
        caller(f"only {sorted(needed)}", Role.ADMIN, scopes=frozenset(needed), **system),  # type: ignore[arg-type]  # as above
        *(
            caller(f"all but {one}", Role.ADMIN, scopes=frozenset(set(Action) - {one}), **system)  # type: ignore[arg-type]  # as above
            for one in sorted(needed)
        ),
    )


class Rights:
    """The table, asked."""

    def __init__(self, table: Mapping[Action, Mapping[Role | None, str]]) -> None:
        self._table = table

    def at_home(self, who: Caller, action: Action) -> bool:
        """Whether he may do this in his own tenant, at least to what is his own."""
        return self._cell(who, action) not in ("–", "system") or self._by_system(who, action)

    def at_all_of(self, who: Caller, action: Action, tenant: str) -> bool:
        """Whether he may do it to everything of a tenant."""
        cell, grant = self._cell(who, action), who.grant
        assert grant is not None
        if cell == "system":
            return grant.is_system
        if cell == "yes":
            may_submit = action is Action.SUBMIT and who.role in (Role.OPERATOR, Role.ADMIN)
            return tenant == grant.tenant_id or (grant.is_system and may_submit)
        return cell == "tenant" and (tenant == grant.tenant_id or grant.is_system)

    def to_the_job(self, who: Caller, action: Action) -> bool:
        """Whether he may do it to the job of the owner."""
        assert who.grant is not None
        types = who.grant.job_types
        has_type = types is None or JOB_TYPE in types
        is_own = self._cell(who, action) == "own" and who.is_owner
        return has_type and (is_own or self.at_all_of(who, action, TENANT))

    def _by_system(self, who: Caller, action: Action) -> bool:
        assert who.grant is not None
        return self._cell(who, action) == "system" and who.grant.is_system

    def _cell(self, who: Caller, action: Action) -> str:
        assert who.grant is not None
        if who.grant.scopes is not None and action not in who.grant.scopes:
            return "–"
        return self._table[action][who.role]

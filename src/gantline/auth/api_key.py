"""An API key: what it may do, what is stored of it, and what is shown."""

from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from gantline.auth.action import Action
from gantline.auth.principal import Principal, Role
from gantline.auth.rate_limit import RateLimit
from gantline.contract.errors import InvalidEnvelope, Problem
from gantline.contract.job import DEFAULT_TENANT
from gantline.contract.text import name_problem

KIND: Final = "key"
"""What the id of a key's principal begins with."""
MOST_NAMES: Final = 1000
_NAME_LIMIT: Final = 128
_SUBJECT_LIMIT: Final = 512


class KeyGrant(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a key is for, and what it may do; see Principal for the rights."""

    name: str
    tenant_id: str = DEFAULT_TENANT
    roles: frozenset[Role] = frozenset()
    scopes: frozenset[Action] | None = None
    subjects: frozenset[str] = frozenset()
    job_types: frozenset[str] | None = None
    is_system: bool = False
    rate_limit: RateLimit | None = None

    def principal(self, key_id: str) -> Principal:
        return Principal(
            id=f"{KIND}:{key_id}",
            tenant_id=self.tenant_id,
            roles=self.roles,
            scopes=self.scopes,
            subjects=self.subjects,
            job_types=self.job_types,
            is_system=self.is_system,
            rate_limit=self.rate_limit,
        )

    def check(self) -> None:
        """Raise InvalidEnvelope where a name could not be one."""
        problems = [
            *_problems("#/name", [self.name], _NAME_LIMIT),
            *_problems("#/tenantId", [self.tenant_id], _NAME_LIMIT),
            *_problems("#/subjects", self.subjects, _SUBJECT_LIMIT),
            *_problems("#/jobTypes", self.job_types or (), _NAME_LIMIT),
        ]
        if problems:
            raise InvalidEnvelope(problems)


def _problems(
    pointer: str, names: frozenset[str] | list[str] | tuple[()], limit: int
) -> list[Problem]:
    if len(names) > MOST_NAMES:
        return [Problem(pointer, f"has more than {MOST_NAMES} names")]
    details = {"is empty" if not name else name_problem(name, limit) for name in names}
    return [Problem(pointer, detail) for detail in sorted(filter(None, details))]


class StoredSecret(msgspec.Struct, frozen=True, rename="camel"):
    """What proves that a secret is the key's: its HMAC, by one of the peppers."""

    pepper_id: str
    mac: bytes
    until: datetime | None = None
    """How long it is still good, once there is a newer one."""

    def __repr__(self) -> str:
        return f"StoredSecret({self.pepper_id}, hidden)"


class KeyState(StrEnum):
    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


class StoredKey(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A key as it is kept. The newest secret comes first; there are never more than two."""

    grant: KeyGrant
    secrets: tuple[StoredSecret, ...]
    created_at: datetime
    created_by: str = ""
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    rotated_at: datetime | None = None

    def state(self, now: datetime) -> KeyState:
        if self.revoked_at is not None:
            return KeyState.REVOKED
        if self.expires_at is not None and self.expires_at <= now:
            return KeyState.EXPIRED
        return KeyState.ACTIVE


class ApiKey(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A key as it is shown: everything but its secrets, which nobody can read again."""

    id: str
    state: KeyState
    grant: KeyGrant
    created_at: datetime
    created_by: str = ""
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    rotated_at: datetime | None = None
    old_secret_until: datetime | None = None
    last_used_at: datetime | None = None
    """To about an hour."""

    @classmethod
    def of(
        cls, key_id: str, stored: StoredKey, *, now: datetime, last_used_at: datetime | None = None
    ) -> "ApiKey":
        old = (secret.until for secret in stored.secrets[1:])
        return cls(
            id=key_id,
            state=stored.state(now),
            grant=stored.grant,
            created_at=stored.created_at,
            created_by=stored.created_by,
            expires_at=stored.expires_at,
            revoked_at=stored.revoked_at,
            rotated_at=stored.rotated_at,
            old_secret_until=next((until for until in old if until and until > now), None),
            last_used_at=last_used_at,
        )


class IssuedKey(msgspec.Struct, frozen=True):
    """A key with its text, `gl_…`, which is shown this once."""

    key: ApiKey
    text: str

    def __repr__(self) -> str:
        return f"IssuedKey({self.key.id}, text hidden)"

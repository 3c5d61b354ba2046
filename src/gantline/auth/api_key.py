"""An API key: its text, what it may do, what is stored of it, and what is shown.

A key is written `gl_<key id>_<secret><checksum>`. The prefix lets scanners find one that was
published. The checksum distinguishes a typing error from a wrong key, and keeps most of what is not
a key away from the store.
"""

import re
import secrets
import zlib
from collections.abc import Set as AbstractSet
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeVar

import msgspec

from gantline.auth.action import Action
from gantline.auth.principal import Principal, Role
from gantline.auth.rate_limit import RateLimit
from gantline.contract.errors import InvalidCredentials, InvalidEnvelope, Problem
from gantline.contract.job import DEFAULT_TENANT
from gantline.contract.text import name_problem

PREFIX: Final = "gl_"
PATTERN: Final = r"gl_[0-9a-z]{12}_[0-9A-Za-z]{49}"
"""For those who scan for secrets."""
KIND: Final = "key"
"""What the id of a key's principal begins with."""
MOST_NAMES: Final = 1000
_NAME_LIMIT: Final = 128
_SUBJECT_LIMIT: Final = 512

_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_ID_LENGTH: Final = 12
_SECRET_BITS: Final = 256
_SECRET_LENGTH: Final = 43
_CHECKSUM_LENGTH: Final = 6
_PATTERN: Final = re.compile(PATTERN, re.ASCII)
_RANKS: Final = {role: rank for rank, role in enumerate(Role, start=1)}

T = TypeVar("T")


class KeyText(msgspec.Struct, frozen=True):
    """A key as it was sent or is to be shown. Its text must not get into a log."""

    key_id: str
    secret: str

    def __repr__(self) -> str:
        return f"KeyText({self.key_id}, secret hidden)"

    @property
    def text(self) -> str:
        body = f"{PREFIX}{self.key_id}_{self.secret}"
        return body + _checksum(body)


def new_key_id() -> str:
    return "".join(secrets.choice(_ID_DIGITS) for _ in range(_ID_LENGTH))


def new_key_text(key_id: str) -> KeyText:
    """Give a key a new secret of 256 random bits."""
    return KeyText(key_id, _encode_number(secrets.randbits(_SECRET_BITS), _SECRET_LENGTH))


def read_key_text(text: str) -> KeyText:
    """Parse a key; raise InvalidCredentials where it is none, or was not copied whole."""
    if not _PATTERN.fullmatch(text):
        raise _build_malformed("it has not the form of a key")
    body, checksum = text[:-_CHECKSUM_LENGTH], text[-_CHECKSUM_LENGTH:]
    if _checksum(body) != checksum:
        raise _build_malformed("its checksum is wrong")
    key_id, _, secret = body.removeprefix(PREFIX).partition("_")
    return KeyText(key_id, secret)


def _build_malformed(internal: str) -> InvalidCredentials:
    return InvalidCredentials(
        "This is not a whole API key.",
        next_step="Copy it again: it starts with gl_ and has 65 characters.",
        internal=internal,
    )


def _checksum(body: str) -> str:
    return _encode_number(zlib.crc32(body.encode()), _CHECKSUM_LENGTH)


def _encode_number(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))


class KeyGrant(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a key is for, and what it may do; see Principal for the meaning of the fields."""

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
        """Raise InvalidEnvelope where a name is invalid."""
        problems = [
            *_find_problems("#/name", [self.name], _NAME_LIMIT),
            *_find_problems("#/tenantId", [self.tenant_id], _NAME_LIMIT),
            *_find_problems("#/subjects", self.subjects, _SUBJECT_LIMIT),
            *_find_problems("#/jobTypes", self.job_types or (), _NAME_LIMIT),
        ]
        if problems:
            raise InvalidEnvelope(problems)


def _find_problems(
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


class StoredApiKey(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
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
        cls,
        key_id: str,
        stored: StoredApiKey,
        *,
        now: datetime,
        last_used_at: datetime | None = None,
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


def may_grant(principal: Principal, grant: KeyGrant) -> bool:
    """Whether a key with this grant could do only what the principal may do himself.

    Whether he may create keys at all is decided by the authorizer.
    """
    tenant_is_his = principal.is_system or grant.tenant_id == principal.tenant_id
    sees_all = bool(principal.roles)
    return (
        tenant_is_his
        and (principal.is_system or not grant.is_system)
        and _rank(grant.roles) <= _rank(principal.roles)
        and _is_subset(grant.scopes, principal.scopes)
        and _is_subset(grant.job_types, principal.job_types)
        and (sees_all or grant.subjects <= principal.subjects)
        and (principal.rate_limit is None or principal.rate_limit.allows(grant.rate_limit))
    )


def _rank(roles: AbstractSet[Role]) -> int:
    return max((_RANKS[role] for role in roles), default=0)


def _is_subset(granted: AbstractSet[T] | None, held: AbstractSet[T] | None) -> bool:
    """None means everything."""
    return held is None or (granted is not None and granted <= held)

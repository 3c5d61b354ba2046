"""API keys: made, listed, rotated and revoked; kept as records."""

from datetime import datetime, timedelta

import msgspec

from windlass.auth.action import Action
from windlass.auth.peppers import Peppers
from windlass.auth.principal import Role
from windlass.contract.clock import Clock
from windlass.contract.job import DEFAULT_TENANT
from windlass.contract.store import JobStore


class KeyGrant(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a key is for, and what it may do; see Principal."""

    name: str
    tenant_id: str = DEFAULT_TENANT
    roles: frozenset[Role] = frozenset()
    scopes: frozenset[Action] | None = None
    subjects: frozenset[str] = frozenset()
    job_types: frozenset[str] | None = None
    is_system: bool = False


class ApiKey(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A key as it is shown: everything but its secret, which nobody can read again."""

    id: str
    grant: KeyGrant
    created_at: datetime
    created_by: str = ""
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    rotated_at: datetime | None = None
    old_secret_until: datetime | None = None
    last_used_at: datetime | None = None
    """To about an hour."""
    version: int = 0


class IssuedKey(msgspec.Struct, frozen=True):
    """A new key and its secret, shown this once."""

    key: ApiKey
    secret: str

    def __repr__(self) -> str:
        return f"IssuedKey({self.key.id}, secret hidden)"


class ApiKeys:
    """Make, list, rotate and revoke keys. `tenant_id` None is for the system, as in the store."""

    def __init__(self, store: JobStore, peppers: Peppers, *, clock: Clock) -> None:
        raise NotImplementedError

    async def create(
        self, grant: KeyGrant, *, lifetime: timedelta | None = None, created_by: str = ""
    ) -> IssuedKey:
        raise NotImplementedError

    async def list(self, *, tenant_id: str | None) -> list[ApiKey]:
        """All keys, also those that expired or were revoked, oldest first."""
        raise NotImplementedError

    async def get(self, key_id: str, *, tenant_id: str | None) -> ApiKey:
        """Raise KeyNotFound, for another tenant's key as well."""
        raise NotImplementedError

    async def rotate(
        self, key_id: str, *, tenant_id: str | None, overlap: timedelta = timedelta(hours=24)
    ) -> IssuedKey:
        """Give a key a new secret; the old one is good for `overlap` more."""
        raise NotImplementedError

    async def revoke(self, key_id: str, *, tenant_id: str | None) -> ApiKey:
        """Let a key be good for nothing, now; seen by other processes within seconds."""
        raise NotImplementedError

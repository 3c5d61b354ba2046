"""Endpoints: created, changed, rotated, disabled and deleted; kept as records, tenant by tenant."""

import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from datetime import datetime, timedelta
from typing import Final, Protocol
from urllib.parse import unquote
from uuid import UUID

import msgspec

from gantline.contract.audit import AuditSink
from gantline.contract.clock import Clock, later
from gantline.contract.errors import (
    AuthMisconfigured,
    InvalidEnvelope,
    InvalidInput,
    Problem,
    StoreCorrupt,
    VersionMismatch,
    WebhookNotFound,
)
from gantline.contract.records import Record, RecordWrite
from gantline.contract.results import Applied
from gantline.contract.store import JobStore
from gantline.contract.text import LABEL_LIMIT, storable
from gantline.contract.webhook import IssuedWebhook, WebhookEndpoint, WebhookSpec, WebhookStatus
from gantline.manager.manager import JobManager
from gantline.runtime import new_uuid, random_bytes
from gantline.webhooks.disabling import FailureRecords
from gantline.webhooks.endpoint import StoredEndpoint, check_spec, key_prefix, record_key
from gantline.webhooks.secret_encryption import SealedSecret
from gantline.webhooks.settings import WebhookSettings
from gantline.webhooks.signing import SECRET_RULE, decode_secret, new_secret
from gantline.webhooks.url_guard import TargetRefused, UrlGuard

_log = logging.getLogger("gantline.webhooks")

ENDPOINTS: Final = "webhook-endpoints"
_SALT_BYTES: Final = 32
_MOST_ATTEMPTS: Final = 10
_MOST_CACHED: Final = 10_000
_LONGEST_OVERLAP: Final = timedelta(days=30)

_encoder: Final = msgspec.json.Encoder(order="sorted")
_decoder: Final = msgspec.json.Decoder(StoredEndpoint)

Change = Callable[[StoredEndpoint, datetime], StoredEndpoint]


class Rekeyed(msgspec.Struct, frozen=True, kw_only=True):
    """How many endpoints, of all tenants, were encrypted with another key."""

    rekeyed: int = 0
    unchanged: int = 0
    unreadable: int = 0
    """Left as they are: their key is not known, or others kept changing them."""


class WebhookApp(Protocol):
    """What webhooks need of an application, which may change its store and its clock."""

    @property
    def clock(self) -> Clock: ...

    @property
    def store(self) -> JobStore: ...

    @property
    def manager(self) -> JobManager: ...

    @property
    def audit(self) -> AuditSink: ...


class Endpoints:
    """The endpoints of an application. Every call names a tenant, and sees only his endpoints."""

    def __init__(self, app: WebhookApp, settings: WebhookSettings) -> None:
        self._app = app
        self.settings = settings
        self._guard = UrlGuard(allow=settings.allow, ports=settings.ports, resolve=settings.resolve)
        self._failures = FailureRecords(lambda: app.store)
        self._cached: dict[str, tuple[float, dict[UUID, StoredEndpoint]]] = {}

    # -- managing ---------------------------------------------------------------------------------

    async def create(
        self, spec: WebhookSpec, *, tenant_id: str, actor: str, secret: str | None = None
    ) -> IssuedWebhook:
        """Create an endpoint; raise InvalidInput. Its secret is in the result, and nowhere else.

        One that comes from another system keeps the `secret` that its receiver has: `whsec_…`, or a
        plain text. That is not in the result.
        """
        if secret is not None:
            _check_secret(secret)
        await self._check(spec, tenant_id)
        count = len(await self._all(tenant_id))
        if count >= self.settings.most_endpoints:
            raise InvalidInput(
                f"The tenant has {count} webhooks, and may have no more.",
                next_step="Delete one that is not used.",
            )
        webhook_id, signed_by = new_uuid(), new_secret() if secret is None else secret
        now = await self._app.store.ping()
        stored = StoredEndpoint(
            spec=spec,
            secrets=(self.settings.vault.seal(signed_by, of=record_key(tenant_id, webhook_id)),),
            salt=random_bytes(_SALT_BYTES),
            status_since=now,
            created_at=now,
            created_by=actor,
            updated_at=now,
            updated_by=actor,
            after_event=await self._app.store.last_event(),
        )
        if not await self._write(tenant_id, webhook_id, stored, expected=0):
            raise VersionMismatch("A new id is taken already.", next_step="Try again.")
        return IssuedWebhook(
            secret=signed_by if secret is None else "",
            webhook=stored.describe(webhook_id, tenant_id, now=now),
        )

    async def listed(self, *, tenant_id: str) -> list[WebhookEndpoint]:
        """List all endpoints of a tenant, oldest first."""
        found = await self._all(tenant_id)
        failing = await self._failures.read_failing(tenant_id)
        now = self._app.clock.now()
        described = [
            stored.describe(webhook_id, tenant_id, now=now, failing_since=failing.get(webhook_id))
            for webhook_id, (stored, _) in found.items()
        ]
        return sorted(described, key=lambda one: (one.created_at, one.webhook_id))

    async def get(self, webhook_id: UUID, *, tenant_id: str) -> WebhookEndpoint:
        """Raise WebhookNotFound, for another tenant's as well."""
        stored, _ = await self._find(tenant_id, webhook_id)
        return await self._describe(tenant_id, webhook_id, stored)

    async def made_by(
        self, actors: Collection[str], *, tenant_id: str | None
    ) -> list[WebhookEndpoint]:
        """List the endpoints that these actors created, or changed last; None: of all tenants."""
        now = self._app.clock.now()
        made: list[WebhookEndpoint] = []
        async for record in self._records("" if tenant_id is None else key_prefix(tenant_id)):
            quoted = record.key.partition("/")[0]
            for webhook_id, (stored, _) in _decode([record], f"{quoted}/").items():
                if {stored.created_by, stored.updated_by} & set(actors):
                    made.append(stored.describe(webhook_id, unquote(quoted), now=now))
        return made

    async def update(
        self, webhook_id: UUID, spec: WebhookSpec, *, tenant_id: str, actor: str
    ) -> WebhookEndpoint:
        """Replace the spec of an endpoint; pending deliveries go to the new URL."""
        await self._check(spec, tenant_id)
        return await self._change(
            tenant_id,
            webhook_id,
            lambda stored, _: msgspec.structs.replace(stored, spec=spec, updated_by=actor),
        )

    async def rotate(
        self, webhook_id: UUID, *, tenant_id: str, overlap: timedelta, actor: str
    ) -> IssuedWebhook:
        """Give an endpoint a new secret; for `overlap` more, the old one signs as well."""
        if not timedelta(0) <= overlap <= _LONGEST_OVERLAP:
            raise InvalidInput(f"The overlap must be from 0 to {_LONGEST_OVERLAP.days} days.")
        secret = new_secret()
        sealed = self.settings.vault.seal(secret, of=record_key(tenant_id, webhook_id))

        def rotated(stored: StoredEndpoint, now: datetime) -> StoredEndpoint:
            old = msgspec.structs.replace(stored.secrets[0], until=later(now, overlap))
            kept = (old,) if overlap else ()
            return msgspec.structs.replace(stored, secrets=(sealed, *kept), updated_by=actor)

        webhook = await self._change(tenant_id, webhook_id, rotated)
        return IssuedWebhook(secret=secret, webhook=webhook)

    async def enable(self, webhook_id: UUID, *, tenant_id: str) -> WebhookEndpoint:
        await self._failures.clear(tenant_id, webhook_id)
        return await self._switch(tenant_id, webhook_id, WebhookStatus.ENABLED, "")

    async def disable(self, webhook_id: UUID, *, tenant_id: str, reason: str) -> WebhookEndpoint:
        """Deliver nothing more. Pending deliveries fail, and can be replayed."""
        return await self._switch(tenant_id, webhook_id, WebhookStatus.DISABLED, reason)

    async def disable_unchanged(
        self, webhook_id: UUID, seen: StoredEndpoint, *, tenant_id: str, reason: str
    ) -> None:
        """Disable an endpoint, unless it was changed since it was read as `seen`."""
        await self._switch(tenant_id, webhook_id, WebhookStatus.DISABLED, reason, only=seen)

    async def is_unchanged(self, webhook_id: UUID, seen: StoredEndpoint, *, tenant_id: str) -> bool:
        """Whether an endpoint is enabled, and was not changed since it was read as `seen`."""
        stored, _ = await self._find(tenant_id, webhook_id)
        return stored.is_enabled and stored.is_same(seen)

    async def delete(self, webhook_id: UUID, *, tenant_id: str) -> None:
        await self._find(tenant_id, webhook_id)
        await self._app.store.write_records(
            [RecordWrite(ENDPOINTS, record_key(tenant_id, webhook_id), None)]
        )
        self._cached.pop(tenant_id, None)
        await self._failures.clear(tenant_id, webhook_id)

    # -- for deliveries ---------------------------------------------------------------------------

    async def read_cached(self, tenant_id: str) -> dict[UUID, StoredEndpoint]:
        """Return a tenant's endpoints, from the cache while that is young enough."""
        now, cached = self._app.clock.monotonic(), self._cached.get(tenant_id)
        if cached is not None and 0 <= now - cached[0] < self.settings.cache_seconds:
            return cached[1]
        return await self.read(tenant_id)

    async def read(self, tenant_id: str) -> dict[UUID, StoredEndpoint]:
        """Read a tenant's endpoints from the store, for what is not done again later."""
        now = self._app.clock.monotonic()
        found = {one: stored for one, (stored, _) in (await self._all(tenant_id)).items()}
        if len(self._cached) >= _MOST_CACHED:
            self._cached.clear()
        self._cached[tenant_id] = (now, found)
        return found

    def prepare(self) -> None:
        """Import what decryption needs; call it in a thread, since that takes a while."""
        self.settings.vault.prepare()

    def open_secrets(
        self, webhook_id: UUID, stored: StoredEndpoint, *, tenant_id: str
    ) -> list[str]:
        """Decrypt the secrets that sign now, the newest first."""
        valid = stored.valid_secrets(self._app.clock.now())
        of = record_key(tenant_id, webhook_id)
        return [self.settings.vault.open(one, of=of) for one in valid]

    # -- rekeying ---------------------------------------------------------------------------------

    async def rekey(self) -> Rekeyed:
        """Encrypt the secrets of all tenants with the key in use, so that older keys may go.

        Every process must know the key in use before; it is the installation's."""
        counted = {"rekeyed": 0, "unchanged": 0, "unreadable": 0}
        now = self._app.clock.now()
        async for record in self._records(""):
            counted[await self._rekey(record, now)] += 1
        return Rekeyed(**counted)

    async def _rekey(self, record: Record | None, now: datetime) -> str:
        for _ in range(_MOST_ATTEMPTS):
            if record is None:
                return "unchanged"  # it was deleted
            try:
                stored = _decoder.decode(record.value)
                sealed = tuple(self._reseal(record.key, stored, now))
            except (msgspec.DecodeError, UnicodeDecodeError, AuthMisconfigured, StoreCorrupt):
                return "unreadable"
            if sealed == stored.secrets:
                return "unchanged"
            value = _encoder.encode(msgspec.structs.replace(stored, secrets=sealed))
            write = RecordWrite(ENDPOINTS, record.key, value, record.version)
            (result,) = await self._app.store.write_records([write])
            if isinstance(result, Applied):
                return "rekeyed"
            found = await self._app.store.read_records(ENDPOINTS, prefix=record.key, limit=1)
            record = found[0] if found else None
        return "unreadable"

    def _reseal(self, of: str, stored: StoredEndpoint, now: datetime) -> list[SealedSecret]:
        """Keep only the secrets that still sign: others must not keep an old key in use."""
        vault = self.settings.vault
        return [
            one
            if one.key_id == vault.current
            else msgspec.structs.replace(vault.seal(vault.open(one, of=of), of=of), until=one.until)
            for one in stored.valid_secrets(now)
        ]

    # -- storing ----------------------------------------------------------------------------------

    async def _check(self, spec: WebhookSpec, tenant_id: str) -> None:
        check_spec(spec)
        try:
            await self._guard.check(spec.url, tenant_id=tenant_id)
        except TargetRefused as refused:
            raise InvalidEnvelope([Problem("#/url", str(refused))]) from None

    async def _all(self, tenant_id: str) -> dict[UUID, tuple[StoredEndpoint, int]]:
        prefix = key_prefix(tenant_id)
        return _decode([record async for record in self._records(prefix)], prefix)

    async def _records(self, prefix: str) -> AsyncIterator[Record]:
        after = ""
        while page := await self._app.store.read_records(ENDPOINTS, prefix=prefix, after=after):
            for record in page:
                yield record
            after = page[-1].key

    async def _find(self, tenant_id: str, webhook_id: UUID) -> tuple[StoredEndpoint, int]:
        key = record_key(tenant_id, webhook_id)
        page = await self._app.store.read_records(ENDPOINTS, prefix=key, limit=1)
        found = _decode(page, key_prefix(tenant_id)).get(webhook_id)
        if found is None:
            raise WebhookNotFound("There is no such webhook.")
        return found

    async def _switch(
        self,
        tenant_id: str,
        webhook_id: UUID,
        status: WebhookStatus,
        reason: str,
        *,
        only: StoredEndpoint | None = None,
    ) -> WebhookEndpoint:
        def switched(stored: StoredEndpoint, now: datetime) -> StoredEndpoint:
            if stored.status is status or (only and not stored.is_same(only)):
                return stored
            return msgspec.structs.replace(
                stored,
                status=status,
                status_reason=storable(reason, LABEL_LIMIT),
                status_since=now,
            )

        return await self._change(tenant_id, webhook_id, switched)

    async def _change(self, tenant_id: str, webhook_id: UUID, change: Change) -> WebhookEndpoint:
        for _ in range(_MOST_ATTEMPTS):
            stored, version = await self._find(tenant_id, webhook_id)
            now = self._app.clock.now()
            changed = change(stored, now)
            if changed != stored:
                changed = msgspec.structs.replace(changed, updated_at=now)
            if changed == stored or await self._write(
                tenant_id, webhook_id, changed, expected=version
            ):
                return await self._describe(tenant_id, webhook_id, changed)
        raise VersionMismatch("The webhook kept changing.", next_step="Try again.")

    async def _write(
        self, tenant_id: str, webhook_id: UUID, stored: StoredEndpoint, *, expected: int
    ) -> bool:
        key = record_key(tenant_id, webhook_id)
        write = RecordWrite(ENDPOINTS, key, _encoder.encode(stored), expected)
        (result,) = await self._app.store.write_records([write])
        self._cached.pop(tenant_id, None)
        return isinstance(result, Applied)

    async def _describe(
        self, tenant_id: str, webhook_id: UUID, stored: StoredEndpoint
    ) -> WebhookEndpoint:
        failing = await self._failures.read_failing(tenant_id)
        return stored.describe(
            webhook_id,
            tenant_id,
            now=self._app.clock.now(),
            failing_since=failing.get(webhook_id),
        )


def _check_secret(secret: str) -> None:
    try:
        decode_secret(secret)
    except InvalidInput:
        raise InvalidEnvelope([Problem("#/secret", SECRET_RULE)]) from None


def _decode(records: Iterable[Record], prefix: str) -> dict[UUID, tuple[StoredEndpoint, int]]:
    """Leave out what cannot be decoded: it must not stop the deliveries to other endpoints."""
    found = {}
    for record in records:
        try:
            webhook_id = UUID(record.key.removeprefix(prefix))
            found[webhook_id] = (_decoder.decode(record.value), record.version)
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError):
            _log.error("webhook %s cannot be read; was it written by a newer Gantline?", record.key)
    return found

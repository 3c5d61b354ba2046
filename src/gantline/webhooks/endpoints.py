"""Endpoints: made, changed, rotated, disabled and deleted; kept as records, tenant by tenant."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID, uuid4

import msgspec

from gantline.contract.clock import Clock, later
from gantline.contract.errors import (
    InvalidEnvelope,
    InvalidInput,
    Problem,
    VersionMismatch,
    WebhookNotFound,
)
from gantline.contract.records import Record, RecordWrite
from gantline.contract.results import Applied
from gantline.contract.store import JobStore
from gantline.contract.text import LABEL_LIMIT, storable
from gantline.contract.webhook import IssuedWebhook, WebhookEndpoint, WebhookSpec, WebhookStatus
from gantline.webhooks.endpoint import StoredEndpoint, check_spec
from gantline.webhooks.guard import Guard, TargetRefused
from gantline.webhooks.health import Health
from gantline.webhooks.record_keys import prefix_of, record_key
from gantline.webhooks.settings import WebhookSettings
from gantline.webhooks.signing import new_secret

_log = logging.getLogger("gantline.webhooks")

ENDPOINTS: Final = "webhook-endpoints"
_SALT_BYTES: Final = 32
_ROUNDS: Final = 10
_MOST_CACHED: Final = 10_000
_RESOLVED_WITHIN_SECONDS: Final = 10.0
_LONGEST_OVERLAP: Final = timedelta(days=30)

_encoder: Final = msgspec.json.Encoder(order="sorted")
_decoder: Final = msgspec.json.Decoder(StoredEndpoint)

Change = Callable[[StoredEndpoint, datetime], StoredEndpoint]


class Endpoints:
    """The endpoints of a store. A tenant is named in every call; another's is not there."""

    def __init__(
        self,
        store: Callable[[], JobStore],
        settings: WebhookSettings,
        guard: Guard,
        health: Health,
        *,
        clock: Callable[[], Clock],
    ) -> None:
        """Store and clock are asked for each time: an application may move to others."""
        self._store = store
        self._settings = settings
        self._guard = guard
        self._health = health
        self._clock = clock
        self._cached: dict[str, tuple[float, dict[UUID, StoredEndpoint]]] = {}

    # -- managing ---------------------------------------------------------------------------------

    async def create(self, spec: WebhookSpec, *, tenant_id: str, created_by: str) -> IssuedWebhook:
        """Make an endpoint; raise InvalidInput. Its secret is in the answer, and nowhere else."""
        await self._check(spec, tenant_id)
        there_are = len(await self._all(tenant_id))
        if there_are >= self._settings.most_endpoints:
            raise InvalidInput(
                f"The tenant has {there_are} webhooks, and may have no more.",
                next_step="Delete one that is not used.",
            )
        webhook_id, secret = uuid4(), new_secret()
        now = await self._store().ping()  # by the clock that events are dated by
        stored = StoredEndpoint(
            spec=spec,
            secrets=(self._settings.vault.seal(secret, of=record_key(tenant_id, webhook_id)),),
            salt=secrets.token_bytes(_SALT_BYTES),
            status_since=now,
            created_at=now,
            created_by=created_by,
            updated_at=now,
        )
        if not await self._write(tenant_id, webhook_id, stored, expected=0):
            raise VersionMismatch("A new id is taken already.", next_step="Try again.")
        return IssuedWebhook(secret=secret, webhook=stored.shown(webhook_id, tenant_id, now=now))

    async def listed(self, *, tenant_id: str) -> list[WebhookEndpoint]:
        """All of a tenant's, oldest first."""
        found = await self._all(tenant_id)
        failing = await self._health.failing(tenant_id)
        now = self._clock().now()
        shown = [
            stored.shown(webhook_id, tenant_id, now=now, failing_since=failing.get(webhook_id))
            for webhook_id, (stored, _) in found.items()
        ]
        return sorted(shown, key=lambda one: (one.created_at, one.webhook_id))

    async def get(self, webhook_id: UUID, *, tenant_id: str) -> WebhookEndpoint:
        stored, _ = await self._found(tenant_id, webhook_id)
        return await self._shown(tenant_id, webhook_id, stored)

    async def update(
        self, webhook_id: UUID, spec: WebhookSpec, *, tenant_id: str
    ) -> WebhookEndpoint:
        """Replace what an endpoint wants; what is pending goes to where it is now."""
        await self._check(spec, tenant_id)
        return await self._change(
            tenant_id, webhook_id, lambda stored, _: msgspec.structs.replace(stored, spec=spec)
        )

    async def rotate(
        self, webhook_id: UUID, *, tenant_id: str, overlap: timedelta
    ) -> IssuedWebhook:
        """Give an endpoint a new secret; for `overlap` more, the old one signs as well."""
        if not timedelta(0) <= overlap <= _LONGEST_OVERLAP:
            raise InvalidInput(f"The overlap must be from 0 to {_LONGEST_OVERLAP.days} days.")
        secret = new_secret()
        sealed = self._settings.vault.seal(secret, of=record_key(tenant_id, webhook_id))

        def rotated(stored: StoredEndpoint, now: datetime) -> StoredEndpoint:
            old = msgspec.structs.replace(stored.secrets[0], until=later(now, overlap))
            kept = (old,) if overlap else ()
            return msgspec.structs.replace(stored, secrets=(sealed, *kept))

        webhook = await self._change(tenant_id, webhook_id, rotated)
        return IssuedWebhook(secret=secret, webhook=webhook)

    async def enable(self, webhook_id: UUID, *, tenant_id: str) -> WebhookEndpoint:
        await self._health.forget(tenant_id, webhook_id)
        return await self._switch(tenant_id, webhook_id, WebhookStatus.ENABLED, "")

    async def disable(self, webhook_id: UUID, *, tenant_id: str, reason: str) -> WebhookEndpoint:
        """Tell it nothing more. What is pending is kept as failed, and can be replayed."""
        return await self._switch(tenant_id, webhook_id, WebhookStatus.DISABLED, reason)

    async def give_up(
        self, webhook_id: UUID, seen: StoredEndpoint, *, tenant_id: str, reason: str
    ) -> None:
        """Disable one as it was when it was asked; who has changed it meanwhile knows better."""
        await self._switch(tenant_id, webhook_id, WebhookStatus.DISABLED, reason, only=seen)

    async def is_still(self, webhook_id: UUID, seen: StoredEndpoint, *, tenant_id: str) -> bool:
        """Whether one is enabled, and as it was when it was asked."""
        stored, _ = await self._found(tenant_id, webhook_id)
        return stored.is_enabled and stored.is_still(seen)

    async def delete(self, webhook_id: UUID, *, tenant_id: str) -> None:
        await self._found(tenant_id, webhook_id)
        await self._store().write_records(
            [RecordWrite(ENDPOINTS, record_key(tenant_id, webhook_id), None)]
        )
        self._cached.pop(tenant_id, None)
        await self._health.forget(tenant_id, webhook_id)

    # -- telling ----------------------------------------------------------------------------------

    async def of(self, tenant_id: str) -> dict[UUID, StoredEndpoint]:
        """A tenant's endpoints as they stand, or stood a moment ago."""
        now, cached = self._clock().monotonic(), self._cached.get(tenant_id)
        if cached is not None and 0 <= now - cached[0] < self._settings.cache_seconds:
            return cached[1]
        return await self.as_they_stand(tenant_id)

    async def as_they_stand(self, tenant_id: str) -> dict[UUID, StoredEndpoint]:
        """A tenant's endpoints, read now: what depends on it is not done again later."""
        now = self._clock().monotonic()
        found = {one: stored for one, (stored, _) in (await self._all(tenant_id)).items()}
        if len(self._cached) >= _MOST_CACHED:
            self._cached.clear()
        self._cached[tenant_id] = (now, found)
        return found

    def prepare(self) -> None:
        """Load what opening secrets needs; in a thread, for it takes a while."""
        self._settings.vault.prepare()

    def secrets_of(self, webhook_id: UUID, stored: StoredEndpoint, *, tenant_id: str) -> list[str]:
        """The secrets that sign now, the newest first."""
        good = stored.good_secrets(self._clock().now())
        of = record_key(tenant_id, webhook_id)
        return [self._settings.vault.open(one, of=of) for one in good]

    # -- storing ----------------------------------------------------------------------------------

    async def _check(self, spec: WebhookSpec, tenant_id: str) -> None:
        check_spec(spec)
        try:
            async with asyncio.timeout(_RESOLVED_WITHIN_SECONDS):
                await self._guard.check(spec.url, whose=tenant_id)
        except TargetRefused as refused:
            raise InvalidEnvelope([Problem("#/url", str(refused))]) from None
        except TimeoutError:
            raise InvalidEnvelope([Problem("#/url", "has a host that is not found soon")]) from None

    async def _all(self, tenant_id: str) -> dict[UUID, tuple[StoredEndpoint, int]]:
        prefix, found = prefix_of(tenant_id), dict[UUID, tuple[StoredEndpoint, int]]()
        after = ""
        while page := await self._store().read_records(ENDPOINTS, prefix=prefix, after=after):
            found |= _read(page, prefix)
            after = page[-1].key
        return found

    async def _found(self, tenant_id: str, webhook_id: UUID) -> tuple[StoredEndpoint, int]:
        key = record_key(tenant_id, webhook_id)
        page = await self._store().read_records(ENDPOINTS, prefix=key, limit=1)
        found = _read(page, prefix_of(tenant_id)).get(webhook_id)
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
            if stored.status is status or (only and not stored.is_still(only)):
                return stored
            return msgspec.structs.replace(
                stored,
                status=status,
                status_reason=storable(reason, LABEL_LIMIT),
                status_since=now,
            )

        return await self._change(tenant_id, webhook_id, switched)

    async def _change(self, tenant_id: str, webhook_id: UUID, change: Change) -> WebhookEndpoint:
        for _ in range(_ROUNDS):
            stored, version = await self._found(tenant_id, webhook_id)
            now = self._clock().now()
            changed = change(stored, now)
            if changed != stored:
                changed = msgspec.structs.replace(changed, updated_at=now)
            if changed == stored or await self._write(
                tenant_id, webhook_id, changed, expected=version
            ):
                return await self._shown(tenant_id, webhook_id, changed)
        raise VersionMismatch("The webhook kept changing.", next_step="Try again.")

    async def _write(
        self, tenant_id: str, webhook_id: UUID, stored: StoredEndpoint, *, expected: int
    ) -> bool:
        key = record_key(tenant_id, webhook_id)
        write = RecordWrite(ENDPOINTS, key, _encoder.encode(stored), expected)
        (answer,) = await self._store().write_records([write])
        self._cached.pop(tenant_id, None)
        return isinstance(answer, Applied)

    async def _shown(
        self, tenant_id: str, webhook_id: UUID, stored: StoredEndpoint
    ) -> WebhookEndpoint:
        failing = await self._health.failing(tenant_id)
        return stored.shown(
            webhook_id,
            tenant_id,
            now=self._clock().now(),
            failing_since=failing.get(webhook_id),
        )


def _read(records: Iterable[Record], prefix: str) -> dict[UUID, tuple[StoredEndpoint, int]]:
    """What cannot be read is left out: one endpoint must not stop the deliveries to all others."""
    found = {}
    for record in records:
        try:
            webhook_id = UUID(record.key.removeprefix(prefix))
            found[webhook_id] = (_decoder.decode(record.value), record.version)
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError):
            _log.error("webhook %s cannot be read; was it written by a newer Gantline?", record.key)
    return found

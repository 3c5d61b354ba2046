"""API keys: created, listed, rotated and revoked; kept as records, and cached for a few seconds."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from gantline.auth.api_key import (
    ApiKey,
    IssuedKey,
    KeyGrant,
    KeyState,
    KeyText,
    StoredApiKey,
    StoredSecret,
    new_key_id,
    new_key_text,
)
from gantline.auth.peppers import Peppers
from gantline.contract.clock import Clock, later
from gantline.contract.errors import (
    InvalidInput,
    KeyNotFound,
    StoreCorrupt,
    StoreError,
    VersionMismatch,
)
from gantline.contract.records import Record, RecordWrite
from gantline.contract.results import Applied
from gantline.contract.store import JobStore
from gantline.manager.records import all_records

_log = logging.getLogger("gantline.auth")

KEYS: Final = "api-keys"
USES: Final = "api-key-uses"
MAC_PURPOSE: Final = "api key"
KEEP_DEAD: Final = timedelta(days=90)
"""How long a key that expired or was revoked is still shown."""
MAX_AGE_SECONDS: Final = 5.0
"""How long a key that another process revoked may still be good here."""
REFUSE_AGE_SECONDS: Final = 0.5
"""How long a new secret of another process may still be refused here."""
_MOST_CACHED: Final = 10_000
_KEEP_USES: Final = timedelta(days=400)
_RECORD_USE_EVERY_SECONDS: Final = 3600.0
_MOST_ATTEMPTS: Final = 10

_encoder: Final = msgspec.json.Encoder(order="sorted")
_decoder: Final = msgspec.json.Decoder(StoredApiKey)

ReadKey = Callable[[str], Awaitable[StoredApiKey | None]]


class ApiKeys:
    """Make, list, rotate and revoke keys. `tenant_id` None is for the system, as in the store.

    Of a secret only its HMAC is stored, so a stolen database opens nothing, and a secret that was
    not kept when it was shown is gone. A key that is revoked or rotated here is so at once in this
    process, and within `MAX_AGE_SECONDS` in all others.
    """

    def __init__(
        self,
        store: JobStore,
        peppers: Peppers,
        *,
        clock: Clock,
        max_age_seconds: float = MAX_AGE_SECONDS,
    ) -> None:
        self._store = store
        self.peppers = peppers
        self.clock = clock
        self._cache = KeyCache(self._read, clock=clock, max_age_seconds=max_age_seconds)
        self._uses_recorded: dict[str, float] = {}

    # -- managing ---------------------------------------------------------------------------------

    async def create(
        self,
        grant: KeyGrant,
        *,
        lifetime: timedelta | None = None,
        created_by: str = "",
        key_id: str | None = None,
    ) -> IssuedKey:
        """Create a key; raise InvalidInput. Check with `may_grant` first whether the caller may.

        `key_id` is one of `new_key_id`, where the key must be named before it exists.
        """
        grant.check()
        now = self.clock.now()
        text = new_key_text(key_id or new_key_id())
        stored = StoredApiKey(
            grant=grant,
            secrets=(self._secret(text),),
            created_at=now,
            created_by=created_by,
            expires_at=_compute_end(now, lifetime),
        )
        if not await self._write(text.key_id, stored, expected=0):
            raise StoreError("A new key id is taken already.", next_step="Try again.")
        return IssuedKey(ApiKey.of(text.key_id, stored, now=now), text.text)

    async def listed(self, *, tenant_id: str | None) -> list[ApiKey]:
        """All keys, also those that are dead, oldest first."""
        records = await all_records(self._store, KEYS)
        uses = {record.key: _decode_time(record) for record in await all_records(self._store, USES)}
        now = self.clock.now()
        keys = [
            ApiKey.of(record.key, stored, now=now, last_used_at=uses.get(record.key))
            for record in records
            if (stored := _decode(record)) is not None
            and tenant_id in (None, stored.grant.tenant_id)
        ]
        return sorted(keys, key=lambda key: (key.created_at, key.id))

    async def get(self, key_id: str, *, tenant_id: str | None) -> ApiKey:
        """Raise KeyNotFound, for another tenant's key as well."""
        stored, _ = await self._find(key_id, tenant_id)
        used = await self._store.read_records(USES, prefix=key_id, limit=1)
        last_used_at = _decode_time(used[0]) if used else None
        return ApiKey.of(key_id, stored, now=self.clock.now(), last_used_at=last_used_at)

    async def rotate(
        self,
        key_id: str,
        *,
        tenant_id: str | None,
        overlap: timedelta = timedelta(hours=24),
        lifetime: timedelta | None = None,
    ) -> IssuedKey:
        """Give a key a new secret; the one it had is good for `overlap` more, older ones are not.

        `lifetime` counts from now; None leaves the key's end as it is.
        """
        text = new_key_text(key_id)

        def rotated(stored: StoredApiKey, now: datetime) -> StoredApiKey:
            if (state := stored.state(now)) is not KeyState.ACTIVE:
                raise InvalidInput(f"The key is {state}.", next_step="Make a new one.")
            old = msgspec.structs.replace(stored.secrets[0], until=later(now, overlap))
            kept = (old,) if overlap > timedelta(0) else ()
            return msgspec.structs.replace(
                stored,
                secrets=(self._secret(text), *kept),
                rotated_at=now,
                expires_at=_compute_end(now, lifetime) or stored.expires_at,
            )

        return IssuedKey(await self._change(key_id, tenant_id, rotated), text.text)

    async def revoke(self, key_id: str, *, tenant_id: str | None) -> ApiKey:
        """Make a key good for nothing, for ever. One that is revoked already stays as it is."""

        def revoked(stored: StoredApiKey, now: datetime) -> StoredApiKey:
            if stored.revoked_at is not None:
                return stored
            return msgspec.structs.replace(stored, revoked_at=now)

        return await self._change(key_id, tenant_id, revoked)

    # -- authenticating ---------------------------------------------------------------------------

    async def lookup(
        self, key_id: str, *, max_age_seconds: float | None = None
    ) -> StoredApiKey | None:
        """Read a key, from the cache while that is young enough."""
        return await self._cache.get(key_id, max_age_seconds=max_age_seconds)

    async def note_use(self, key_id: str) -> None:
        """Write down that a key is in use: once an hour and process, and never in its way."""
        now = self.clock.monotonic()
        recorded = self._uses_recorded.get(key_id)
        if recorded is not None and 0 <= now - recorded < _RECORD_USE_EVERY_SECONDS:
            return
        self._uses_recorded[key_id] = now
        value = msgspec.json.encode(self.clock.now())
        try:
            await self._store.write_records(
                [RecordWrite(USES, key_id, value, time_to_live=_KEEP_USES)]
            )
        except StoreError as error:
            _log.warning("the use of key %s could not be written down: %s", key_id, error.code)

    # -- storing ----------------------------------------------------------------------------------

    def _secret(self, text: KeyText) -> StoredSecret:
        pepper_id = self.peppers.current
        return StoredSecret(pepper_id, compute_mac(text, self.peppers, pepper_id))

    async def _read(self, key_id: str) -> StoredApiKey | None:
        records = await self._store.read_records(KEYS, prefix=key_id, limit=1)
        return _decode(records[0]) if records and records[0].key == key_id else None

    async def _find(self, key_id: str, tenant_id: str | None) -> tuple[StoredApiKey, int]:
        records = await self._store.read_records(KEYS, prefix=key_id, limit=1) if key_id else []
        for record in records:
            stored = _decode(record)
            if stored is None and record.key == key_id and tenant_id is None:
                raise StoreCorrupt(f"The record of key {key_id} cannot be read.")
            if record.key == key_id and stored and tenant_id in (None, stored.grant.tenant_id):
                return stored, record.version
        raise KeyNotFound("There is no such key.")

    async def _change(
        self,
        key_id: str,
        tenant_id: str | None,
        change: Callable[[StoredApiKey, datetime], StoredApiKey],
    ) -> ApiKey:
        for _ in range(_MOST_ATTEMPTS):
            stored, version = await self._find(key_id, tenant_id)
            now = self.clock.now()
            changed = change(stored, now)
            if changed == stored or await self._write(key_id, changed, expected=version):
                self._cache.invalidate(key_id)
                return ApiKey.of(key_id, changed, now=now)
        raise VersionMismatch("The key kept changing.", next_step="Try again.")

    async def _write(self, key_id: str, stored: StoredApiKey, *, expected: int) -> bool:
        ends = [end for end in (stored.expires_at, stored.revoked_at) if end]
        keep = min(ends) - self.clock.now() + KEEP_DEAD if ends else None
        write = RecordWrite(KEYS, key_id, _encoder.encode(stored), expected, time_to_live=keep)
        return isinstance((await self._store.write_records([write]))[0], Applied)


class KeyCache:
    """Caches keys for a few seconds, so that not every request reads one; one read for all callers.

    That a key does not exist is cached too: so the store is read alike for known and unknown keys.
    Nothing older is used, also not while the store cannot be reached.
    """

    def __init__(
        self, read: ReadKey, *, clock: Clock, max_age_seconds: float = MAX_AGE_SECONDS
    ) -> None:
        self._read = read
        self._clock = clock
        self._max_age_seconds = max_age_seconds
        self._cached: OrderedDict[str, tuple[float, StoredApiKey | None]] = OrderedDict()
        self._reading: dict[str, asyncio.Task[StoredApiKey | None]] = {}

    async def get(
        self, key_id: str, *, max_age_seconds: float | None = None
    ) -> StoredApiKey | None:
        cached = self._cached.get(key_id)
        most = self._max_age_seconds if max_age_seconds is None else max_age_seconds
        # Young enough, and not from the future: a clock may have been set.
        if cached and 0 <= self._clock.monotonic() - cached[0] < most:
            self._cached.move_to_end(key_id)
            return cached[1]
        task = self._reading.get(key_id)
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            task = asyncio.ensure_future(self._read_and_cache(key_id))
            # All callers may have given up: then nobody reads the exception.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._reading[key_id] = task
        # One caller that gives up must not cancel the read of the others.
        return await asyncio.shield(task)

    def invalidate(self, key_id: str) -> None:
        """Read the key again next time, also where it is being read now."""
        self._cached.pop(key_id, None)
        self._reading.pop(key_id, None)

    async def _read_and_cache(self, key_id: str) -> StoredApiKey | None:
        # Before the read: a change during the read may not be in its result.
        read_at = self._clock.monotonic()
        this = asyncio.current_task()
        try:
            stored = await self._read(key_id)
            if self._reading.get(key_id) is this:
                self._store_in_cache(key_id, read_at, stored)
            return stored
        finally:
            if self._reading.get(key_id) is this:
                del self._reading[key_id]

    def _store_in_cache(self, key_id: str, read_at: float, stored: StoredApiKey | None) -> None:
        self._cached[key_id] = (read_at, stored)
        self._cached.move_to_end(key_id)
        while len(self._cached) > _MOST_CACHED:
            self._cached.popitem(last=False)


def compute_mac(text: KeyText, peppers: Peppers, pepper_id: str) -> bytes:
    """What is stored of a secret. The id is part of it, so that no two keys can be exchanged."""
    message = f"{text.key_id}_{text.secret}".encode()
    return peppers.mac(MAC_PURPOSE, message, pepper_id=pepper_id)


def _compute_end(now: datetime, lifetime: timedelta | None) -> datetime | None:
    if lifetime is None:
        return None
    if lifetime <= timedelta(0):
        raise InvalidInput("A key must live for some time.", next_step="Give a longer lifetime.")
    return later(now, lifetime)


def _decode(record: Record) -> StoredApiKey | None:
    """None where it cannot be read: what is not understood opens nothing."""
    try:
        return _decoder.decode(record.value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        _log.error("key %s cannot be read; was it written by a newer Gantline?", record.key)
        return None


def _decode_time(record: Record) -> datetime | None:
    try:
        return msgspec.json.decode(record.value, type=datetime)
    except msgspec.DecodeError:
        return None

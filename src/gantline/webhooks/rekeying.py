"""Rekeying: secrets of endpoints that an older key has sealed, sealed anew by the one in use."""

from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Final

import msgspec

from gantline.contract.errors import AuthMisconfigured, StoreCorrupt
from gantline.contract.records import Record, RecordWrite
from gantline.contract.results import Applied
from gantline.contract.store import JobStore
from gantline.webhooks.endpoint import StoredEndpoint
from gantline.webhooks.endpoints import ENDPOINTS
from gantline.webhooks.vault import SealedSecret, Vault

_ROUNDS: Final = 10


class Rekeyed(msgspec.Struct, frozen=True, kw_only=True):
    """How many endpoints, of all tenants."""

    rekeyed: int = 0
    unchanged: int = 0
    unreadable: int = 0
    """Left as they are: their key is not there, or they were changed by another hand."""


class Rekeying:
    """Of all tenants at once: the key is the installation's."""

    def __init__(self, store: Callable[[], JobStore], vault: Vault) -> None:
        self._store = store
        self._vault = vault

    async def run(self, now: datetime) -> Rekeyed:
        counted = {"rekeyed": 0, "unchanged": 0, "unreadable": 0}
        async for record in self._records():
            counted[await self._rekey(record, now)] += 1
        return Rekeyed(**counted)

    async def _rekey(self, record: Record | None, now: datetime) -> str:
        """Unless somebody else changes it at the same time, again and again."""
        for _ in range(_ROUNDS):
            if record is None:
                return "unchanged"  # it was deleted
            try:
                stored = msgspec.json.decode(record.value, type=StoredEndpoint)
                secrets = tuple(self._sealed_anew(record.key, stored, now))
            except (msgspec.DecodeError, UnicodeDecodeError, AuthMisconfigured, StoreCorrupt):
                return "unreadable"
            if secrets == stored.secrets:
                return "unchanged"
            anew = msgspec.json.encode(msgspec.structs.replace(stored, secrets=secrets))
            write = RecordWrite(ENDPOINTS, record.key, anew, record.version)
            (answer,) = await self._store().write_records([write])
            if isinstance(answer, Applied):
                return "rekeyed"
            found = await self._store().read_records(ENDPOINTS, prefix=record.key, limit=1)
            record = found[0] if found else None
        return "unreadable"

    def _sealed_anew(self, of: str, stored: StoredEndpoint, now: datetime) -> list[SealedSecret]:
        """Those that still sign; one that does not must not keep its key from being taken away."""
        return [
            one
            if one.key_id == self._vault.current
            else msgspec.structs.replace(
                self._vault.seal(self._vault.open(one, of=of), of=of), until=one.until
            )
            for one in stored.good_secrets(now)
        ]

    async def _records(self) -> AsyncIterator[Record]:
        after = ""
        while page := await self._store().read_records(ENDPOINTS, prefix="", after=after):
            for record in page:
                yield record
            after = page[-1].key

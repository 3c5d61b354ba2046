"""Health: since when nothing could be delivered to an endpoint. Written when it turns, and now and
then while it is well."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import msgspec

from gantline.contract.records import RecordWrite
from gantline.contract.results import Applied
from gantline.contract.store import JobStore
from gantline.webhooks.record_keys import prefix_of, record_key

HEALTH: Final = "webhook-health"
_MOST_REMEMBERED: Final = 10_000
_KEPT: Final = timedelta(days=60)
_WELL_FOR: Final = timedelta(minutes=10)
"""So long after a success the next is written down again: another process may have failed."""


class Health:
    """What is known here; processes agree by the first failure that one of them wrote down."""

    def __init__(self, store: Callable[[], JobStore]) -> None:
        self._store = store
        self._failing: dict[str, datetime] = {}
        self._well: dict[str, datetime] = {}

    async def failed(
        self, tenant_id: str, webhook_id: UUID, at: datetime, *, anew: bool = False
    ) -> datetime:
        """Note a failure; tell since when there is nothing else. `anew` asks the store, for what is
        remembered here another process may have ended: by a success, or by enabling it."""
        key = record_key(tenant_id, webhook_id)
        self._well.pop(key, None)
        if not anew and (since := self._failing.get(key)) is not None:
            return since
        if len(self._failing) >= _MOST_REMEMBERED:  # most of them were deleted
            self._failing.clear()
        write = RecordWrite(HEALTH, key, msgspec.json.encode(at), 0, time_to_live=_KEPT)
        (answer,) = await self._store().write_records([write])
        if not isinstance(answer, Applied):
            at = (await self.failing(tenant_id)).get(webhook_id, at)
        self._failing[key] = at
        return at

    async def succeeded(self, tenant_id: str, webhook_id: UUID, at: datetime) -> None:
        """Note a success: one write in a while, and one whenever it was failing."""
        key = record_key(tenant_id, webhook_id)
        noted = self._well.get(key)
        if noted is None or not timedelta(0) <= at - noted < _WELL_FOR:
            await self.forget(tenant_id, webhook_id)
            if len(self._well) >= _MOST_REMEMBERED:
                self._well.clear()
            self._well[key] = at

    async def forget(self, tenant_id: str, webhook_id: UUID) -> None:
        key = record_key(tenant_id, webhook_id)
        self._failing.pop(key, None)
        await self._store().write_records([RecordWrite(HEALTH, key, None)])

    async def failing(self, tenant_id: str) -> dict[UUID, datetime]:
        """Those of a tenant's endpoints that fail, and since when."""
        prefix = prefix_of(tenant_id)
        records = await self._store().read_records(HEALTH, prefix=prefix)
        return {
            UUID(record.key.removeprefix(prefix)): msgspec.json.decode(record.value, type=datetime)
            for record in records
        }

"""The audit trail: who did what, and who was refused what, in the caller's tenant."""

import struct
from typing import Final

from starlette.responses import Response

from gantline.api.call import Call
from gantline.api.documents import AuditPage
from gantline.api.operation import Operations
from gantline.api.paging import bad_cursor, pack, page_response, unpack
from gantline.api.requests import AuditQuery
from gantline.audit.chain import AuditChains, AuditEvent, AuditFilter, FaultyEntry

_MOST_LOOKED_AT: Final = 2_000
# Version of the layout, version of the event.
_CURSOR: Final = struct.Struct(">BQ")
_LAYOUT: Final = 1
_LAST: Final = 10**15


class AuditTrail(Operations):
    async def listed(self, call: Call) -> Response:
        query: AuditQuery = call.query
        tenant_id = await self._access.tenant(call, query.tenant_id)
        below = None if query.cursor is None else _read_cursor(query.cursor)
        audit_filter = AuditFilter(
            aggregate=query.aggregate, actor=query.actor, action=query.action, since=query.since
        )
        items, further = await self._page(tenant_id, audit_filter, below, query.limit)
        cursor = None if further is None else pack(_CURSOR.pack(_LAYOUT, further))
        return page_response(call, AuditPage(items=items, next_cursor=cursor))

    async def _page(
        self, tenant_id: str, audit_filter: AuditFilter, below: int | None, limit: int
    ) -> tuple[list[AuditEvent], int | None]:
        """The next events that match, and below which version to go on, if there is more.

        A filter that hardly anything matches is answered in several short pages.
        """
        items: list[AuditEvent] = []
        last, looked_at = below, 0
        async for event in AuditChains(self._jobs.store).events(tenant_id, below=below):
            if isinstance(event, FaultyEntry):
                continue
            if len(items) == limit or looked_at == _MOST_LOOKED_AT:
                return items, last
            if audit_filter.is_past(event):
                break
            looked_at += 1
            # One that was given another version by hand must not lead back to the beginning.
            last = event.version if last is None else min(last, event.version)
            if audit_filter.matches(event):
                items.append(event)
        return items, None


def _read_cursor(text: str) -> int:
    version: int
    try:
        layout, version = _CURSOR.unpack(unpack(text))
    except struct.error:
        raise bad_cursor() from None
    if layout != _LAYOUT or not 1 <= version <= _LAST:
        raise bad_cursor()
    return version

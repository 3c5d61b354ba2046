"""The log: history and events."""

from typing import Final
from uuid import UUID

from gantline.contract.snapshot import LogEntry, LoggedEvent
from gantline.stores.redis import scripts
from gantline.stores.redis.calls import Calls, check_moved_on
from gantline.stores.redis.rows import encode_tenant, read_lane, read_row

_ROWS_AT_ONCE: Final = 500


async def history(calls: Calls, job_id: UUID, tenant_id: str | None) -> list[LogEntry]:
    rows: list[LogEntry] = []
    number = 0
    while True:
        response = await calls.run(scripts.HISTORY, job_id.bytes, number, _ROWS_AT_ONCE)
        if not response:
            return []
        before, (tenant, number, *page) = number, response
        check_moved_on(number < before or not before)
        if tenant_id is not None and tenant.decode() != encode_tenant(tenant_id):
            return []
        rows += [read_row(row).entry for row in page]
        if not number:
            return rows[::-1]


async def events(calls: Calls, *, after: int, limit: int) -> list[LoggedEvent]:
    found: list[LoggedEvent] = []
    after = max(0, after)
    while len(found) < limit:
        looked, names, *page = await calls.run(
            scripts.EVENTS, after, min(_ROWS_AT_ONCE, limit - len(found))
        )
        known = dict(zip(names[::2], names[1::2], strict=True))
        for number, row in zip(page[::2], page[1::2], strict=True):
            entry, lane, tenant = read_row(row)
            tenant_id, job_type = known[tenant][1:].decode(), read_lane(known[lane]).job_type
            found.append(LoggedEvent(number, tenant_id, job_type, entry))
        if not looked:
            break
        check_moved_on(looked > after)
        after = looked
    return found

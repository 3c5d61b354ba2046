"""The log: history and events."""

from typing import Final
from uuid import UUID

from gantline.contract.snapshot import LogEntry, LoggedEvent
from gantline.stores.redis import scripts
from gantline.stores.redis.calls import Calls
from gantline.stores.redis.connection import Argument
from gantline.stores.redis.rows import encode_tenant, read_lane, read_row

_ROWS_AT_ONCE: Final = 500


async def history(calls: Calls, job_id: UUID, tenant_id: str | None) -> list[LogEntry]:
    rows: list[LogEntry] = []
    number = 0
    while True:
        arguments: list[Argument] = [job_id.bytes, number, _ROWS_AT_ONCE]
        response = (await calls.run(scripts.HISTORY, arguments)).value
        if not response:
            return []
        tenant, number, *page = response
        if tenant_id is not None and tenant.decode() != encode_tenant(tenant_id):
            return []
        rows += [read_row(row).entry for row in page]
        if not number:
            return rows[::-1]


async def events(calls: Calls, *, after: int, limit: int) -> list[LoggedEvent]:
    found: list[LoggedEvent] = []
    after = max(0, after)
    while len(found) < limit:
        arguments: list[Argument] = [after, min(_ROWS_AT_ONCE, limit - len(found))]
        looked, names, *page = (await calls.run(scripts.EVENTS, arguments)).value
        known = dict(zip(names[::2], names[1::2], strict=True))
        for number, row in zip(page[::2], page[1::2], strict=True):
            entry, lane, tenant = read_row(row)
            tenant_id, job_type = known[tenant][1:].decode(), read_lane(known[lane]).job_type
            found.append(LoggedEvent(number, tenant_id, job_type, entry))
        if not looked:
            break
        after = looked
    return found

"""Flow: which groups wait and run, and the state of gates."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from gantline.contract.flow import (
    PLAIN,
    GateState,
    GroupPage,
    GroupState,
    group_number,
    read_position,
)
from gantline.contract.job import DEFAULT_TENANT
from gantline.contract.job_id import uuid_from_bytes
from gantline.contract.text import is_storable
from gantline.stores.redis import scripts
from gantline.stores.redis.calls import Calls, check_moved_on, each_of, in_batches
from gantline.stores.redis.rows import encode_tenant, read_instant, unpack_job

_MOST_AT_ONCE: Final = 200


async def groups(
    calls: Calls, lane: str, *, tenant_id: str | None, limit: int, after: str, now: bytes
) -> GroupPage:
    """Read a page. A position is the last group: its number, after its tenant's if all are read."""
    begin, most = _read_position(after, tenant_id), min(limit, _MOST_AT_ONCE)
    if not most:
        return GroupPage((), after)
    reply = await calls.run(scripts.LIST_GROUPS, now, lane, encode_tenant(tenant_id), begin, most)
    has_more, *found = reply
    check_moved_on(has_more == 0 or (has_more == 1 and bool(found)))
    items = tuple(_read_group(*one) for _, *one in found)
    more = _position(found[-1][0], tenant_id) if has_more else ""
    return GroupPage(tuple(filter(None, items)), more)


def _read_position(after: str, tenant_id: str | None) -> str:
    if not after:
        return ""
    *tenant, group = read_position(after, 2 if tenant_id is None else 1)
    return f"{tenant[0] if tenant else ''}:{group:016x}"


def _position(turn: bytes, tenant_id: str | None) -> str:
    tenant, _, group = turn.partition(b":")
    number = str(int(group, 16))
    return number if tenant_id is not None else f"{int(tenant)}:{number}"


def _read_group(
    queued: int, running: int, oldest: int, job_id: bytes, envelope: bytes
) -> GroupState | None:
    """Read a group. None where all that is left of it was removed by hand."""
    tenant_id, group = DEFAULT_TENANT, ""
    if job_id:
        if not envelope:
            return None
        job = unpack_job(uuid_from_bytes(job_id), envelope)
        tenant_id, group = job.tenant_id, job.group
    return GroupState(
        tenant_id=tenant_id,
        group=group,
        waiting=queued,
        running=running,
        oldest_due_at=read_instant(oldest) if oldest >= 0 else None,
    )


async def count_queued(calls: Calls, lane: str, *, tenant_id: str, group: str) -> int:
    number = group_number(tenant_id, group)
    encoded = "" if number == PLAIN else f"{number:016x}"
    return int(await calls.run(scripts.QUEUED_OF_GROUP, lane, encode_tenant(tenant_id), encoded))


async def gates(calls: Calls, names: Sequence[str]) -> list[GateState]:
    stored = [name for name in dict.fromkeys(names) if is_storable(name)]
    found: dict[str, GateState] = {}
    for batch in in_batches(stored, _MOST_AT_ONCE):
        reply = await calls.run(scripts.GATES, *batch)
        for name, (next_at, closed_until) in zip(batch, each_of([reply], [batch]), strict=True):
            found[name] = GateState(name, _instant(closed_until), _instant(next_at))
    return [found.get(name) or GateState(name) for name in names]


def _instant(micros: int) -> datetime | None:
    return read_instant(micros) if micros else None

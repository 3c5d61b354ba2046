"""Counts: how many jobs are in which lane and status. They are kept with every move."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from gantline.contract.query import DeadCount, LaneCounts
from gantline.contract.status import JobStatus
from gantline.stores.redis import scripts
from gantline.stores.redis.calls import Calls
from gantline.stores.redis.rows import STATUSES, encode_tenant, read_instant, read_lane

_LOOK_AT_ONCE: Final = 2000
_NAMES: Final = {letter: status.value.lower() for letter, status in STATUSES.items()}


async def counts(calls: Calls, tenant_id: str | None, now: bytes) -> list[LaneCounts]:
    tenant, at, *lanes = await calls.run(scripts.COUNTS, now, encode_tenant(tenant_id))
    counted: list[LaneCounts] = []
    for name, statuses, scheduled, oldest, queued_by_all, sets in lanes:
        queue, job_type = read_lane(name)
        one = LaneCounts(queue=queue, job_type=job_type)
        for letter, jobs in zip(statuses[::2], statuses[1::2], strict=True):
            setattr(one, _NAMES[letter], jobs)
        if one.queued and one.queued != queued_by_all:
            scheduled, oldest = await _count_waiting(calls, sets, tenant, at)
        if one.queued:
            one.scheduled = scheduled
            one.oldest_due_at = read_instant(oldest) if oldest >= 0 else None
        counted.append(one)
    return sorted(counted, key=lambda one: (one.queue, one.job_type))


async def _count_waiting(
    calls: Calls, sets: Sequence[bytes], tenant: int, now: int
) -> tuple[int, int]:
    """Count a tenant's jobs that are not due yet, and find since when its oldest is due."""
    scheduled, oldest = 0, []
    for one in sets:
        first = 0
        while True:
            looked, later, due = await calls.run(
                scripts.WAITING, now, one, tenant, first, _LOOK_AT_ONCE
            )
            scheduled += later
            oldest += [due] if due >= 0 else []
            first += looked
            if looked < _LOOK_AT_ONCE:
                break
    return scheduled, min(oldest, default=-1)


async def dead_counts(calls: Calls, tenant_id: str | None) -> list[DeadCount]:
    groups: defaultdict[tuple[str, JobStatus, str], list[tuple[int, int]]] = defaultdict(list)
    for name, letter, reason, jobs, newest in await calls.run(
        scripts.DEAD_COUNTS, encode_tenant(tenant_id)
    ):
        group = (read_lane(name).job_type, STATUSES[letter], reason.decode())
        groups[group].append((jobs, newest))
    return [
        DeadCount(
            job_type=kind,
            status=status,
            reason=reason,
            jobs=sum(jobs for jobs, _ in some),
            newest_at=read_instant(max(newest for _, newest in some)),
        )
        for (kind, status, reason), some in sorted(groups.items())
    ]

"""Reading jobs: by id, and page by page.

There is a list per lane, tenant and status; a page is merged from those that the filter selects.
Each step reads a little of every list. A list that was not read to its end was read down to a
position; above the newest of these positions, the horizon, no job is missing.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from heapq import merge
from typing import Final, NamedTuple
from uuid import UUID

from gantline.contract.clock import to_micros
from gantline.contract.job import Job
from gantline.contract.job_id import uuid_from_bytes
from gantline.contract.query import Cursor, JobFilter, Page
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.status import JobStatus
from gantline.contract.webhook import RESERVED_TYPES
from gantline.stores.filters import matches
from gantline.stores.redis import scripts
from gantline.stores.redis.calls import Calls, check_moved_on, in_batches
from gantline.stores.redis.rows import (
    CREATED_SIZE,
    STATUSES,
    Lane,
    encode_sortable,
    encode_tenant,
    read_instant,
    read_lane,
    read_snapshot,
)

_READ_AT_ONCE: Final = 200
_LISTS_AT_ONCE: Final = 200
_TENANTS_AT_ONCE: Final = 200
_LEAST_OF_A_LIST: Final = 8
_MOST_OF_A_LIST: Final = 400
# What has no list of its own is looked for job by job; then a page may be short.
_MOST_PASSED_OVER: Final = 20_000


async def get(
    calls: Calls, job_ids: Sequence[UUID], tenant_id: str | None
) -> list[JobSnapshot | None]:
    found: dict[UUID, JobSnapshot] = {}
    for batch in in_batches([*dict.fromkeys(job_ids)], _READ_AT_ONCE):
        reply = await calls.run(scripts.GET, *(one.bytes for one in batch))
        for job_id, item in zip(batch, reply, strict=True):
            if item:
                found[job_id] = read_snapshot(job_id, *item)
    jobs = [found.get(job_id) for job_id in job_ids]
    return [job if job and tenant_id in (None, job.job.tenant_id) else None for job in jobs]


# -- lists ----------------------------------------------------------------------------------------


async def find(
    calls: Calls, filter: JobFilter, *, limit: int, after: Cursor | None, now: bytes
) -> Page:
    narrowed = filter.narrowed()
    if narrowed is None or limit == 0:
        return Page((), None)
    at = read_instant(await calls.run(scripts.PING, now)) if narrowed.asks_for_time else None
    found: list[JobSnapshot] = []
    jobs = _iterate_newest_first(calls, narrowed, limit, after)
    if (first := await _find_by_own_id(calls, narrowed, after)) is not None:
        jobs = _merge_one(first, jobs)
    passed_over = 0
    async for job in jobs:
        if matches(narrowed, job, at):
            found.append(job)
            if len(found) > limit:
                return Page(tuple(found[:limit]), _cursor_at(found[limit - 1]))
            continue
        passed_over += 1
        if passed_over == _MOST_PASSED_OVER:
            return Page(tuple(found[:limit]), _cursor_at(job))
    return Page(tuple(found), None)


def _cursor_at(job: JobSnapshot) -> Cursor:
    return Cursor(job.job.created_at, job.job.job_id)


async def _find_by_own_id(
    calls: Calls, filter: JobFilter, after: Cursor | None
) -> JobSnapshot | None:
    """Find the job whose own id is the correlation: it is not listed by it."""
    job_id = _parse_id(filter.correlation_id)
    if job_id is None or filter.parent_job_id:
        return None
    (found,) = await get(calls, [job_id], filter.tenant_id)
    if found is None or found.job.correlation_id != filter.correlation_id:
        return None
    is_after = after is None or _order(found.job) < (after.created_at, after.job_id)
    return found if is_after else None


def _parse_id(correlation_id: str | None) -> UUID | None:
    try:
        return UUID(correlation_id) if correlation_id else None
    except ValueError:
        return None


def _order(job: Job) -> tuple[datetime, UUID]:
    return job.created_at, job.job_id


async def _merge_one(
    one: JobSnapshot, others: AsyncIterator[JobSnapshot]
) -> AsyncIterator[JobSnapshot]:
    """Insert one among others, which come newest first."""
    is_yielded = False
    async for job in others:
        if not is_yielded and _order(job.job) < _order(one.job):
            is_yielded = True
            yield one
        yield job
    if not is_yielded:
        yield one


async def _iterate_newest_first(
    calls: Calls, filter: JobFilter, limit: int, after: Cursor | None
) -> AsyncIterator[JobSnapshot]:
    lists = await find_lists(calls, filter)
    begin, end = _find_bounds(filter, after)
    while lists:
        share = 2 * (limit + 1) // len(lists)
        most = max(_LEAST_OF_A_LIST, min(limit + 1, share, _MOST_OF_A_LIST))
        windows = await _read_windows(calls, lists, begin, end, most)
        horizon = max((some[-1] for some in windows if len(some) == most), default=b"")
        positions = dict.fromkeys(merge(*windows, reverse=True))
        sure = [uuid_from_bytes(one[CREATED_SIZE:]) for one in positions if one >= horizon]
        for batch in in_batches(sure, min(limit + 1, _READ_AT_ONCE)):
            for job in await get(calls, batch, None):
                if job:
                    yield job
        if not horizon:
            return
        lists = [
            one
            for one, some in zip(lists, windows, strict=True)
            if len(some) == most or (some and some[-1] < horizon)
        ]
        begin = b"(" + horizon


async def _read_windows(
    calls: Calls, lists: Sequence[str], begin: bytes, end: bytes, most: int
) -> list[list[bytes]]:
    windows: list[list[bytes]] = []
    for batch in in_batches(lists, _LISTS_AT_ONCE):
        windows += await calls.run(scripts.WINDOW, begin, end, most, *batch)
    return windows


def _find_bounds(filter: JobFilter, after: Cursor | None) -> tuple[bytes, bytes]:
    """Find the first and last position to read in each list, newest first."""
    begin, end = b"+", b"-"
    if filter.created_before:
        begin = b"(" + _encode_instant(filter.created_before)
    if after:
        position = b"(" + _encode_instant(after.created_at) + after.job_id.bytes
        begin = position if begin == b"+" else min(begin, position)
    if filter.created_from:
        end = b"[" + _encode_instant(filter.created_from)
    return begin, end


def _encode_instant(created_at: datetime) -> bytes:
    return encode_sortable(to_micros(created_at))


class _TenantCounts(NamedTuple):
    """How many jobs of one tenant there are by lane and status."""

    tenant: int
    jobs: dict[tuple[int, JobStatus], int]


async def find_lists(calls: Calls, filter: JobFilter) -> list[str]:
    tenants, lanes = await _read_tenant_counts(calls, filter.tenant_id)
    whose, statuses = filter.whose, filter.stored_statuses
    if filter.parent_job_id:
        return [f"by-parent:{one.tenant}:{filter.parent_job_id.hex}" for one in tenants]
    if filter.correlation_id:
        return [f"by-correlation:{one.tenant}:{filter.correlation_id}" for one in tenants]
    if filter.subject_id:
        return [f"by-subject:{one.tenant}:{filter.subject_id}" for one in tenants]
    if filter.created_by:
        return [f"by-owner:{one.tenant}:{filter.created_by}" for one in tenants]
    if whose is not None:
        names = [f"by-subject:{{}}:{subject}" for subject in sorted(whose.granted)]
        names += [f"by-owner:{{}}:{whose.owner}"] if whose.owner else []
        return [name.replace("{}", str(one.tenant), 1) for one in tenants for name in names]
    return [
        f"list:{lane}:{one.tenant}:{_LETTER_OF[status]}"
        for one in tenants
        for lane, status in one.jobs
        if (not statuses or status in statuses)
        and (not filter.job_types or lanes[lane].job_type in filter.job_types)
        and (not filter.queues or lanes[lane].queue in filter.queues)
        and (filter.internal or not lanes[lane].job_type.startswith(RESERVED_TYPES))
    ]


_LETTER_OF: Final = {status: letter.decode() for letter, status in STATUSES.items()}


async def _read_tenant_counts(
    calls: Calls, tenant_id: str | None
) -> tuple[list[_TenantCounts], dict[int, Lane]]:
    found: list[_TenantCounts] = []
    lanes: dict[int, Lane] = {}
    first = 1
    while first:
        last, *tenants, names = await calls.run(
            scripts.PLACES_OF, encode_tenant(tenant_id), first, _TENANTS_AT_ONCE
        )
        for tenant, counted in tenants:
            found.append(_TenantCounts(tenant, _by_lane(counted)))
        for number, name in zip(names[::2], names[1::2], strict=True):
            lanes[int(number)] = read_lane(name)
        check_moved_on(last >= first or not last)
        first = last + 1 if last else 0
    return found, lanes


def _by_lane(counted: Sequence[bytes]) -> dict[tuple[int, JobStatus], int]:
    jobs: dict[tuple[int, JobStatus], int] = {}
    for field, number in zip(counted[::2], counted[1::2], strict=True):
        lane, _, letter = field.partition(b":")
        jobs[int(lane), STATUSES[letter]] = int(number)
    return jobs

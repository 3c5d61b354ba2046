"""Reading: jobs by id, lists page by page, the log.

A list is kept per lane, tenant and status; a page is merged from those that the filter admits. Each
step reads a little of every list: down to the newest of the places where a list was not read to its
end, nothing can be missing.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from heapq import merge
from typing import Final, NamedTuple
from uuid import UUID

from gantline.contract.clock import to_micros
from gantline.contract.identity import uuid_from_bytes
from gantline.contract.job import Job
from gantline.contract.query import Cursor, JobFilter, Page
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.status import JobStatus
from gantline.stores.filters import matches
from gantline.stores.redis import scripts
from gantline.stores.redis.calls import Calls, in_batches
from gantline.stores.redis.connection import Argument
from gantline.stores.redis.rows import (
    CREATED_SIZE,
    STATUSES,
    Lane,
    read_lane,
    snapshot_from,
    sortable,
    tenant_name,
)

_READ_AT_ONCE: Final = 200
_LISTS_AT_ONCE: Final = 200
_TENANTS_AT_ONCE: Final = 200
_LEAST_OF_A_LIST: Final = 8
_MOST_OF_A_LIST: Final = 400


async def get(
    calls: Calls, job_ids: Sequence[UUID], tenant_id: str | None
) -> list[JobSnapshot | None]:
    found: dict[UUID, JobSnapshot] = {}
    for batch in in_batches([*dict.fromkeys(job_ids)], _READ_AT_ONCE):
        reply = await calls.run(scripts.GET, [one.bytes for one in batch])
        for job_id, answer in zip(batch, reply.value, strict=True):
            if answer:
                found[job_id] = snapshot_from(job_id, *answer)
    jobs = [found.get(job_id) for job_id in job_ids]
    return [job if job and tenant_id in (None, job.job.tenant_id) else None for job in jobs]


# -- lists ----------------------------------------------------------------------------------------


async def find(calls: Calls, wanted: JobFilter, *, limit: int, after: Cursor | None) -> Page:
    narrowed = wanted.narrowed()
    if narrowed is None or limit == 0:
        return Page((), None)
    found: list[JobSnapshot] = []
    jobs = _newest_first(calls, narrowed, limit, after)
    if (first := await _namesake(calls, narrowed, after)) is not None:
        jobs = _with(first, jobs)
    async for job in jobs:
        if matches(narrowed, job.job, job.status, job.last.reason if job.last else ""):
            found.append(job)
            if len(found) > limit:
                break
    items = tuple(found[:limit])
    is_more = len(found) > limit
    last = items[-1].job if items else None
    return Page(items, Cursor(last.created_at, last.job_id) if last and is_more else None)


async def _namesake(calls: Calls, wanted: JobFilter, after: Cursor | None) -> JobSnapshot | None:
    """The job whose own id is the correlation, which is in no list by it."""
    job_id = _as_id(wanted.correlation_id)
    if job_id is None or wanted.parent_job_id:
        return None
    (found,) = await get(calls, [job_id], wanted.tenant_id)
    if found is None or found.job.correlation_id != wanted.correlation_id:
        return None
    is_after = after is None or _order(found.job) < (after.created_at, after.job_id)
    return found if is_after else None


def _as_id(correlation_id: str | None) -> UUID | None:
    try:
        return UUID(correlation_id) if correlation_id else None
    except ValueError:
        return None


def _order(job: Job) -> tuple[datetime, UUID]:
    return job.created_at, job.job_id


async def _with(one: JobSnapshot, others: AsyncIterator[JobSnapshot]) -> AsyncIterator[JobSnapshot]:
    """Put one in its place among others, which come newest first."""
    is_told = False
    async for job in others:
        if not is_told and _order(job.job) < _order(one.job):
            is_told = True
            yield one
        yield job
    if not is_told:
        yield one


async def _newest_first(
    calls: Calls, wanted: JobFilter, limit: int, after: Cursor | None
) -> AsyncIterator[JobSnapshot]:
    lists = await lists_of(calls, wanted)
    begin, end = _bounds(wanted, after)
    while lists:
        share = 2 * (limit + 1) // len(lists)
        most = max(_LEAST_OF_A_LIST, min(limit + 1, share, _MOST_OF_A_LIST))
        windows = await _windows(calls, lists, begin, end, most)
        horizon = max((some[-1] for some in windows if len(some) == most), default=b"")
        places = dict.fromkeys(merge(*windows, reverse=True))
        sure = [uuid_from_bytes(one[CREATED_SIZE:]) for one in places if one >= horizon]
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


async def _windows(
    calls: Calls, lists: Sequence[str], begin: bytes, end: bytes, most: int
) -> list[list[bytes]]:
    windows: list[list[bytes]] = []
    for batch in in_batches(lists, _LISTS_AT_ONCE):
        said: list[Argument] = [begin, end, most, *batch]
        windows += (await calls.run(scripts.WINDOW, said)).value
    return windows


def _bounds(wanted: JobFilter, after: Cursor | None) -> tuple[bytes, bytes]:
    """Between which places, as they stand in a list, newest first."""
    begin, end = b"+", b"-"
    if wanted.created_before:
        begin = b"(" + _place(wanted.created_before)
    if after:
        behind = b"(" + _place(after.created_at) + after.job_id.bytes
        begin = behind if begin == b"+" else min(begin, behind)
    if wanted.created_from:
        end = b"[" + _place(wanted.created_from)
    return begin, end


def _place(created_at: datetime) -> bytes:
    return sortable(to_micros(created_at))


class _Places(NamedTuple):
    """Of one tenant, how many jobs there are by lane and status."""

    tenant: int
    jobs: dict[tuple[int, JobStatus], int]


async def lists_of(calls: Calls, wanted: JobFilter) -> list[str]:
    places, lanes = await _all_places(calls, wanted.tenant_id)
    whose = wanted.whose
    if wanted.parent_job_id:
        return [f"by-parent:{one.tenant}:{wanted.parent_job_id.hex}" for one in places]
    if wanted.correlation_id:
        return [f"by-correlation:{one.tenant}:{wanted.correlation_id}" for one in places]
    if wanted.subject_id:
        return [f"by-subject:{one.tenant}:{wanted.subject_id}" for one in places]
    if wanted.created_by:
        return [f"by-owner:{one.tenant}:{wanted.created_by}" for one in places]
    if whose is not None:
        names = [f"by-subject:{{}}:{subject}" for subject in sorted(whose.granted)]
        names += [f"by-owner:{{}}:{whose.owner}"] if whose.owner else []
        return [name.replace("{}", str(one.tenant), 1) for one in places for name in names]
    return [
        f"list:{lane}:{one.tenant}:{_LETTER_OF[status]}"
        for one in places
        for lane, status in one.jobs
        if (not wanted.statuses or status in wanted.statuses)
        and (not wanted.job_types or lanes[lane].job_type in wanted.job_types)
        and (not wanted.queues or lanes[lane].queue in wanted.queues)
    ]


_LETTER_OF: Final = {status: letter.decode() for letter, status in STATUSES.items()}


async def _all_places(calls: Calls, tenant_id: str | None) -> tuple[list[_Places], dict[int, Lane]]:
    places: list[_Places] = []
    lanes: dict[int, Lane] = {}
    first = 1
    while first:
        said: list[Argument] = [
            b"" if tenant_id is None else tenant_name(tenant_id),
            first,
            _TENANTS_AT_ONCE,
        ]
        last, *tenants, names = (await calls.run(scripts.PLACES_OF, said)).value
        for tenant, counted in tenants:
            places.append(_Places(tenant, _by_lane(counted)))
        for number, name in zip(names[::2], names[1::2], strict=True):
            lanes[int(number)] = read_lane(name)
        first = last + 1 if last else 0
    return places, lanes


def _by_lane(counted: Sequence[bytes]) -> dict[tuple[int, JobStatus], int]:
    jobs: dict[tuple[int, JobStatus], int] = {}
    for place, number in zip(counted[::2], counted[1::2], strict=True):
        lane, _, letter = place.partition(b":")
        jobs[int(lane), STATUSES[letter]] = int(number)
    return jobs


# -- the log --------------------------------------------------------------------------------------

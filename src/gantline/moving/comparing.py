"""Comparing two stores: by checksums page by page, and by item only where those differ."""

import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from hashlib import sha256
from typing import Any, Final

import msgspec

from gantline.contract.status import JobStatus
from gantline.contract.store import JobStore
from gantline.contract.stored import Part, Stored, StoredJob

_BUCKETS: Final = 4096
_SUM: Final = 2**256
_MOST_NAMED: Final = 5
_ABSENT: Final = "nothing"

ItemFilter = Callable[[Stored], bool]
LaneStatus = tuple[str, str, str, str]
"""Tenant, queue, type and status."""

_encode: Final = msgspec.json.Encoder(order="deterministic").encode


async def read_pages(store: JobStore, part: Part, limit: int) -> AsyncIterator[tuple[Stored, ...]]:
    """A part of a store, page by page."""
    after = ""
    while True:
        page = await store.dump(part, after=after, limit=limit)
        if page.items:
            yield page.items
        after = page.next
        if not after:
            return


class Checksums:
    """What a store holds of one part, as sums over few buckets: in whatever order it came."""

    def __init__(self) -> None:
        self.sums = [0] * _BUCKETS
        self.items = 0
        self.jobs: Counter[LaneStatus] = Counter()

    def add(self, item: Stored) -> None:
        bucket = choose_bucket(item)
        self.sums[bucket] = (self.sums[bucket] + _checksum(item)) % _SUM
        self.items += 1
        if isinstance(item, StoredJob):
            job = item.job
            self.jobs[job.tenant_id, job.queue, job.job_type, item.status.value] += 1

    def first_difference(self, other: "Checksums") -> int | None:
        """A bucket in which the two differ."""
        return next((at for at in range(_BUCKETS) if self.sums[at] != other.sums[at]), None)


def choose_bucket(item: Stored) -> int:
    return zlib.crc32(item.name.encode("utf-8", "surrogatepass")) % _BUCKETS


def _checksum(item: Stored) -> int:
    content: object = item
    if isinstance(item, StoredJob):
        # Field by field: an envelope leaves defaults out, but only those that are the same object.
        job, *rest = msgspec.structs.astuple(item)
        content = (msgspec.structs.astuple(job), rest)
    return int.from_bytes(sha256(_encode(content)).digest(), "big")


async def find_wrong_count(store: JobStore, jobs: Counter[LaneStatus]) -> str:
    """Compare what a store counts with what it holds; say what differs, empty for nothing."""
    counted: Counter[LaneStatus] = Counter()
    for tenant in {key[0] for key in jobs}:
        for lane in await store.counts(tenant_id=tenant):
            for name in map(str, JobStatus):
                counted[tenant, lane.queue, lane.job_type, name] += getattr(lane, name.lower())
    wrong = sorted(key for key in {*jobs, *counted} if jobs[key] != counted[key])
    if not wrong:
        return ""
    tenant, queue, kind, status = wrong[0]
    return f"the count of {status} {kind!r} in {queue!r} of tenant {tenant!r}"


async def find_differences(
    source: JobStore,
    target: JobStore,
    part: Part,
    bucket: int,
    *,
    is_compared: ItemFilter,
    limit: int,
) -> list[str]:
    """Say in which items of a bucket two stores differ, and in which field first."""
    held = [
        await _read_bucket(store, part, bucket, is_compared, limit) for store in (source, target)
    ]
    here, there = held
    found = [
        f"{name}: {_describe(here.get(name), there.get(name))}"
        for name in sorted({*here, *there})
        if here.get(name) != there.get(name)
    ]
    return found[:_MOST_NAMED] or [f"the {part} changed while they were compared"]


async def _read_bucket(
    store: JobStore, part: Part, bucket: int, is_compared: ItemFilter, limit: int
) -> dict[str, Stored]:
    return {
        item.name: item
        async for page in read_pages(store, part, limit)
        for item in page
        if is_compared(item) and choose_bucket(item) == bucket
    }


def _describe(here: Stored | None, there: Stored | None) -> str:
    if here is None or there is None:
        return f"it is only at the {'target' if here is None else 'source'}"
    field, one, other = _find_first(_fields(here), _fields(there), "")
    # Payloads, results and values may be anybody's data: only plain ones are shown.
    shown = f" ({one!r} at the source, {other!r} at the target)" if _is_plain(one, other) else ""
    return f"{field} differs{shown}"


def _is_plain(*values: Any) -> bool:
    return all(isinstance(value, int | float) or value is None for value in values)


def _fields(value: Any) -> Any:
    match value:
        case msgspec.Struct():
            names = value.__struct_fields__
            return {name: _fields(getattr(value, name)) for name in names}
        case tuple():
            return [_fields(one) for one in value]
        case _:
            return value


def _find_first(here: Any, there: Any, path: str) -> tuple[str, Any, Any]:
    """The first field that differs, with both values."""
    if isinstance(here, dict) and isinstance(there, dict):
        for key in (*here, *(key for key in there if key not in here)):
            if here.get(key, _ABSENT) != there.get(key, _ABSENT):
                return _find_first(here.get(key), there.get(key), f"{path}.{key}" if path else key)
    if isinstance(here, list) and isinstance(there, list) and len(here) == len(there):
        for at, (one, other) in enumerate(zip(here, there, strict=True)):
            if one != other:
                return _find_first(one, other, f"{path}[{at}]")
    return path, here, there

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
_MOST_TOLD: Final = 5
_ABSENT: Final = "nothing"

Wanted = Callable[[Stored], bool]
Place = tuple[str, str, str, str]
"""Tenant, queue, type and status."""

_encode: Final = msgspec.json.Encoder(order="deterministic").encode


async def pages(store: JobStore, part: Part, limit: int) -> AsyncIterator[tuple[Stored, ...]]:
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
        self.jobs: Counter[Place] = Counter()

    def add(self, item: Stored) -> None:
        bucket = bucket_of(item)
        self.sums[bucket] = (self.sums[bucket] + _checksum(item)) % _SUM
        self.items += 1
        if isinstance(item, StoredJob):
            job = item.job
            self.jobs[job.tenant_id, job.queue, job.job_type, item.status.value] += 1

    def first_difference(self, other: "Checksums") -> int | None:
        """A bucket in which the two differ."""
        return next((at for at in range(_BUCKETS) if self.sums[at] != other.sums[at]), None)


def bucket_of(item: Stored) -> int:
    return zlib.crc32(item.name.encode("utf-8", "surrogatepass")) % _BUCKETS


def _checksum(item: Stored) -> int:
    said: object = item
    if isinstance(item, StoredJob):
        # Field by field: an envelope leaves defaults out, but only those that are the same object.
        job, *rest = msgspec.structs.astuple(item)
        said = (msgspec.structs.astuple(job), rest)
    return int.from_bytes(sha256(_encode(said)).digest(), "big")


async def wrong_count(store: JobStore, jobs: Counter[Place]) -> str:
    """What a store counts must be what it holds; say what is not, empty where all is."""
    counted: Counter[Place] = Counter()
    for tenant in {place[0] for place in jobs}:
        for lane in await store.counts(tenant_id=tenant):
            for name in map(str, JobStatus):
                place = (tenant, lane.queue, lane.job_type, name)
                counted[place] += getattr(lane, name.lower())
    wrong = sorted(place for place in {*jobs, *counted} if jobs[place] != counted[place])
    if not wrong:
        return ""
    tenant, queue, kind, status = wrong[0]
    return f"the count of {status} {kind!r} in {queue!r} of tenant {tenant!r}"


async def differences(
    source: JobStore, target: JobStore, part: Part, bucket: int, *, wanted: Wanted, limit: int
) -> list[str]:
    """Say in which items of a bucket two stores differ, and in which field first."""
    held = [await _bucket(store, part, bucket, wanted, limit) for store in (source, target)]
    here, there = held
    told = [
        f"{name}: {_difference(here.get(name), there.get(name))}"
        for name in sorted({*here, *there})
        if here.get(name) != there.get(name)
    ]
    return told[:_MOST_TOLD] or [f"the {part} changed while they were compared"]


async def _bucket(
    store: JobStore, part: Part, bucket: int, wanted: Wanted, limit: int
) -> dict[str, Stored]:
    return {
        item.name: item
        async for page in pages(store, part, limit)
        for item in page
        if wanted(item) and bucket_of(item) == bucket
    }


def _difference(here: Stored | None, there: Stored | None) -> str:
    if here is None or there is None:
        return f"it is only at the {'target' if here is None else 'source'}"
    field, one, other = _first(_fields(here), _fields(there), "")
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


def _first(here: Any, there: Any, path: str) -> tuple[str, Any, Any]:
    """The first field that differs, with both values."""
    if isinstance(here, dict) and isinstance(there, dict):
        for key in (*here, *(key for key in there if key not in here)):
            if here.get(key, _ABSENT) != there.get(key, _ABSENT):
                return _first(here.get(key), there.get(key), f"{path}.{key}" if path else key)
    if isinstance(here, list) and isinstance(there, list) and len(here) == len(there):
        for at, (one, other) in enumerate(zip(here, there, strict=True)):
            if one != other:
                return _first(one, other, f"{path}[{at}]")
    return path, here, there

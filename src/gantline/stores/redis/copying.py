"""dump, load and clear: all that a prefix holds, page by page, on its way to or from elsewhere.

Jobs are read by the lists that they are in, keys by their ends or by the job that holds them: a
hash could only be scanned, which may give the same item twice.
"""

import struct
from collections.abc import Sequence
from typing import Any, Final, assert_never

import msgspec

from gantline.contract.clock import to_micros
from gantline.contract.errors import StoreCorrupt
from gantline.contract.identity import uuid_from_bytes
from gantline.contract.query import JobFilter
from gantline.contract.records import Record
from gantline.contract.status import ON_REQUEST, JobStatus
from gantline.contract.stored import (
    Dumped,
    Marks,
    Part,
    Stored,
    StoredEntry,
    StoredJob,
    StoredKey,
    StoredRecord,
    StoredTerm,
)
from gantline.contract.submission import DedupeKey, KeyKind, NewJob
from gantline.stores.redis import scripts
from gantline.stores.redis.calls import Calls, in_batches
from gantline.stores.redis.connection import Argument
from gantline.stores.redis.insert import listed_by
from gantline.stores.redis.query import lists_of
from gantline.stores.redis.records import read_record
from gantline.stores.redis.rows import (
    CREATED_SIZE,
    DIGEST_SIZE,
    LETTERS,
    RECORD_HEAD,
    State,
    change_of,
    digest,
    instant,
    lane_name,
    pack_job,
    pack_row,
    pack_state,
    packed,
    read_row,
    snapshot_from,
    sortable,
    tenant_name,
    unpack_job,
)

_BATCH: Final = 200
_HELD: Final = struct.Struct(">16sQ")
_LEADER: Final = struct.Struct(">2Q")
_LIVE: Final = JobFilter(tenant_id=None, statuses=frozenset({JobStatus.QUEUED, JobStatus.RUNNING}))

_read_place: Final = msgspec.json.Decoder(list[Any]).decode
_read_names: Final = msgspec.msgpack.Decoder(tuple[KeyKind, str, str, str]).decode
_read_request: Final = msgspec.msgpack.Decoder(tuple[str, str, str, bytes]).decode


async def dump(calls: Calls, part: Part, after: str, limit: int) -> Dumped:
    place = _read_place(after) if after else None
    match part:
        case Part.JOBS:
            return await _dump_jobs(calls, place, min(limit, _BATCH))
        case Part.KEYS:
            return await _dump_keys(calls, place, min(limit, _BATCH))
        case Part.RECORDS:
            return await _dump_records(calls, place, min(limit, _BATCH))
        case Part.TERMS:
            _, _, _, *leaders = (await calls.run(scripts.DUMP_REST, [])).value
            named = zip(leaders[::2], leaders[1::2], strict=True)
            terms = [StoredTerm(role.decode(), _LEADER.unpack_from(one)[0]) for role, one in named]
            return Dumped(tuple(terms))
        case Part.MARKS:
            last_event, last_record, *_ = (await calls.run(scripts.DUMP_REST, [])).value
            return Dumped((Marks(last_event, last_record),))
        case _:
            assert_never(part)


def _spelt(*place: object) -> str:
    return msgspec.json.encode(place).decode()


def _start(place: str) -> bytes:
    """Behind this member of a list, given in hex; from the first on where it is empty."""
    return b"(" + bytes.fromhex(place) if place else b"-"


# -- jobs -----------------------------------------------------------------------------------------


async def _dump_jobs(calls: Calls, place: list[Any] | None, limit: int) -> Dumped:
    """A page is of one list; of several, where they are short."""
    lists = sorted(await lists_of(calls, JobFilter(tenant_id=None)))
    name, last = place or ["", ""]
    items: list[StoredJob] = []
    for one in lists[_at(lists, name) :]:
        said: list[Argument] = [one, _start(last if one == name else ""), limit - len(items)]
        found = (await calls.run(scripts.DUMP_JOBS, said)).value
        items += [_stored_job(*job) for job in found if len(job) > 1]
        if found and len(found) == said[-1]:
            return Dumped(tuple(items), _spelt(one, found[-1][0].hex()))
    return Dumped(tuple(items))


def _at(lists: Sequence[str], name: str) -> int:
    return sum(one < name for one in lists)


def _stored_job(place: bytes, state: bytes, envelope: bytes, *log: Any) -> StoredJob:
    job_id = uuid_from_bytes(place[CREATED_SIZE:])
    found = snapshot_from(job_id, state, envelope, b"", 0)
    rows = [
        StoredEntry(number, None if entry.event in ON_REQUEST else change_of(row), entry)
        for number, row in zip(log[::2], log[1::2], strict=True)
        for entry in [read_row(row).entry]
    ]
    return StoredJob.of(found, _fingerprint(envelope), rows[::-1])


def _fingerprint(envelope: bytes) -> bytes:
    return envelope[1 : 1 + envelope[0]]


# -- keys -----------------------------------------------------------------------------------------


async def _dump_keys(calls: Calls, place: list[Any] | None, limit: int) -> Dumped:
    """First those that are held for a time; then those that live jobs hold."""
    if place is None or isinstance(place[0], int):
        first = place[0] if place else 0
        looked, *found = (await calls.run(scripts.DUMP_KEYS, [first, limit])).value
        is_over = looked < limit
        behind = _spelt("", "") if is_over else _spelt(first + looked)
        return Dumped(tuple(_stored_key(*one) for one in found), behind)
    name, last = place
    lists = sorted(await lists_of(calls, _LIVE))
    items: list[StoredKey] = []
    for one in lists[_at(lists, name) :]:
        said: list[Argument] = [one, _start(last if one == name else ""), limit]
        looked, end, *found = (await calls.run(scripts.DUMP_LIVE_KEYS, said)).value
        items += [_stored_key(hash_, held, b"", job, b"") for hash_, held, job in found]
        if looked == limit:
            return Dumped(tuple(items), _spelt(one, end.hex()))
    return Dumped(tuple(items))


def _stored_key(
    name: bytes, held: bytes, request: bytes, envelope: bytes, names: bytes
) -> StoredKey:
    job_id, until = _HELD.unpack_from(held)
    kind, tenant_id, scope, key = _names(name, job_id, request, envelope, names)
    return StoredKey(
        kind=kind,
        tenant_id=tenant_id,
        scope=scope,
        key=key,
        job_id=uuid_from_bytes(job_id),
        fingerprint=held[_HELD.size :],
        until=instant(until) if until else None,
    )


def _names(
    name: bytes, job_id: bytes, request: bytes, envelope: bytes, names: bytes
) -> tuple[KeyKind, str, str, str]:
    """What a digest was made of, as told by whoever has it."""
    if request[:DIGEST_SIZE] == name:
        return (KeyKind.REQUEST, *_read_request(request[DIGEST_SIZE:])[:3])
    if names:
        return _read_names(names)
    if envelope:
        key = NewJob(unpack_job(uuid_from_bytes(job_id), envelope), b"").job_key
        if key and digest(key) == name:
            return (KeyKind.JOB, key.tenant_id, key.scope, key.key)
    raise StoreCorrupt(
        f"A key of job {uuid_from_bytes(job_id)} is held, but nothing tells its name.",
        next_step="Wait until it has run out.",
    )


# -- records --------------------------------------------------------------------------------------


async def _dump_records(calls: Calls, place: list[Any] | None, limit: int) -> Dumped:
    _, _, spaces, *_ = (await calls.run(scripts.DUMP_REST, [])).value
    name, last = place or ["", ""]
    items: list[StoredRecord] = []
    for space in sorted(one.decode() for one in spaces):
        if space < name:
            continue
        said: list[Argument] = [
            space,
            b"(" + last.encode() if last and space == name else b"-",
            limit - len(items),
        ]
        found = (await calls.run(scripts.DUMP_RECORDS, said)).value
        items += [
            StoredRecord(read_record(space, key, record))
            for key, record in zip(found[::2], found[1::2], strict=True)
        ]
        if len(items) >= limit:
            return Dumped(tuple(items), _spelt(space, items[-1].record.key))
    return Dumped(tuple(items))


# -- load -----------------------------------------------------------------------------------------


async def load(calls: Calls, items: Sequence[Stored]) -> None:
    for batch in in_batches(items, _BATCH):
        await _load(calls, batch)


async def _load(calls: Calls, items: Sequence[Stored]) -> None:
    jobs: list[Argument] = []
    keys: list[Argument] = []
    records: list[Argument] = []
    terms: list[Argument] = []
    marks = Marks(0, 0)
    for item in items:
        match item:
            case StoredJob():
                jobs += _said_of_job(item)
            case StoredKey():
                keys += _said_of_key(item)
            case StoredRecord(record):
                records += _said_of_record(record)
            case StoredTerm(role, term):
                terms += (role, _LEADER.pack(term, 0))
            case Marks():
                marks = item
            case _:
                assert_never(item)
    for script, said in (
        (scripts.LOAD_JOBS, jobs),
        (scripts.LOAD_KEYS, keys),
        (scripts.LOAD_RECORDS, records),
    ):
        if said:
            await calls.run(script, said)
    await calls.run(scripts.LOAD_REST, [marks.last_event, marks.last_record, *terms])


def _said_of_job(stored: StoredJob) -> list[Argument]:
    job, log = stored.job, stored.log
    outcomes = [row for row in log if row.entry.event not in ON_REQUEST]
    last = outcomes[-1] if outcomes else None
    new = NewJob(job, stored.fingerprint)
    at = stored.run_at or (last.entry.at if last else job.created_at)
    state = State(
        status=LETTERS[stored.status].encode(),
        version=stored.version,
        attempt=stored.attempt,
        crashes=stored.crashes,
        snoozes=stored.snoozes,
        fence=stored.fence,
        priority=stored.priority,
        lane=0,
        tenant=0,
        number=log[-1].sequence if log else 0,
        outcome=last.sequence if last else 0,
        created=sortable(to_micros(job.created_at)),
        at=to_micros(at),
        keyed=int(new.job_key is not None),
        listed=int(any(listed_by(job))),
    )
    said: list[Argument] = [
        job.job_id.bytes,
        lane_name(job.queue, job.job_type),
        tenant_name(job.tenant_id),
        pack_state(state, digest(new.job_key) if new.job_key else b""),
        pack_job(
            new,
            created_at=to_micros(job.created_at),
            scheduled_at=None if job.scheduled_at is None else to_micros(job.scheduled_at),
        ),
        last.entry.reason if last else "",
        *listed_by(job),
        len(log),
    ]
    before = 0
    for row in log:
        said += (row.sequence, pack_row(before, row.change_id, row.entry))
        before = row.sequence
    return said


def _said_of_key(key: StoredKey) -> list[Argument]:
    named = DedupeKey(key.kind, key.tenant_id, key.scope, key.key, key.fingerprint)
    name = digest(named)
    request = names = b""
    if key.kind is KeyKind.REQUEST:
        request = name + packed((key.tenant_id, key.scope, key.key, key.fingerprint))
    else:
        names = packed(named.identity)
    until = struct.pack(">Q", 0 if key.until is None else to_micros(key.until))
    return [name, key.job_id.bytes, until, key.fingerprint, request, names]


def _said_of_record(record: Record) -> list[Argument]:
    expires = 0 if record.expires_at is None else to_micros(record.expires_at)
    body = RECORD_HEAD.pack(record.version, record.replaced, expires) + record.value
    return [record.namespace, record.key, expires or b"", body]


async def clear(calls: Calls) -> None:
    cursor: bytes = b"0"
    while True:
        cursor = (await calls.run(scripts.CLEAR, [cursor])).value
        if cursor == b"0":
            return

"""dump, load and clear: copying all content of a prefix, page by page.

Jobs are read by the lists that they are in, keys by their ends or by the job that holds them: a
hash could only be scanned, which may give the same item twice.
"""

import struct
from collections.abc import Sequence
from typing import Any, Final, assert_never

import msgspec

from gantline.contract.clock import to_micros
from gantline.contract.errors import StoreCorrupt
from gantline.contract.job_id import uuid_from_bytes
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
from gantline.stores.redis.insert import find_list_names
from gantline.stores.redis.query import find_lists
from gantline.stores.redis.records import read_record
from gantline.stores.redis.rows import (
    CREATED_SIZE,
    DIGEST_SIZE,
    GROUP_SIZE,
    LETTERS,
    RECORD_HEAD,
    State,
    digest_key,
    encode_group,
    encode_lane,
    encode_sortable,
    encode_tenant,
    pack,
    pack_job,
    pack_row,
    pack_state,
    read_change_id,
    read_instant,
    read_row,
    read_snapshot,
    unpack_job,
)

_BATCH: Final = 200
_HELD: Final = struct.Struct(">16sQ")
_LEADER: Final = struct.Struct(">2Q")
_LIVE: Final = JobFilter(tenant_id=None, statuses=frozenset({JobStatus.QUEUED, JobStatus.RUNNING}))

_read_position: Final = msgspec.json.Decoder(list[Any]).decode
_read_names: Final = msgspec.msgpack.Decoder(tuple[KeyKind, str, str, str]).decode
_read_request: Final = msgspec.msgpack.Decoder(tuple[str, str, str, bytes]).decode


async def dump(calls: Calls, part: Part, after: str, limit: int) -> Dumped:
    position = _read_position(after) if after else None
    match part:
        case Part.JOBS:
            return await _dump_jobs(calls, position, min(limit, _BATCH))
        case Part.KEYS:
            return await _dump_keys(calls, position, min(limit, _BATCH))
        case Part.RECORDS:
            return await _dump_records(calls, position, min(limit, _BATCH))
        case Part.TERMS:
            _, _, _, *leaders = await calls.run(scripts.DUMP_REST)
            named = zip(leaders[::2], leaders[1::2], strict=True)
            terms = [StoredTerm(role.decode(), _LEADER.unpack_from(one)[0]) for role, one in named]
            return Dumped(tuple(terms))
        case Part.MARKS:
            last_event, last_record, *_ = await calls.run(scripts.DUMP_REST)
            return Dumped((Marks(last_event, last_record),))
        case _:
            assert_never(part)


def _encode_position(*position: object) -> str:
    return msgspec.json.encode(position).decode()


def _encode_start(position: str) -> bytes:
    """Encode the start after this member of a list, in hex; before the first where it is empty."""
    return b"(" + bytes.fromhex(position) if position else b"-"


# -- jobs -----------------------------------------------------------------------------------------


async def _dump_jobs(calls: Calls, position: list[Any] | None, limit: int) -> Dumped:
    """Read a page of one list, or of several where they are short."""
    lists = sorted(await find_lists(calls, JobFilter(tenant_id=None)))
    name, last = position or ["", ""]
    items: list[StoredJob] = []
    for one in lists[_find_index(lists, name) :]:
        argv: list[Argument] = [one, _encode_start(last if one == name else ""), limit - len(items)]
        found = await calls.run(scripts.DUMP_JOBS, *argv)
        items += [_stored_job(*job) for job in found if len(job) > 1]
        if found and len(found) == argv[-1]:
            return Dumped(tuple(items), _encode_position(one, found[-1][0].hex()))
    return Dumped(tuple(items))


def _find_index(lists: Sequence[str], name: str) -> int:
    return sum(one < name for one in lists)


def _stored_job(position: bytes, state: bytes, envelope: bytes, *log: Any) -> StoredJob:
    job_id = uuid_from_bytes(position[CREATED_SIZE:])
    found = read_snapshot(job_id, state, envelope, b"", 0)
    rows = [
        StoredEntry(number, None if entry.event in ON_REQUEST else read_change_id(row), entry)
        for number, row in zip(log[::2], log[1::2], strict=True)
        for entry in [read_row(row).entry]
    ]
    return StoredJob.of(found, _fingerprint(envelope), rows[::-1])


def _fingerprint(envelope: bytes) -> bytes:
    return envelope[1 : 1 + envelope[0]]


# -- keys -----------------------------------------------------------------------------------------


async def _dump_keys(calls: Calls, position: list[Any] | None, limit: int) -> Dumped:
    """First those that are held for a time; then those that live jobs hold."""
    if position is None or isinstance(position[0], int):
        first = position[0] if position else 0
        looked, *found = await calls.run(scripts.DUMP_KEYS, first, limit)
        is_over = looked < limit
        end = _encode_position("", "") if is_over else _encode_position(first + looked)
        return Dumped(tuple(_stored_key(*one) for one in found), end)
    name, last = position
    lists = sorted(await find_lists(calls, _LIVE))
    items: list[StoredKey] = []
    for one in lists[_find_index(lists, name) :]:
        looked, end, *found = await calls.run(
            scripts.DUMP_LIVE_KEYS, one, _encode_start(last if one == name else ""), limit
        )
        items += [_stored_key(hash_, held, b"", job, b"") for hash_, held, job in found]
        if looked == limit:
            return Dumped(tuple(items), _encode_position(one, end.hex()))
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
        until=read_instant(until) if until else None,
    )


def _names(
    name: bytes, job_id: bytes, request: bytes, envelope: bytes, names: bytes
) -> tuple[KeyKind, str, str, str]:
    """Find what a digest was made of: in the request, the names or the job that has it."""
    if request[:DIGEST_SIZE] == name:
        return (KeyKind.REQUEST, *_read_request(request[DIGEST_SIZE:])[:3])
    if names:
        return _read_names(names)
    if envelope:
        for key in NewJob(unpack_job(uuid_from_bytes(job_id), envelope), b"").keys:
            if digest_key(key) == name:
                return (key.kind, key.tenant_id, key.scope, key.key)
    raise StoreCorrupt(
        f"A key of job {uuid_from_bytes(job_id)} is held, but its name is not known.",
        next_step="Wait until it has run out.",
    )


# -- records --------------------------------------------------------------------------------------


async def _dump_records(calls: Calls, position: list[Any] | None, limit: int) -> Dumped:
    _, _, spaces, *_ = await calls.run(scripts.DUMP_REST)
    name, last = position or ["", ""]
    items: list[StoredRecord] = []
    for space in sorted(one.decode() for one in spaces):
        if space < name:
            continue
        found = await calls.run(
            scripts.DUMP_RECORDS,
            space,
            b"(" + last.encode() if last and space == name else b"-",
            limit - len(items),
        )
        items += [
            StoredRecord(read_record(space, key, record))
            for key, record in zip(found[::2], found[1::2], strict=True)
        ]
        if len(items) >= limit:
            return Dumped(tuple(items), _encode_position(space, items[-1].record.key))
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
                jobs += _job_argv(item)
            case StoredKey():
                keys += _key_argv(item)
            case StoredRecord(record):
                records += _record_argv(record)
            case StoredTerm(role, term):
                terms += (role, _LEADER.pack(term, 0))
            case Marks():
                marks = item
            case _:
                assert_never(item)
    for script, argv in (
        (scripts.LOAD_JOBS, jobs),
        (scripts.LOAD_KEYS, keys),
        (scripts.LOAD_RECORDS, records),
    ):
        if argv:
            await calls.run(script, *argv)
    await calls.run(scripts.LOAD_REST, marks.last_event, marks.last_record, *terms)


def _job_argv(stored: StoredJob) -> list[Argument]:
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
        created=encode_sortable(to_micros(job.created_at)),
        at=to_micros(at),
        keyed=int(new.job_key is not None),
        listed=int(any(find_list_names(job)) or job.external_id is not None),
        group=encode_group(job) or bytes(GROUP_SIZE),
    )
    argv: list[Argument] = [
        job.job_id.bytes,
        encode_lane(job.queue, job.job_type),
        encode_tenant(job.tenant_id),
        pack_state(state, digest_key(new.job_key) if new.job_key else b""),
        pack_job(
            new,
            created_at=to_micros(job.created_at),
            scheduled_at=None if job.scheduled_at is None else to_micros(job.scheduled_at),
        ),
        last.entry.reason if last else "",
        *find_list_names(job),
        to_micros(job.expires_at) if stored.is_new and job.expires_at else "",
        len(log),
    ]
    before = 0
    for row in log:
        argv += (row.sequence, pack_row(before, row.change_id, row.entry))
        before = row.sequence
    return argv


def _key_argv(key: StoredKey) -> list[Argument]:
    named = DedupeKey(key.kind, key.tenant_id, key.scope, key.key, key.fingerprint)
    name = digest_key(named)
    request = names = b""
    if key.kind is KeyKind.REQUEST:
        request = name + pack((key.tenant_id, key.scope, key.key, key.fingerprint))
    else:
        names = pack(named.identity)
    until = struct.pack(">Q", 0 if key.until is None else to_micros(key.until))
    return [name, key.job_id.bytes, until, key.fingerprint, request, names]


def _record_argv(record: Record) -> list[Argument]:
    expires = 0 if record.expires_at is None else to_micros(record.expires_at)
    body = RECORD_HEAD.pack(record.version, record.replaced, expires) + record.value
    return [record.namespace, record.key, expires or b"", body]


async def clear(calls: Calls) -> None:
    cursor: bytes = b"0"
    while True:
        cursor = await calls.run(scripts.CLEAR, cursor)
        if cursor == b"0":
            return

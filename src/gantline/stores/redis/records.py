"""Records and leadership."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from gantline.contract.query import in_64_bits
from gantline.contract.records import Record, RecordWrite
from gantline.contract.results import Applied, Conflict, Leadership
from gantline.stores.pool import Purpose
from gantline.stores.redis import scripts
from gantline.stores.redis.calls import Calls, check_moved_on, each_of, in_batches
from gantline.stores.redis.rows import RECORD_HEAD, encode_span, pack, pack_binary, read_instant

_BATCH: Final = 250
# Sorts after every text that begins with a prefix: no byte of UTF-8 is as large.
_AFTER_ALL: Final = b"\xff"


def pack_write(write: RecordWrite) -> tuple[object, ...]:
    return (
        write.namespace,
        write.key,
        False if write.value is None else pack_binary(write.value),
        False if write.expected is None else in_64_bits(write.expected),
        False if write.time_to_live is None else encode_span(write.time_to_live),
    )


async def write_checked(
    calls: Calls, writes: Sequence[RecordWrite], now: bytes
) -> list[Applied | Conflict]:
    results: list[Applied | Conflict] = []
    for batch in in_batches(writes, _BATCH):
        reply = await calls.run(
            scripts.WRITE_RECORDS, now, *(pack(pack_write(one)) for one in batch)
        )
        results += [
            Applied(item)
            if isinstance(item, int)
            else Conflict(by=f"{write.namespace}/{write.key}")
            for write, item in zip(batch, each_of([reply], [batch]), strict=True)
        ]
    return results


async def read(
    calls: Calls, namespace: str, *, prefix: str, after: str, limit: int, now: bytes
) -> list[Record]:
    start, found = max(prefix.encode(), after.encode()), list[Record]()
    begin = b"(" + start if after and start == after.encode() else b"[" + start
    end = b"[" + prefix.encode() + _AFTER_ALL
    while len(found) < limit:
        more, last, *rest = await calls.run(
            scripts.READ_RECORDS, now, namespace, begin, end, min(_BATCH, limit - len(found))
        )
        found += [
            read_record(namespace, key, record)
            for key, record in zip(rest[::2], rest[1::2], strict=True)
        ]
        if not more:
            break
        check_moved_on(last > begin[1:] or begin[:1] == b"[")
        begin = b"(" + last
    return found


def read_record(namespace: str, key: bytes, record: bytes) -> Record:
    version, replaced, expires = RECORD_HEAD.unpack_from(record)
    until = read_instant(expires) if expires else None
    return Record(namespace, key.decode(), record[RECORD_HEAD.size :], version, until, replaced)


async def lead(
    calls: Calls, role: str, owner: str, *, lease: timedelta, now: bytes
) -> Leadership | None:
    reply = await calls.run(
        scripts.LEAD, now, role, owner, encode_span(lease), purpose=Purpose.CONTROL
    )
    if not reply:
        return None
    term, until = reply
    return Leadership(term, read_instant(until))


async def resign(calls: Calls, role: str, owner: str, term: int) -> None:
    await calls.run(scripts.RESIGN, role, owner, in_64_bits(term), purpose=Purpose.CONTROL)

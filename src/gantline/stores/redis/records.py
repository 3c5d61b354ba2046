"""Records and leadership."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from gantline.contract.query import in_64_bits
from gantline.contract.records import Record, RecordWrite
from gantline.contract.results import Applied, Conflict, Leadership
from gantline.stores.pool import Purpose
from gantline.stores.redis import scripts
from gantline.stores.redis.calls import Calls, in_batches
from gantline.stores.redis.connection import Argument
from gantline.stores.redis.rows import RECORD_HEAD, binary, instant, packed, span

_BATCH: Final = 250
# Behind every text that begins with a prefix: no byte of UTF-8 is as large.
_BEHIND: Final = b"\xff"


def pack_write(write: RecordWrite) -> tuple[object, ...]:
    return (
        write.namespace,
        write.key,
        False if write.value is None else binary(write.value),
        False if write.expected is None else in_64_bits(write.expected),
        False if write.time_to_live is None else span(write.time_to_live),
    )


async def write_checked(
    calls: Calls, writes: Sequence[RecordWrite], now: bytes
) -> list[Applied | Conflict]:
    answers: list[Applied | Conflict] = []
    for batch in in_batches(writes, _BATCH):
        reply = await calls.run(
            scripts.WRITE_RECORDS, [now, *(packed(pack_write(one)) for one in batch)]
        )
        answers += [
            Applied(answer)
            if isinstance(answer, int)
            else Conflict(by=f"{write.namespace}/{write.key}")
            for write, answer in zip(batch, reply.value, strict=True)
        ]
    return answers


async def read(
    calls: Calls, namespace: str, *, prefix: str, after: str, limit: int, now: bytes
) -> list[Record]:
    start, found = max(prefix.encode(), after.encode()), list[Record]()
    begin = b"(" + start if after and start == after.encode() else b"[" + start
    end = b"[" + prefix.encode() + _BEHIND
    while len(found) < limit:
        said: list[Argument] = [now, namespace, begin, end, min(_BATCH, limit - len(found))]
        more, last, *rest = (await calls.run(scripts.READ_RECORDS, said)).value
        found += [
            read_record(namespace, key, record)
            for key, record in zip(rest[::2], rest[1::2], strict=True)
        ]
        if not more:
            break
        begin = b"(" + last
    return found


def read_record(namespace: str, key: bytes, record: bytes) -> Record:
    version, replaced, expires = RECORD_HEAD.unpack_from(record)
    until = instant(expires) if expires else None
    return Record(namespace, key.decode(), record[RECORD_HEAD.size :], version, until, replaced)


async def lead(
    calls: Calls, role: str, owner: str, *, lease: timedelta, now: bytes
) -> Leadership | None:
    said: list[Argument] = [now, role, owner, span(lease)]
    reply = await calls.run(scripts.LEAD, said, purpose=Purpose.CONTROL)
    if not reply.value:
        return None
    term, until = reply.value
    return Leadership(term, instant(until))


async def resign(calls: Calls, role: str, owner: str, term: int) -> None:
    said: list[Argument] = [role, owner, in_64_bits(term)]
    await calls.run(scripts.RESIGN, said, purpose=Purpose.CONTROL)

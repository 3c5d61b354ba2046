"""Dedupe keys: who holds one, and which request a job came by."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import msgspec

from gantline.contract.job_id import uuid_from_bytes
from gantline.contract.submission import DedupeKey, KeyKind
from gantline.contract.text import is_storable
from gantline.stores.redis import scripts
from gantline.stores.redis.calls import Calls, each_of, in_batches
from gantline.stores.redis.rows import digest_key

_BATCH: Final = 500
_read_names: Final = msgspec.msgpack.Decoder(tuple[str, str, str, bytes]).decode


async def find_holders(calls: Calls, keys: Sequence[DedupeKey], now: bytes) -> list[UUID | None]:
    possible = {key.identity: digest_key(key) for key in keys if is_storable("".join(key.identity))}
    found: dict[bytes, UUID] = {}
    for batch in in_batches([*possible.values()], _BATCH):
        reply = await calls.run(scripts.HELD, now, *batch)
        pairs = zip(batch, reply, strict=True)
        found |= {one: uuid_from_bytes(job_id) for one, job_id in pairs if job_id}
    digests = [possible.get(key.identity) for key in keys]
    return [found.get(one) if one else None for one in digests]


async def find_request_keys(
    calls: Calls, job_ids: Sequence[UUID], now: bytes
) -> list[DedupeKey | None]:
    names: list[bytes] = []
    for batch in in_batches(job_ids, _BATCH):
        reply = await calls.run(scripts.REQUEST_KEYS, now, *(one.bytes for one in batch))
        names += each_of([reply], [batch])
    return [DedupeKey(KeyKind.REQUEST, *_read_names(one)) if one else None for one in names]

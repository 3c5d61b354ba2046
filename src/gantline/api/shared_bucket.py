"""The bucket of a rate limit that all processes share: one record, taken from by compare-and-set.

The record says when the bucket will be full again. That is all there is to know: each token that is
taken moves that instant by the time in which one is refilled, and time itself refills it. It is the
store's time, so that the clocks of hosts do not matter.
"""

import asyncio
import hashlib
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Final, NamedTuple
from uuid import uuid4

import msgspec

from gantline.auth.rate_limit import RateLimit
from gantline.contract.clock import to_micros
from gantline.contract.errors import StoreBusy
from gantline.contract.records import Record, RecordWrite
from gantline.contract.results import Applied
from gantline.contract.store import JobStore

NAMESPACE: Final = "rate-limits"
_ROUNDS: Final = 20
_STEP_BACK_SECONDS: Final = 0.002
_KEEP_FULL: Final = timedelta(minutes=1)


class Taken(NamedTuple):
    """What a bucket gave, and what it has left."""

    tokens: int
    left: int
    next_seconds: float
    """Until there is a token again, where there is none."""


class _Stored(msgspec.Struct, frozen=True, rename="camel"):
    full_at: int
    """Microseconds since 1970."""
    written_by: str
    """Unlike in every other write: two processes that write the same must not both be believed."""


_decoder: Final = msgspec.json.Decoder(_Stored)


class SharedBucket:
    """One bucket. Raises StoreError; then it is not known whether something was taken."""

    def __init__(self, store: Callable[[], JobStore], name: str, limit: RateLimit) -> None:
        self._store = store
        # A name may have any length and any characters.
        self._key = hashlib.sha256(name.encode()).hexdigest()
        self._limit = limit
        self._per_token = max(1, round(1_000_000 * limit.seconds_per_token))
        self._whole = limit.burst * self._per_token

    async def take(self, wanted: int, *, unused: int = 0) -> Taken:
        """Put back what was taken before and not used; take up to `wanted`, or what there is."""
        store = self._store()
        for round_ in range(_ROUNDS):
            # Who has just taken would be there first again and again.
            await asyncio.sleep(round_ * _STEP_BACK_SECONDS * random.random())  # noqa: S311  # no secret
            now = to_micros(await store.ping())
            record = await self._read(store)
            stored = _lacking(record, now)
            # Never more than empty, whatever clock or limit it was written by.
            lacking = max(0, min(stored, self._whole) - unused * self._per_token)
            free = self._limit.burst - -(-lacking // self._per_token)
            tokens = min(wanted, free)
            if tokens <= 0 and stored <= self._whole:
                spare = self._whole - self._per_token
                return Taken(0, 0, (lacking - spare) / 1_000_000)
            lacking += tokens * self._per_token
            if await self._write(store, record, now, lacking):
                return Taken(tokens, free - tokens, 0.0 if tokens else self._per_token / 1_000_000)
        raise StoreBusy("The bucket of a rate limit is taken from by too many at once.")

    async def _read(self, store: JobStore) -> Record | None:
        records = await store.read_records(NAMESPACE, prefix=self._key, limit=1)
        return records[0] if records else None

    async def _write(self, store: JobStore, record: Record | None, now: int, lacking: int) -> bool:
        value = msgspec.json.encode(_Stored(now + lacking, uuid4().hex))
        keep = timedelta(microseconds=lacking) + _KEEP_FULL
        expected = record.version if record else 0
        write = RecordWrite(NAMESPACE, self._key, value, expected, time_to_live=keep)
        return isinstance((await store.write_records([write]))[0], Applied)


def _lacking(record: Record | None, now: int) -> int:
    """The time after which a bucket will be full again."""
    if record is None:
        return 0
    try:
        return max(0, _decoder.decode(record.value).full_at - now)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return 0

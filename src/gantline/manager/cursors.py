"""Cursors: how far each durable consumer has read the log; what one has not read is kept."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from gantline.contract.records import Record, RecordWrite
from gantline.contract.results import Applied
from gantline.contract.store import JobStore
from gantline.manager.records import all_records
from gantline.manager.sessions import live_sessions

CURSORS: Final = "event-cursors"


class ConsumerCursor(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a consumer stands, and what last went wrong with it."""

    position: int
    """The number of the last event that it has taken."""
    term: int = 0
    """Of the leader who wrote this; taking over writes a new one, which stops the one before."""
    moved_at: datetime | None = None
    last_error: str = ""
    failed_at: datetime | None = None
    part_of: str = ""
    """The consumer that has put off some of its events, of which this is the cursor."""
    until: int = 0
    """Of such a part: the number of the last event that may belong to it."""

    @property
    def is_failing(self) -> bool:
        """Whether it has taken nothing since it last failed."""
        return self.failed_at is not None and (
            self.moved_at is None or self.moved_at < self.failed_at
        )


class HeldCursor(msgspec.Struct, frozen=True):
    """A cursor with the version under which it may be written."""

    cursor: ConsumerCursor
    version: int


class ConsumerStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A consumer, as operators see it."""

    name: str
    position: int
    part_of: str
    """The consumer that has put these events off; empty where it is a consumer itself."""
    lag: int
    """How many events are after its position; those of jobs that are gone count as well."""
    unread_since: datetime | None
    """When the oldest event was written that it has still to read."""
    run_by: int
    """How many live workers have it; one of them reads."""
    is_failing: bool
    moved_at: datetime | None
    last_error: str
    failed_at: datetime | None


async def begin_cursor(store: JobStore, name: str, *, from_start: bool) -> HeldCursor:
    """Give a new consumer its position: the end of the log as it is now, or its start."""
    while (held := await read_cursor(store, name)) is None:
        position = 0 if from_start else await store.last_event()
        # If another process was quicker, its cursor is as good.
        await write_cursor(store, name, ConsumerCursor(position=position), expected=0)
    return held


async def read_cursor(store: JobStore, name: str) -> HeldCursor | None:
    for record in await store.read_records(CURSORS, prefix=name, limit=1):
        if record.key == name:
            return HeldCursor(_decoded(record), record.version)
    return None


def part_name(name: str, part: str) -> str:
    """Name the cursor of what a consumer has put off."""
    return f"{name}#{part}"


async def read_parts(store: JobStore, name: str) -> dict[str, HeldCursor]:
    """What a consumer has put off: the cursor of each part, by what `part_name` was given."""
    prefix = part_name(name, "")
    records = await store.read_records(CURSORS, prefix=prefix)
    return {one.key.removeprefix(prefix): HeldCursor(_decoded(one), one.version) for one in records}


async def write_cursor(
    store: JobStore, name: str, cursor: ConsumerCursor, *, expected: int
) -> HeldCursor | None:
    """Write under compare-and-set; None where another process has written or deleted it."""
    write = RecordWrite(CURSORS, name, msgspec.json.encode(cursor), expected)
    (answer,) = await store.write_records([write])
    return HeldCursor(cursor, answer.version) if isinstance(answer, Applied) else None


async def delete_cursor(store: JobStore, name: str, *, expected: int | None = None) -> bool:
    """Forget a consumer, so that it holds back no retention any more; whether it was still so."""
    (answer,) = await store.write_records([RecordWrite(CURSORS, name, None, expected)])
    return isinstance(answer, Applied)


async def slowest_position(store: JobStore) -> int | None:
    """Up to which event all consumers have read; None where there are none."""
    cursors = map(_decoded, await all_records(store, CURSORS))
    return min((cursor.position for cursor in cursors), default=None)


async def lags(store: JobStore) -> dict[str, int]:
    """How many events each consumer has still to read."""
    records = await all_records(store, CURSORS)
    return await _lags(store, records) if records else {}


async def unread_since(store: JobStore) -> dict[str, datetime]:
    """When the oldest event was written that a consumer has still to read, where there is one."""
    records = await all_records(store, CURSORS)
    found = {one.key: await store.events(after=_decoded(one).position, limit=1) for one in records}
    return {name: rows[0].entry.at for name, rows in found.items() if rows}


async def consumers(store: JobStore) -> list[ConsumerStatus]:
    """Every consumer that has a cursor, by name, and what each has put off."""
    records = await all_records(store, CURSORS)
    sessions = await live_sessions(store)
    lags, since = await _lags(store, records), await unread_since(store)
    return [
        ConsumerStatus(
            name=record.key,
            position=cursor.position,
            part_of=cursor.part_of,
            lag=lags[record.key],
            unread_since=since.get(record.key),
            run_by=sum((cursor.part_of or record.key) in one.consumers for one in sessions),
            is_failing=cursor.is_failing,
            moved_at=cursor.moved_at,
            last_error=cursor.last_error,
            failed_at=cursor.failed_at,
        )
        for record, cursor in ((record, _decoded(record)) for record in records)
    ]


async def _lags(store: JobStore, records: Sequence[Record]) -> dict[str, int]:
    # Read after the cursors, so that it is never before one of them.
    end = await store.last_event()
    cursors = {record.key: _decoded(record) for record in records}
    return {name: max(0, (one.until or end) - one.position) for name, one in cursors.items()}


def _decoded(record: Record) -> ConsumerCursor:
    return msgspec.json.decode(record.value, type=ConsumerCursor)

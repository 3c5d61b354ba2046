"""Many records in a few statements: read and locked together, then deleted, changed and added.

One by one, a thousand writes are some three thousand round trips. The keys are sorted, so that two
callers lock them in the same order. Versions are handed out in the order of the writes where they
are few; where they are many, in any order.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from psycopg.errors import SerializationFailure

from gantline.contract.clock import later_micros
from gantline.contract.records import Record, RecordWrite, is_repeat, write_is_allowed
from gantline.contract.results import Applied, Conflict
from gantline.stores.postgres.sql import Sql

Place = tuple[str, str]
_A_FEW: Final = 10

_LOCKED = """
SELECT record.namespace, record.key, record.value, record.version, record.expires_at,
       record.replaced
FROM unnest(%s::text[], %s::text[]) AS wanted (namespace, key)
CROSS JOIN LATERAL (
    SELECT * FROM gantline.record
    WHERE record.namespace = wanted.namespace AND record.key = wanted.key OFFSET 0 FOR UPDATE
) AS record
"""
_DELETED = """
DELETE FROM gantline.record USING unnest(%s::text[], %s::text[]) AS wanted (namespace, key)
WHERE record.namespace = wanted.namespace AND record.key = wanted.key
"""
_WANTED = """
unnest(%s::text[], %s::text[], %s::bytea[], %s::bigint[], %s::bigint[])
    AS wanted (namespace, key, value, expires_at, replaced)
"""
_CHANGED = f"""
UPDATE gantline.record SET value = wanted.value, version = DEFAULT,
    expires_at = wanted.expires_at, replaced = wanted.replaced
FROM {_WANTED}
WHERE record.namespace = wanted.namespace AND record.key = wanted.key
RETURNING record.namespace, record.key, record.version
"""  # noqa: S608  # constants only
_ADDED = f"""
INSERT INTO gantline.record (namespace, key, value, expires_at, replaced)
SELECT namespace, key, value, expires_at, replaced FROM {_WANTED}
ON CONFLICT (namespace, key) DO NOTHING RETURNING namespace, key, version
"""  # noqa: S608  # constants only


def are_apart(writes: Sequence[RecordWrite]) -> bool:
    """Whether no two are about one record, so that their order does not matter."""
    return len({_place(write) for write in writes}) == len(writes)


async def write_together(
    sql: Sql, writes: Sequence[RecordWrite], now: int
) -> list[Applied | Conflict]:
    """Write records that are apart, each under its own compare-and-set."""
    stored = await _locked(sql, sorted(_place(write) for write in writes))
    versions: dict[Place, int] = {}
    refused: set[Place] = set()
    gone: list[Place] = []
    put: list[_Put] = []
    for write in writes:
        place = _place(write)
        there = stored.get(place)
        before = None if there is None else there.current(now)
        if not write_is_allowed(write, before):
            refused.add(place)
        elif is_repeat(write, before):
            versions[place] = before.version if before else 0
        elif write.value is None:
            versions[place] = 0
            if there is not None:
                gone.append(place)
        else:
            statement = _ADDED if there is None else _CHANGED
            put.append(_Put(statement, write, before.version if before else 0))
    if gone:
        await sql.run(_DELETED, *map(list, zip(*gone, strict=True)))
    for some in [[one] for one in put] if len(put) <= _A_FEW else _in_bulk(put):
        rows = await sql.rows(some[0].statement, *_columns(some, now))
        if len(rows) < len(some):
            raise SerializationFailure("a record was written meanwhile")
        versions |= {(namespace, key): version for namespace, key, version in rows}
    return [
        Conflict(by=f"{write.namespace}/{write.key}")
        if _place(write) in refused
        else Applied(versions[_place(write)])
        for write in writes
    ]


class _Stored:
    """A row as it is, also of a record that has expired."""

    def __init__(self, record: Record, until: int | None) -> None:
        self._record = record
        self._until = until

    def current(self, now: int) -> Record | None:
        return self._record if self._until is None or self._until > now else None


class _Put(NamedTuple):
    statement: str
    write: RecordWrite
    replaced: int


def _in_bulk(put: Sequence[_Put]) -> list[list[_Put]]:
    by_place = sorted(put, key=lambda one: _place(one.write))
    groups = [[one for one in by_place if one.statement is each] for each in (_CHANGED, _ADDED)]
    return [group for group in groups if group]


async def _locked(sql: Sql, places: Sequence[Place]) -> dict[Place, _Stored]:
    rows = await sql.rows(_LOCKED, *map(list, zip(*places, strict=True)))
    return {
        (namespace, key): _Stored(Record(namespace, key, value, version, replaced=replaced), until)
        for namespace, key, value, version, until, replaced in rows
    }


def _columns(put: Sequence[_Put], now: int) -> list[list[object]]:
    rows = [
        (
            write.namespace,
            write.key,
            write.value,
            later_micros(now, write.time_to_live) if write.time_to_live is not None else None,
            replaced,
        )
        for _, write, replaced in put
    ]
    return [list(column) for column in zip(*rows, strict=True)]


def _place(write: RecordWrite) -> Place:
    return (write.namespace, write.key)

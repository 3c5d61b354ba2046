"""Records and leadership."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from psycopg.errors import SerializationFailure

from gantline.contract.clock import from_micros, later_micros
from gantline.contract.records import Record, RecordWrite, is_repeat, prefix_end, write_is_allowed
from gantline.contract.results import Applied, Conflict, Leadership
from gantline.stores.postgres.sql import Sql
from gantline.stores.sql.rows import record_from_row

_COLUMNS = "namespace, key, value, version, expires_at, replaced"
_CURRENT = f"""
SELECT {_COLUMNS} FROM gantline.record WHERE namespace = %s AND key = %s FOR UPDATE
"""  # noqa: S608  # constants only
# Only the range of the prefix is read: a filter would read on to the end of the namespace.
_LIST = f"""
SELECT {_COLUMNS} FROM gantline.record
WHERE namespace = %s AND key >= %s AND key <> %s
  AND (expires_at IS NULL OR expires_at > coalesce(%s, gantline.micros()))
"""  # noqa: S608  # constants only
_ALL = f"{_LIST} ORDER BY key LIMIT %s"
_WITHIN = f"{_LIST} AND key < %s ORDER BY key LIMIT %s"
# An existing row was locked when it was read; a missing one may exist by now.
_ADD = """
INSERT INTO gantline.record (namespace, key, value, expires_at, replaced)
VALUES (%s, %s, %s, %s, 0) ON CONFLICT (namespace, key) DO NOTHING RETURNING version
"""
_CHANGE = """
UPDATE gantline.record SET value = %s, version = DEFAULT, expires_at = %s, replaced = %s
WHERE namespace = %s AND key = %s AND (%s OR expires_at <= %s) RETURNING version
"""
_DELETE = """
DELETE FROM gantline.record WHERE namespace = %s AND key = %s AND (%s OR expires_at <= %s)
"""
_LEAD = """
INSERT INTO gantline.leader AS held (role, owner, term, until)
SELECT %(role)s, %(owner)s, 1, gantline.later(now, %(lease)s)
FROM coalesce(%(now)s, gantline.micros()) AS now
ON CONFLICT (role) DO UPDATE
SET owner = excluded.owner, until = excluded.until,
    term = held.term + (held.owner <> excluded.owner
                        OR held.until <= coalesce(%(now)s, gantline.micros())
                        OR held.until > excluded.until)::integer
WHERE held.owner = excluded.owner OR held.until <= coalesce(%(now)s, gantline.micros())
   OR held.until > excluded.until
RETURNING term, until
"""
_RESIGN = """
UPDATE gantline.leader SET until = coalesce(%s, gantline.micros()), owner = ''
WHERE role = %s AND owner = %s AND term = %s
"""


async def read_current(sql: Sql, namespace: str, key: str, now: int) -> Record | None:
    """Read and lock a record; None when there is none or it has expired."""
    row = await sql.row(_CURRENT, namespace, key)
    return record_from_row(row) if row and (row[4] is None or row[4] > now) else None


async def read(
    sql: Sql, namespace: str, *, prefix: str, after: str, limit: int, now: int | None
) -> list[Record]:
    values, end = (namespace, max(prefix, after), after, now), prefix_end(prefix)
    rows = await (
        sql.rows(_ALL, *values, limit) if end is None else sql.rows(_WITHIN, *values, end, limit)
    )
    return [record_from_row(row) for row in rows]


async def write_checked(
    sql: Sql, writes: Sequence[RecordWrite], now: int | None
) -> list[Applied | Conflict]:
    if now is None:
        now = (await sql.rows("SELECT gantline.micros()"))[0][0]
    if len(writes) > 1 and are_different(writes):
        return await write_together(sql, writes, now)
    results: list[Applied | Conflict] = []
    for write in writes:
        before = await read_current(sql, write.namespace, write.key, now)
        if write_is_allowed(write, before):
            results.append(Applied(await _write(sql, write, before, now)))
        else:
            results.append(Conflict(by=f"{write.namespace}/{write.key}"))
    return results


async def write_all(sql: Sql, writes: Sequence[RecordWrite], now: int) -> None:
    """Write what the caller has checked."""
    for write in writes:
        before = await read_current(sql, write.namespace, write.key, now)
        await _write(sql, write, before, now)


async def _write(sql: Sql, write: RecordWrite, before: Record | None, now: int) -> int:
    if is_repeat(write, before):
        return before.version if before else 0
    name = (write.namespace, write.key)
    # A record that did not exist when we read is not locked, and may exist by now.
    as_seen = (before is not None, now)
    if write.value is None:
        await sql.run(_DELETE, *name, *as_seen)
        return 0
    until = later_micros(now, write.time_to_live) if write.time_to_live is not None else None
    replaced = before.version if before else 0
    written = await sql.row(_CHANGE, write.value, until, replaced, *name, *as_seen)
    written = written or await sql.row(_ADD, *name, write.value, until)
    if written is None:
        raise SerializationFailure("a record was written meanwhile")
    version: int = written[0]
    return version


async def lead(
    sql: Sql, role: str, owner: str, *, lease_micros: int, now: int | None
) -> Leadership | None:
    values = {"role": role, "owner": owner, "lease": lease_micros, "now": now}
    rows = await sql.named(_LEAD, values)
    return Leadership(rows[0][0], from_micros(rows[0][1])) if rows else None


async def resign(sql: Sql, role: str, owner: str, term: int, now: int | None) -> None:
    await sql.run(_RESIGN, now, role, owner, term)


RecordName = tuple[str, str]
_A_FEW: Final = 10

_LOCK_MANY = """
SELECT record.namespace, record.key, record.value, record.version, record.expires_at,
       record.replaced
FROM unnest(%s::text[], %s::text[]) AS given (namespace, key)
CROSS JOIN LATERAL (
    SELECT * FROM gantline.record
    WHERE record.namespace = given.namespace AND record.key = given.key OFFSET 0 FOR UPDATE
) AS record
"""
_DELETE_MANY = """
DELETE FROM gantline.record USING unnest(%s::text[], %s::text[]) AS given (namespace, key)
WHERE record.namespace = given.namespace AND record.key = given.key
"""
_MANY = """
unnest(%s::text[], %s::text[], %s::bytea[], %s::bigint[], %s::bigint[])
    AS given (namespace, key, value, expires_at, replaced)
"""
_CHANGE_MANY = f"""
UPDATE gantline.record SET value = given.value, version = DEFAULT,
    expires_at = given.expires_at, replaced = given.replaced
FROM {_MANY}
WHERE record.namespace = given.namespace AND record.key = given.key
RETURNING record.namespace, record.key, record.version
"""  # noqa: S608  # constants only
_ADD_MANY = f"""
INSERT INTO gantline.record (namespace, key, value, expires_at, replaced)
SELECT namespace, key, value, expires_at, replaced FROM {_MANY}
ON CONFLICT (namespace, key) DO NOTHING RETURNING namespace, key, version
"""  # noqa: S608  # constants only


def are_different(writes: Sequence[RecordWrite]) -> bool:
    """Whether no two are for the same record, so that their order does not matter."""
    return len({_name_of(write) for write in writes}) == len(writes)


async def write_together(
    sql: Sql, writes: Sequence[RecordWrite], now: int
) -> list[Applied | Conflict]:
    """Write different records, each under its own compare-and-set, in a few statements.

    One by one, a thousand writes are some three thousand round trips. The keys are sorted, so that
    two callers lock them in the same order. Versions follow the order of the writes where they are
    few; where they are many, they come in any order.
    """
    stored = await _lock(sql, sorted(_name_of(write) for write in writes))
    versions: dict[RecordName, int] = {}
    refused: set[RecordName] = set()
    gone: list[RecordName] = []
    put: list[_Put] = []
    for write in writes:
        name = _name_of(write)
        there = stored.get(name)
        before = None if there is None else there.current(now)
        if not write_is_allowed(write, before):
            refused.add(name)
        elif is_repeat(write, before):
            versions[name] = before.version if before else 0
        elif write.value is None:
            versions[name] = 0
            if there is not None:
                gone.append(name)
        else:
            statement = _ADD_MANY if there is None else _CHANGE_MANY
            put.append(_Put(statement, write, before.version if before else 0))
    if gone:
        await sql.run(_DELETE_MANY, *map(list, zip(*gone, strict=True)))
    for some in [[one] for one in put] if len(put) <= _A_FEW else _group_in_bulk(put):
        rows = await sql.rows(some[0].statement, *_put_columns(some, now))
        if len(rows) < len(some):
            raise SerializationFailure("a record was written meanwhile")
        versions |= {(namespace, key): version for namespace, key, version in rows}
    return [
        Conflict(by=f"{write.namespace}/{write.key}")
        if _name_of(write) in refused
        else Applied(versions[_name_of(write)])
        for write in writes
    ]


class _Stored:
    """A stored row, also of a record that has expired."""

    def __init__(self, record: Record, until: int | None) -> None:
        self._record = record
        self._until = until

    def current(self, now: int) -> Record | None:
        return self._record if self._until is None or self._until > now else None


class _Put(NamedTuple):
    statement: str
    write: RecordWrite
    replaced: int


def _group_in_bulk(put: Sequence[_Put]) -> list[list[_Put]]:
    by_name = sorted(put, key=lambda one: _name_of(one.write))
    groups = [
        [one for one in by_name if one.statement is each] for each in (_CHANGE_MANY, _ADD_MANY)
    ]
    return [group for group in groups if group]


async def _lock(sql: Sql, names: Sequence[RecordName]) -> dict[RecordName, _Stored]:
    rows = await sql.rows(_LOCK_MANY, *map(list, zip(*names, strict=True)))
    return {
        (namespace, key): _Stored(Record(namespace, key, value, version, replaced=replaced), until)
        for namespace, key, value, version, until, replaced in rows
    }


def _put_columns(put: Sequence[_Put], now: int) -> list[list[object]]:
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


def _name_of(write: RecordWrite) -> RecordName:
    return (write.namespace, write.key)

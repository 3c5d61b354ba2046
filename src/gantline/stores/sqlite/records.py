"""Records and leadership."""

import sqlite3
from collections.abc import Sequence
from datetime import timedelta

from gantline.contract.clock import from_micros, later_micros
from gantline.contract.records import Record, RecordWrite, is_repeat, prefix_end, write_is_allowed
from gantline.contract.results import Applied, Conflict, Leadership
from gantline.stores.sql.rows import record_from_row

_COLUMNS = "namespace, key, value, version, expires_at, replaced"
_CURRENT = f"""
SELECT {_COLUMNS} FROM gantline_record
WHERE namespace = ? AND key = ? AND (expires_at IS NULL OR expires_at > ?)
"""  # noqa: S608  # constants only
# Only the range of the prefix is read: a filter would read on to the end of the namespace.
_LIST = f"""
SELECT {_COLUMNS} FROM gantline_record
WHERE namespace = ? AND key >= ? AND key <> ? AND (expires_at IS NULL OR expires_at > ?)
"""  # noqa: S608  # constants only
_ALL = f"{_LIST} ORDER BY key LIMIT ?"
_WITHIN = f"{_LIST} AND key < ? ORDER BY key LIMIT ?"
# Replacing is deleting and inserting, which is what gives the row its new version.
_PUT = """
INSERT OR REPLACE INTO gantline_record (namespace, key, value, expires_at, replaced)
VALUES (?, ?, ?, ?, ?)
"""
_LEAD = """
INSERT INTO gantline_leader (role, owner, term, until) VALUES (?, ?, ?, ?)
ON CONFLICT (role) DO UPDATE
SET owner = excluded.owner, term = excluded.term, until = excluded.until
"""


def read_current(
    connection: sqlite3.Connection, namespace: str, key: str, now: int
) -> Record | None:
    row = connection.execute(_CURRENT, (namespace, key, now)).fetchone()
    return record_from_row(row) if row else None


def read(
    connection: sqlite3.Connection, namespace: str, prefix: str, after: str, limit: int, now: int
) -> list[Record]:
    values, end = (namespace, max(prefix, after), after, now), prefix_end(prefix)
    rows = (
        connection.execute(_ALL, (*values, limit))
        if end is None
        else connection.execute(_WITHIN, (*values, end, limit))
    )
    return [record_from_row(row) for row in rows]


def write_checked(
    connection: sqlite3.Connection, writes: Sequence[RecordWrite], now: int
) -> list[Applied | Conflict]:
    return [
        Applied(_write(connection, write, now))
        if write_is_allowed(write, read_current(connection, write.namespace, write.key, now))
        else Conflict(by=f"{write.namespace}/{write.key}")
        for write in writes
    ]


def write_all(connection: sqlite3.Connection, writes: Sequence[RecordWrite], now: int) -> None:
    """Write what the caller has checked."""
    for write in writes:
        _write(connection, write, now)


def _write(connection: sqlite3.Connection, write: RecordWrite, now: int) -> int:
    before = read_current(connection, write.namespace, write.key, now)
    if is_repeat(write, before):
        return before.version if before else 0
    if write.value is None:
        name = (write.namespace, write.key)
        connection.execute("DELETE FROM gantline_record WHERE namespace = ? AND key = ?", name)
        return 0
    until = later_micros(now, write.time_to_live) if write.time_to_live is not None else None
    replaced = before.version if before else 0
    values = (write.namespace, write.key, write.value, until, replaced)
    return connection.execute(_PUT, values).lastrowid or 0


def lead(
    connection: sqlite3.Connection, role: str, owner: str, lease: timedelta, now: int
) -> Leadership | None:
    row = connection.execute(
        "SELECT owner, term, until FROM gantline_leader WHERE role = ?", (role,)
    )
    leader, term, until = row.fetchone() or ("", 0, now)
    is_free = not now < until <= later_micros(now, lease)
    if leader != owner and not is_free:
        return None
    if leader != owner or is_free:
        term += 1
    until = later_micros(now, lease)
    connection.execute(_LEAD, (role, owner, term, until))
    return Leadership(term, from_micros(until))


def resign(connection: sqlite3.Connection, role: str, owner: str, term: int, now: int) -> None:
    connection.execute(
        """
        UPDATE gantline_leader SET until = ?, owner = '' WHERE role = ? AND owner = ? AND term = ?
        """,
        (now, role, owner, term),
    )

"""The ready queue: where Queued jobs wait, in lanes, and the floor of each lane.

A lane is a queue and a type; within it there is one range per priority, by (run_at, job id).
The floor of such a range is at or below its first row, so that a claim over many types opens only
the lanes it takes from. Whoever adds rows lowers floors; a claim raises those it has looked behind.
"""

import heapq
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from windlass.contract.errors import StoreCorrupt
from windlass.contract.query import LaneRequest
from windlass.stores.sqlite.rows import Row, insert_rows

_PRIORITIES: Final = range(4)
_BEFORE_ALL: Final = -(2**63)

_ADD = """
INSERT INTO windlass_ready (
    run_at, job_id, lane, priority, tenant, version, attempt, crashes, snoozes, fence)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_LOWER_FLOOR = """
INSERT INTO windlass_floor (lane, priority, queue, run_at, job_id)
SELECT id, ?, queue, ?, ? FROM windlass_lane WHERE id = ?
ON CONFLICT (lane, priority) DO UPDATE SET run_at = excluded.run_at, job_id = excluded.job_id
WHERE (excluded.run_at, excluded.job_id) < (run_at, job_id)
"""
_FLOORS = """
SELECT floor.run_at, floor.job_id, floor.lane, lane.job_type
FROM windlass_floor AS floor JOIN windlass_lane AS lane ON lane.id = floor.lane
WHERE floor.queue = ? AND floor.priority = ? AND floor.run_at <= ?
ORDER BY floor.run_at, floor.job_id
"""
_DUE = """
SELECT run_at, job_id, lane, priority, tenant, version, attempt, crashes, snoozes, fence
FROM windlass_ready
WHERE lane = ? AND priority = ? AND (run_at, job_id) > (?, ?) AND run_at <= ?
ORDER BY run_at, job_id LIMIT ?
"""
# What a claim takes of a range is its first rows without a gap, so one statement names them all.
_TAKE = """
DELETE FROM windlass_ready WHERE lane = ? AND priority = ? AND (run_at, job_id) <= (?, ?)
"""
_FIRST = """
SELECT run_at, job_id FROM windlass_ready
WHERE lane = ? AND priority = ? ORDER BY run_at, job_id LIMIT 1
"""
_RAISE_FLOOR = "UPDATE windlass_floor SET run_at = ?, job_id = ? WHERE lane = ? AND priority = ?"
_DROP_FLOOR = "DELETE FROM windlass_floor WHERE lane = ? AND priority = ?"
_LEAVE = "DELETE FROM windlass_ready WHERE job_id = ?"

Range = tuple[int, int]
"""A lane and a priority."""


class ReadyRow(NamedTuple):
    """A Queued job; sorts as a claim must take it."""

    run_at: int
    job_id: bytes
    lane: int
    priority: int
    tenant: str
    version: int
    attempt: int
    crashes: int
    snoozes: int
    fence: int


def enqueue(connection: sqlite3.Connection, rows: Sequence[ReadyRow]) -> None:
    """Add jobs to their lanes, in any order."""
    insert_rows(connection, _ADD, rows)
    first: dict[Range, ReadyRow] = {}
    for row in rows:
        place = (row.lane, row.priority)
        if place not in first or row < first[place]:
            first[place] = row
    connection.executemany(
        _LOWER_FLOOR,
        [(priority, row.run_at, row.job_id, lane) for (lane, priority), row in first.items()],
    )


def leave(connection: sqlite3.Connection, job_ids: Sequence[bytes]) -> None:
    """Remove jobs that will not be claimed. Their floor may now be too low, which is allowed."""
    connection.executemany(_LEAVE, [(job_id,) for job_id in job_ids])


def has_due(connection: sqlite3.Connection, wanted: Sequence[LaneRequest], now: int) -> bool:
    """Look, without taking the write lock, whether a claim might find anything."""
    return any(
        any(True for _ in _floors(connection, request, priority, now))
        for request in wanted
        for priority in _PRIORITIES
    )


def take_due(connection: sqlite3.Connection, request: LaneRequest, now: int) -> list[ReadyRow]:
    """Take due jobs of a queue out of their lanes: by priority, time due, id; up to the limit."""
    taken: list[ReadyRow] = []
    opened: set[Range] = set()
    for priority in _PRIORITIES:
        left = request.limit - len(taken)
        if left > 0:
            taken += _first_due(connection, request, priority, left, now, opened)
    _take(connection, taken)
    _raise_floors(connection, opened)
    return taken


def _first_due(
    connection: sqlite3.Connection,
    request: LaneRequest,
    priority: int,
    limit: int,
    now: int,
    opened: set[Range],
) -> list[ReadyRow]:
    """Merge the lanes by their first rows; a lane is opened when its floor may be the next row."""
    found: list[ReadyRow] = []
    floors = _floors(connection, request, priority, now)
    floor = next(floors, None)
    lanes: list[tuple[ReadyRow, Iterator[ReadyRow]]] = []  # a heap; rows never tie
    while len(found) < limit:
        while floor is not None and (not lanes or floor[:2] < lanes[0][0][:2]):
            page = limit // (len(lanes) + 1) + 1
            rows = _due_of(connection, floor[2], priority, now, page)
            opened.add((floor[2], priority))
            if (row := next(rows, None)) is not None:
                heapq.heappush(lanes, (row, rows))
            floor = next(floors, None)
        if not lanes:
            break
        row, rows = lanes[0]
        found.append(row)
        if floor is None and len(lanes) == 1:  # nothing left to merge with
            found += islice(rows, limit - len(found))
            break
        if (following := next(rows, None)) is not None:
            heapq.heapreplace(lanes, (following, rows))
        else:
            heapq.heappop(lanes)
    return found


def _floors(
    connection: sqlite3.Connection, request: LaneRequest, priority: int, now: int
) -> Iterator[Row]:
    """The floors of the wanted types that are due, lowest first, read as far as they are used."""
    kinds = frozenset(request.job_types)
    rows = connection.execute(_FLOORS, (request.queue, priority, now))
    return (row for row in rows if row[3] in kinds)


def _due_of(
    connection: sqlite3.Connection, lane: int, priority: int, now: int, page: int
) -> Iterator[ReadyRow]:
    """Yield due rows of one range in order, a page at a time."""
    after: tuple[int, bytes] = (_BEFORE_ALL, b"")
    while rows := connection.execute(_DUE, (lane, priority, *after, now, page)).fetchall():
        yield from map(ReadyRow._make, rows)
        after = rows[-1][:2]
        if len(rows) < page:
            return


def _take(connection: sqlite3.Connection, rows: list[ReadyRow]) -> None:
    if not rows:
        return
    last = {(row.lane, row.priority): (row.run_at, row.job_id) for row in rows}
    taken = connection.executemany(_TAKE, [(*place, *row) for place, row in last.items()]).rowcount
    if taken != len(rows):
        raise StoreCorrupt(f"A claim of {len(rows)} jobs would have taken {taken}.")


def _raise_floors(connection: sqlite3.Connection, opened: set[Range]) -> None:
    """Put the floors of ranges that were looked into at their first row, due or not."""
    for place in opened:
        row = connection.execute(_FIRST, place).fetchone()
        if row is None:
            connection.execute(_DROP_FLOOR, place)
        else:
            connection.execute(_RAISE_FLOOR, (*row, *place))

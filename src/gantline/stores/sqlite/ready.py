"""The ready queue: where Queued jobs wait, in lanes, and the floor of each lane.

A lane is a queue and a type; within it there is one range per rank, by (run_at, job id): four for
the priorities, and four for the suspects of each number of crashes.
The floor of such a range is at or below its first row, so that a claim over many types opens only
the lanes it takes from. Adding rows lowers floors; a claim raises those of the ranges it has read.
"""

import heapq
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from gantline.contract.errors import StoreCorrupt
from gantline.contract.query import LaneRequest
from gantline.stores.ranks import PRIORITIES, RANKS, SUSPECT_CRASHES
from gantline.stores.sqlite.rows import Row, insert_rows

_BEFORE_ALL: Final = -(2**63)

_ADD = """
INSERT INTO gantline_ready (
    run_at, job_id, lane, rank, tenant, version, attempt, crashes, snoozes, fence)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_LOWER_FLOOR = """
INSERT INTO gantline_floor (lane, rank, queue, run_at, job_id)
SELECT id, ?, queue, ?, ? FROM gantline_lane WHERE id = ?
ON CONFLICT (lane, rank) DO UPDATE SET run_at = excluded.run_at, job_id = excluded.job_id
WHERE (excluded.run_at, excluded.job_id) < (run_at, job_id)
"""
_FLOORS = """
SELECT floor.run_at, floor.job_id, floor.lane, lane.job_type
FROM gantline_floor AS floor JOIN gantline_lane AS lane ON lane.id = floor.lane
WHERE floor.queue = ? AND floor.rank = ? AND floor.run_at <= ?
ORDER BY floor.run_at, floor.job_id
"""
_SUSPECT_RANKS = f"""
SELECT DISTINCT rank FROM gantline_floor
WHERE queue = ? AND rank >= {PRIORITIES} AND run_at <= ?
"""  # noqa: S608  # constants only
_DUE = """
SELECT run_at, job_id, lane, rank, tenant, version, attempt, crashes, snoozes, fence
FROM gantline_ready
WHERE lane = ? AND rank = ? AND (run_at, job_id) > (?, ?) AND run_at <= ?
ORDER BY run_at, job_id LIMIT ?
"""
# A claim takes the first rows of a range without a gap, so one statement deletes them all.
_TAKE = """
DELETE FROM gantline_ready WHERE lane = ? AND rank = ? AND (run_at, job_id) <= (?, ?)
"""
_FIRST = """
SELECT run_at, job_id FROM gantline_ready
WHERE lane = ? AND rank = ? ORDER BY run_at, job_id LIMIT 1
"""
_RAISE_FLOOR = "UPDATE gantline_floor SET run_at = ?, job_id = ? WHERE lane = ? AND rank = ?"
_DROP_FLOOR = "DELETE FROM gantline_floor WHERE lane = ? AND rank = ?"
_LEAVE = "DELETE FROM gantline_ready WHERE job_id = ?"

Range = tuple[int, int]
"""A lane and a rank."""


class ReadyRow(NamedTuple):
    """A Queued job. Rows sort in the order in which a claim takes them."""

    run_at: int
    job_id: bytes
    lane: int
    rank: int
    tenant: str
    version: int
    attempt: int
    crashes: int
    snoozes: int
    fence: int

    @property
    def priority(self) -> int:
        return self.rank % PRIORITIES


def enqueue(connection: sqlite3.Connection, rows: Sequence[ReadyRow]) -> None:
    """Add jobs to their lanes, in any order."""
    insert_rows(connection, _ADD, rows)
    first: dict[Range, ReadyRow] = {}
    for row in rows:
        key = (row.lane, row.rank)
        if key not in first or row < first[key]:
            first[key] = row
    connection.executemany(
        _LOWER_FLOOR, [(rank, row.run_at, row.job_id, lane) for (lane, rank), row in first.items()]
    )


def remove(connection: sqlite3.Connection, job_ids: Sequence[bytes]) -> None:
    """Remove jobs that will not be claimed. Their floor may now be too low, which is allowed."""
    connection.executemany(_LEAVE, [(job_id,) for job_id in job_ids])


def has_due(connection: sqlite3.Connection, requests: Sequence[LaneRequest], now: int) -> bool:
    """Whether a claim might find anything. Needs no write lock."""
    return any(
        any(
            True
            for _ in _read_floors(connection, request.queue, _claimable_types(request), rank, now)
        )
        for request in requests
        for crashes in _crash_counts(connection, request, now)
        for rank in RANKS[crashes]
    )


def take_due(connection: sqlite3.Connection, request: LaneRequest, now: int) -> list[ReadyRow]:
    """Remove due jobs from the lanes of a queue: by priority, time due, id; up to the limits.

    Suspects of one number of crashes only: the highest of which there are any to take.
    """
    for crashes in _crash_counts(connection, request, now):
        limit = request.most_suspects(crashes) if request.suspects else request.limit
        search = _Search(connection, request, now)
        for rank in RANKS[crashes]:
            search.find(rank, limit)
        _take(connection, search.found)
        _raise_floors(connection, search.opened)
        if search.found:
            return search.found
    return []


def _crash_counts(connection: sqlite3.Connection, request: LaneRequest, now: int) -> Sequence[int]:
    """The numbers of crashes of the jobs that a request selects, highest first; 0 if ordinary."""
    if not request.suspects:
        return (0,)
    due = {row[0] for row in connection.execute(_SUSPECT_RANKS, (request.queue, now))}
    return [
        crashes
        for crashes in reversed(SUSPECT_CRASHES)
        if request.most_suspects(crashes) > 0 and not due.isdisjoint(RANKS[crashes])
    ]


def _claimable_types(request: LaneRequest) -> frozenset[str]:
    """The types of a request that its limits allow."""
    return frozenset(request.job_types).difference(
        kind for kind, most in request.at_most if most <= 0
    )


class _Search:
    """What a request finds, rank by rank, and how many more of each limited type it may take."""

    def __init__(self, connection: sqlite3.Connection, request: LaneRequest, now: int) -> None:
        self.found: list[ReadyRow] = []
        self.opened: dict[Range, str] = {}
        self._connection = connection
        self._queue = request.queue
        self._kinds = _claimable_types(request)
        self._room = dict(request.at_most)
        self._now = now

    def find(self, rank: int, limit: int) -> None:
        """Search the ranges of one rank, until so many are found in all."""
        if len(self.found) >= limit:
            return
        rows = self._first_due(rank, limit - len(self.found))
        self.found += rows
        for kind in [self.opened[row.lane, rank] for row in rows] if self._room else ():
            if kind in self._room:
                self._room[kind] -= 1

    def _first_due(self, rank: int, limit: int) -> list[ReadyRow]:
        """Merge the lanes by their first rows; one is opened when its floor may be the next row."""
        found: list[ReadyRow] = []
        floors = _read_floors(self._connection, self._queue, self._kinds, rank, self._now)
        floor = next(floors, None)
        lanes: list[tuple[ReadyRow, Iterator[ReadyRow]]] = []  # a heap; rows never tie
        while len(found) < limit:
            while floor is not None and (not lanes or floor[:2] < lanes[0][0][:2]):
                rows = self._open(floor, rank, page=limit // (len(lanes) + 1) + 1)
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

    def _open(self, floor: Row, rank: int, page: int) -> Iterator[ReadyRow]:
        _, _, lane, kind = floor
        self.opened[lane, rank] = kind
        rows = _read_due(self._connection, lane, rank, self._now, page)
        return islice(rows, max(0, self._room[kind])) if kind in self._room else rows


def _read_floors(
    connection: sqlite3.Connection, queue: str, kinds: frozenset[str], rank: int, now: int
) -> Iterator[Row]:
    """Yield the due floors of these types, lowest first."""
    rows = connection.execute(_FLOORS, (queue, rank, now))
    return (row for row in rows if row[3] in kinds)


def _read_due(
    connection: sqlite3.Connection, lane: int, rank: int, now: int, page: int
) -> Iterator[ReadyRow]:
    """Yield due rows of one range in order, a page at a time."""
    after: tuple[int, bytes] = (_BEFORE_ALL, b"")
    while rows := connection.execute(_DUE, (lane, rank, *after, now, page)).fetchall():
        yield from map(ReadyRow._make, rows)
        after = rows[-1][:2]
        if len(rows) < page:
            return


def _take(connection: sqlite3.Connection, rows: list[ReadyRow]) -> None:
    if not rows:
        return
    last = {(row.lane, row.rank): (row.run_at, row.job_id) for row in rows}
    taken = connection.executemany(_TAKE, [(*key, *row) for key, row in last.items()]).rowcount
    if taken != len(rows):
        raise StoreCorrupt(f"A claim of {len(rows)} jobs would have taken {taken}.")


def _raise_floors(connection: sqlite3.Connection, opened: Iterable[Range]) -> None:
    """Set the floor of each opened range to its first row, due or not."""
    for key in opened:
        row = connection.execute(_FIRST, key).fetchone()
        if row is None:
            connection.execute(_DROP_FLOOR, key)
        else:
            connection.execute(_RAISE_FLOOR, (*row, *key))

"""The ready queue: where Queued jobs wait, in lanes, and the floor of each range of them.

A lane is a queue and a type; within it there is one range per rank and group, by (run_at, job id):
four ranks for the priorities, and four for the suspects of each number of crashes.
The floor of a range is at or below its first row, so that a claim over many types opens only the
ranges it takes from. Adding rows lowers floors; a claim raises those of the ranges it has read.
Which group comes next is in `turns`.
"""

import heapq
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from gantline.contract.clock import to_micros
from gantline.contract.errors import StoreCorrupt
from gantline.contract.flow import PLAIN, group_number
from gantline.contract.job import Job
from gantline.contract.job_id import uuid_from_bytes
from gantline.stores.ranks import PRIORITIES
from gantline.stores.sqlite import turns
from gantline.stores.sqlite.limits import Limits
from gantline.stores.sqlite.rows import Row, insert_rows
from gantline.stores.sqlite.turns import Range, TurnState

_BEFORE_ALL: Final = -(2**63)
NOBODY: Final[Mapping[int, int]] = MappingProxyType({})

_ADD = """
INSERT INTO gantline_ready (
    run_at, job_id, lane, rank, grp, tenant, version, attempt, crashes, snoozes, fence)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_LOWER_FLOOR = """
INSERT INTO gantline_turn (lane, rank, grp, queue, tenant, run_at, job_id, state)
SELECT id, ?, ?, queue, ?, ?, ?, ? FROM gantline_lane WHERE id = ?
ON CONFLICT (lane, rank, grp) DO UPDATE SET
    run_at = excluded.run_at, job_id = excluded.job_id,
    state = iif(state = 2, excluded.state, state)
WHERE (excluded.run_at, excluded.job_id) < (run_at, job_id)
"""
_DUE = """
SELECT run_at, job_id, lane, rank, grp, tenant, version, attempt, crashes, snoozes, fence
FROM gantline_ready
WHERE lane = ? AND rank = ? AND grp = ? AND (run_at, job_id) > (?, ?) AND run_at <= ?
ORDER BY run_at, job_id LIMIT ?
"""
# A claim takes the first rows of a range without a gap, so one statement deletes them all.
_TAKE = """
DELETE FROM gantline_ready
WHERE lane = ? AND rank = ? AND grp = ? AND (run_at, job_id) <= (?, ?)
"""
_FIRST = """
SELECT run_at, job_id FROM gantline_ready
WHERE lane = ? AND rank = ? AND grp = ? ORDER BY run_at, job_id LIMIT 1
"""
_RAISE_FLOOR = """
UPDATE gantline_turn SET run_at = ?, job_id = ? WHERE lane = ? AND rank = ? AND grp = ?
"""
_CHANGE_TURN = """
UPDATE gantline_turn SET
    run_at = ?, job_id = ?, state = ?, full_at = ?, served = ifnull(?, served)
WHERE lane = ? AND rank = ? AND grp = ?
"""
_DROP_FLOOR = "DELETE FROM gantline_turn WHERE lane = ? AND rank = ? AND grp = ?"
_LET_EXPIRE = "UPDATE gantline_ready SET expires_at = ? WHERE job_id = ?"
_PAST_EXPIRY = """
SELECT ready.job_id FROM gantline_ready AS ready
JOIN gantline_job AS job ON job.id = ready.job_id
WHERE ready.expires_at <= ? ORDER BY ready.expires_at, ready.job_id LIMIT ?
"""
_LEAVE = "DELETE FROM gantline_ready WHERE job_id = ?"


class ReadyRow(NamedTuple):
    """A Queued job. Rows sort in the order in which a claim takes them."""

    run_at: int
    job_id: bytes
    lane: int
    rank: int
    group: int
    tenant: str
    version: int
    attempt: int
    crashes: int
    snoozes: int
    fence: int

    @property
    def priority(self) -> int:
        return self.rank % PRIORITIES


def enqueue(connection: sqlite3.Connection, rows: Sequence[ReadyRow], now: int) -> None:
    """Add jobs to their lanes, in any order, and give their groups a turn."""
    insert_rows(connection, _ADD, rows)
    first: dict[Range, ReadyRow] = {}
    for row in rows:
        key = (row.lane, row.rank, row.group)
        if key not in first or row < first[key]:
            first[key] = row
    floors: list[Row] = []
    entries: list[turns.Entry] = []
    for (lane, rank, group), row in first.items():
        tenant = PLAIN if group == PLAIN else group_number(row.tenant, "")
        state = turns.state_of(rank, group, is_due=row.run_at <= now)
        floors.append((rank, group, tenant, row.run_at, row.job_id, state, lane))
        if state is not TurnState.NONE:
            entries.append(turns.Entry(lane, rank, group, tenant, 0, row.run_at, state))
    connection.executemany(_LOWER_FLOOR, floors)
    turns.enter(connection, entries)


def let_expire(connection: sqlite3.Connection, jobs: Iterable[Job]) -> None:
    """Note of new jobs when they expire; apart, since few do, and all the others pay nothing."""
    expiring = [
        (to_micros(at), job.job_id.bytes) for job in jobs if (at := job.expires_at) is not None
    ]
    if expiring:
        connection.executemany(_LET_EXPIRE, expiring)


def past_expiry(connection: sqlite3.Connection, limit: int, now: int) -> list[UUID]:
    """Read which jobs have expired. A job that was removed by hand has left its row here."""
    return [uuid_from_bytes(row[0]) for row in connection.execute(_PAST_EXPIRY, (now, limit))]


def remove(connection: sqlite3.Connection, job_ids: Sequence[bytes]) -> None:
    """Remove jobs that will not be claimed. Their floor may now be too low, which is allowed."""
    connection.executemany(_LEAVE, [(job_id,) for job_id in job_ids])


class Merge:
    """Takes due rows of some ranges in one order, and remembers which ranges it has opened.

    A range is opened when its floor may be the next row.
    """

    def __init__(
        self, connection: sqlite3.Connection, floors: Iterator[Row], limits: Limits, now: int
    ) -> None:
        """Each floor is a row: run_at, job id, lane, rank, group, job type; the lowest first."""
        self.opened: dict[Range, str] = {}
        self._connection = connection
        self._floors = floors
        self._limits = limits
        self._now = now
        self._floor = next(floors, None)
        self._ranges: list[tuple[ReadyRow, Iterator[ReadyRow]]] = []  # a heap; rows never tie

    @property
    def may_have_more(self) -> bool:
        return self._floor is not None or bool(self._ranges)

    @property
    def following(self) -> dict[Range, ReadyRow]:
        """The first row that was not taken, of the ranges that have more."""
        return {(row.lane, row.rank, row.group): row for row, _ in self._ranges}

    def take(self, limit: int) -> list[ReadyRow]:
        """Take the next rows, up to so many and to what the limits allow."""
        found: list[ReadyRow] = []
        ranges, limits = self._ranges, self._limits
        while len(found) < limit:
            while self._floor is not None and (not ranges or self._floor[:2] < ranges[0][0][:2]):
                self._open(self._floor, page=limit // (len(ranges) + 1) + 1)
                self._floor = next(self._floors, None)
            if not ranges:
                break
            row, rows = ranges[0]
            kind = self.opened[row.lane, row.rank, row.group] if limits.any else ""
            if limits.holds(kind) and not limits.take(kind, row.group):
                heapq.heappop(ranges)
                continue
            found.append(row)
            if self._floor is None and len(ranges) == 1 and not limits.holds(kind):
                found += islice(rows, limit - len(found))  # nothing left to merge with
            if (following := next(rows, None)) is not None:
                heapq.heapreplace(ranges, (following, rows))
            else:
                heapq.heappop(ranges)
        return found

    def _open(self, floor: Row, page: int) -> None:
        *_, lane, rank, group, kind = floor
        key = (lane, rank, group)
        self.opened[key] = kind
        if self._limits.holds(kind):
            page = min(page, self._limits.room(kind, group) + 1)
            if page == 1:
                return
        rows = _read_due(self._connection, key, self._now, page)
        if (row := next(rows, None)) is not None:
            heapq.heappush(self._ranges, (row, rows))


def _read_due(
    connection: sqlite3.Connection, key: Range, now: int, page: int
) -> Iterator[ReadyRow]:
    """Yield due rows of one range in order, a page at a time."""
    after: tuple[int, bytes] = (_BEFORE_ALL, b"")
    while rows := connection.execute(_DUE, (*key, *after, now, page)).fetchall():
        yield from map(ReadyRow._make, rows)
        after = rows[-1][:2]
        if len(rows) < page:
            return


def take(connection: sqlite3.Connection, rows: list[ReadyRow]) -> None:
    """Remove rows that a merge took."""
    if not rows:
        return
    last = {(row.lane, row.rank, row.group): (row.run_at, row.job_id) for row in rows}
    taken = connection.executemany(_TAKE, [(*key, *row) for key, row in last.items()]).rowcount
    if taken != len(rows):
        raise StoreCorrupt(f"A claim of {len(rows)} jobs would have taken {taken}.")


def raise_floors(
    connection: sqlite3.Connection,
    merges: Iterable[Merge],
    limits: Limits,
    now: int,
    served: Mapping[int, int] = NOBODY,
) -> dict[Range, TurnState | None]:
    """Set the floor of each opened range to its first row, due or not, and when it was served.

    Returns what each of them waits for now; None where it is empty.
    """
    states: dict[Range, TurnState | None] = {}
    raised: list[Row] = []
    changed: list[Row] = []
    for merge in merges:
        following = merge.following
        for key, kind in merge.opened.items():
            first = following.get(key) or connection.execute(_FIRST, key).fetchone()
            if first is None:
                states[key] = None
                continue
            _, rank, group = key
            state, full_at = turns.state_of(rank, group, is_due=first[0] <= now), None
            if state is TurnState.NONE:
                raised.append((*first[:2], *key))
            else:
                if state is TurnState.IN_LINE:
                    full_at = limits.full_at(kind, group)
                    state = state if full_at is None else TurnState.FULL
                changed.append((*first[:2], state, full_at, served.get(group), *key))
            states[key] = state
    empty = [key for key, state in states.items() if state is None]
    for statement, rows in ((_RAISE_FLOOR, raised), (_CHANGE_TURN, changed), (_DROP_FLOOR, empty)):
        if rows:
            connection.executemany(statement, rows)
    return states

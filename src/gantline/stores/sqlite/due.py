"""Which due jobs a claim takes, and whether there are any."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing

from gantline.contract.query import LaneRequest
from gantline.stores.ranks import PRIORITIES, RANKS, SUSPECT_CRASHES
from gantline.stores.sqlite import turns
from gantline.stores.sqlite.limits import Limits
from gantline.stores.sqlite.ready import Merge, ReadyRow, raise_floors, take
from gantline.stores.sqlite.rows import Row

_FLOORS = """
SELECT turn.run_at, turn.job_id, turn.lane, turn.rank, turn.grp, lane.job_type
FROM gantline_turn AS turn JOIN gantline_lane AS lane ON lane.id = turn.lane
WHERE turn.queue = ? AND turn.rank = ? AND turn.state = 0 AND turn.run_at <= ?
ORDER BY turn.run_at, turn.job_id
"""
_SUSPECT_RANKS = f"""
SELECT DISTINCT rank FROM gantline_turn
WHERE queue = ? AND rank >= {PRIORITIES} AND state = 0 AND run_at <= ?
"""  # noqa: S608  # constants only


def has_due(connection: sqlite3.Connection, requests: Sequence[LaneRequest], now: int) -> bool:
    """Whether a claim might find anything. Needs no write lock."""
    limits = Limits(connection, now)
    for request in requests:
        limits.begin(request)
        with closing(_Search(connection, request, limits, now)) as search:
            if any(
                search.has_any(rank)
                for crashes in _crash_counts(connection, request, now)
                for rank in RANKS[crashes]
            ):
                return True
    return False


def take_due(
    connection: sqlite3.Connection, request: LaneRequest, limits: Limits, now: int
) -> list[ReadyRow]:
    """Remove due jobs from the lanes of a queue, up to the limits: by priority, then in turns.

    Suspects of one number of crashes only: the highest of which there are any to take.
    """
    limits.begin(request)
    with closing(_Search(connection, request, limits, now)) as search:
        for crashes in _crash_counts(connection, request, now):
            limit = request.most_suspects(crashes) if request.suspects else request.limit
            found: list[ReadyRow] = []
            for rank in RANKS[crashes]:
                if len(found) >= limit:
                    break
                found += search.take(rank, limit - len(found))
            if found:
                return found
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


class _Search:
    """What a request finds, rank by rank. Until it is closed, it may have rows left to read."""

    def __init__(
        self, connection: sqlite3.Connection, request: LaneRequest, limits: Limits, now: int
    ) -> None:
        self._connection = connection
        self._queue = request.queue
        self._limits = limits
        self._now = now
        self._cursors: list[sqlite3.Cursor] = []
        self._kinds = frozenset(request.job_types)
        if limits.any:
            self._kinds = frozenset(
                kind for kind in self._kinds if not limits.holds(kind) or limits.of_type(kind)
            )
        grouped = {} if request.suspects else turns.read_grouped(connection, request.queue)
        self._grouped = {
            rank: [lane for lane in lanes if lane[1] in self._kinds]
            for rank, lanes in grouped.items()
        }

    def has_any(self, rank: int) -> bool:
        limits = self._limits
        floors = self._read_floors(rank)
        if any(not limits.holds(row[-1]) or limits.room(row[-1], row[-2]) for row in floors):
            return True
        lanes = self._grouped.get(rank, ())
        return turns.has_turn(self._connection, rank, lanes, limits, self._now)

    def take(self, rank: int, limit: int) -> list[ReadyRow]:
        plain = Merge(self._connection, self._read_floors(rank), self._limits, self._now)
        if not (lanes := self._grouped.get(rank)):
            rows = plain.take(limit)
            if plain.opened:
                take(self._connection, rows)
                raise_floors(self._connection, [plain], self._limits, self._now)
            return rows
        rotation = turns.Rotation(
            self._connection,
            self._queue,
            rank,
            lanes,
            limits=self._limits,
            plain=plain,
            merge=lambda floors: Merge(self._connection, floors, self._limits, self._now),
            read=self._read,
        )
        rotation.bring_due(self._now)
        rows = rotation.take(limit)
        take(self._connection, rows)
        served = rotation.groups_served
        rotation.write(
            raise_floors(self._connection, rotation.merges, self._limits, self._now, served)
        )
        return rows

    def _read_floors(self, rank: int) -> Iterator[Row]:
        """Yield the due floors of what takes no turns, lowest first."""
        rows = self._read(_FLOORS, (self._queue, rank, self._now))
        return (row for row in rows if row[-1] in self._kinds)

    def _read(self, statement: str, values: Sequence[object]) -> Iterator[Row]:
        cursor = self._connection.execute(statement, values)
        self._cursors.append(cursor)
        return cursor

    def close(self) -> None:
        """End all reading: a cursor that is open keeps its snapshot, and no write follows it."""
        for cursor in self._cursors:
            cursor.close()

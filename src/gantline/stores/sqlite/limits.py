"""Limits and gates: how many more runs a claim may start. A permit is the row of the lease.

The write lock is held, so what is counted holds until the claim is committed.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from math import ceil
from typing import Final

from gantline.contract.clock import from_micros, later_micros
from gantline.contract.flow import Gate, GateState, TypeFlow
from gantline.contract.query import LaneRequest
from gantline.contract.transition import Transition
from gantline.stores.sqlite.rows import execute_in

_UNLIMITED: Final = 2**62

_LANES = "SELECT id FROM gantline_lane WHERE job_type = ?"
_RUNS_OF_TYPE = f"""
SELECT count(*) FROM gantline_lease WHERE limited = 1 AND lane IN ({_LANES})
"""  # noqa: S608  # constants only
_RUNS_OF_GROUP = f"{_RUNS_OF_TYPE} AND grp = ?"
_UNMARKED = f"{_LANES} AND limited = 0"
_MARK_LANE = "UPDATE gantline_lane SET limited = 1 WHERE id = ?"
# Reads all leases, once for each lane.
_MARK_LEASES = "UPDATE gantline_lease SET limited = 1 WHERE lane = ?"
_GATE = "SELECT next_at, closed_until FROM gantline_gate WHERE name = ?"
_GO_THROUGH = """
INSERT INTO gantline_gate (name, next_at) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET next_at = excluded.next_at
"""
_CLOSE = """
INSERT INTO gantline_gate (name, closed_until) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET closed_until = max(excluded.closed_until, ifnull(closed_until, 0))
"""
_PRUNE = """
DELETE FROM gantline_gate WHERE ifnull(next_at, 0) < :before AND ifnull(closed_until, 0) < :before
"""
_GATES = "SELECT name, closed_until, next_at FROM gantline_gate WHERE name IN {}"


class _GateRoom:
    """How many runs a gate lets through at an instant, by GCRA in whole microseconds."""

    def __init__(self, connection: sqlite3.Connection, gate: Gate, now: int) -> None:
        next_at, closed_until = connection.execute(_GATE, (gate.name,)).fetchone() or (None, None)
        self._gate = gate
        self._base = max(now, next_at or 0)
        self.room = 0
        latest = now + self._time_of(gate.burst)
        if self._base < latest and (closed_until is None or closed_until <= now):
            self.room = int((latest - self._base) * gate.per_second / 1e6)
            if self._base + self._time_of(self.room) > latest:
                self.room -= 1  # what was rounded

    def _time_of(self, runs: int) -> int:
        return ceil(runs * 1e6 / self._gate.per_second)

    def next_after(self, runs: int) -> int:
        return self._base + self._time_of(runs)


class Limits:
    """What the requests of a claim may take. Counts once, and then what is taken.

    Counts all runs of the type in the file, whatever queue, lane and priority they are of.
    """

    def __init__(self, connection: sqlite3.Connection, now: int) -> None:
        self.any = False
        """Whether the request has limits for any type."""
        self._connection = connection
        self._now = now
        self._most: dict[str, int] = {}
        self._flow: dict[str, TypeFlow] = {}
        self._runs: dict[tuple[str, int | None], int] = {}
        self._gates: dict[str, _GateRoom] = {}
        self._gate_of: dict[str, str] = {}

    def begin(self, request: LaneRequest) -> None:
        """Hold to the limits of a request from now on; what was taken before still counts."""
        self._most = dict(request.at_most)
        self._flow = {flow.job_type: flow for flow in request.flow}
        self.any = bool(self._most or self._flow)
        for flow in request.flow:
            if (gate := flow.gate) is not None:
                self._gate_of[flow.job_type] = gate.name
                if gate.name not in self._gates:
                    self._gates[gate.name] = _GateRoom(self._connection, gate, self._now)

    def holds(self, kind: str) -> bool:
        """Whether a type has any limit in the request."""
        return self.any and (kind in self._flow or kind in self._most)

    def of_type(self, kind: str) -> int:
        """How many more runs of a type, of whatever group."""
        room = self._most.get(kind, _UNLIMITED)
        if (flow := self._flow.get(kind)) is not None:
            if flow.running_in_all is not None:
                room = min(room, flow.running_in_all - self._count(kind, None))
            if flow.gate is not None:
                room = min(room, self._gates[flow.gate.name].room)
        return max(0, room)

    def room(self, kind: str, group: int) -> int:
        """How many more runs of a group of a type."""
        room = self.of_type(kind)
        if room and (limit := self.running(kind)) is not None:
            room = max(0, min(room, limit - self._count(kind, group)))
        return room

    def running(self, kind: str) -> int | None:
        """How many runs of each group of a type the request allows."""
        flow = self._flow.get(kind)
        return None if flow is None else flow.running

    def full_at(self, kind: str, group: int) -> int | None:
        """The limit that a group has reached, if it has."""
        limit = self.running(kind)
        return None if limit is None or self._count(kind, group) < limit else limit

    def take(self, kind: str, group: int) -> bool:
        """Take a place for a run, if there is one."""
        if not self.room(kind, group):
            return False
        if kind in self._most:
            self._most[kind] -= 1
        if (flow := self._flow.get(kind)) is not None:
            for counted in (None, group):
                self._runs[kind, counted] = self._count(kind, counted) + 1
            if flow.gate is not None:
                self._gates[flow.gate.name].room -= 1
        return True

    def _count(self, kind: str, group: int | None) -> int:
        key = (kind, group)
        if key not in self._runs:
            row = (
                self._connection.execute(_RUNS_OF_TYPE, (kind,))
                if group is None
                else self._connection.execute(_RUNS_OF_GROUP, key)
            ).fetchone()
            self._runs[key] = row[0]
        return self._runs[key]

    def pass_gates(self, kinds: Iterable[str]) -> None:
        """Write of runs that have started that they went through the gates of their types."""
        through = Counter(self._gate_of[kind] for kind in kinds if kind in self._gate_of)
        passed = [
            (name, gate.next_after(through[name]))
            for name, gate in self._gates.items()
            if through[name]
        ]
        if passed:
            self._connection.executemany(_GO_THROUGH, passed)


def mark_limited(connection: sqlite3.Connection, requests: Sequence[LaneRequest]) -> None:
    """Let the leases of limited types be in the index by which they are counted, from now on."""
    for request in requests:
        for flow in request.flow:
            if flow.running is not None or flow.running_in_all is not None:
                unmarked = connection.execute(_UNMARKED, (flow.job_type,)).fetchall()
                connection.executemany(_MARK_LANE, unmarked)
                connection.executemany(_MARK_LEASES, unmarked)


def close_gates(
    connection: sqlite3.Connection, transitions: Iterable[Transition], now: int
) -> None:
    connection.executemany(
        _CLOSE, [(one.closes, later_micros(now, one.delay)) for one in transitions]
    )


def prune_gates(connection: sqlite3.Connection, before: int) -> None:
    """Remove gates that nobody has used since."""
    connection.execute(_PRUNE, {"before": before})


def read_gates(connection: sqlite3.Connection, names: Sequence[str]) -> list[GateState]:
    found = {
        name: GateState(
            name=name,
            closed_until=None if closed_until is None else from_micros(closed_until),
            next_at=None if next_at is None else from_micros(next_at),
        )
        for name, closed_until, next_at in execute_in(connection, _GATES, [*names])
    }
    return [found.get(name) or GateState(name=name) for name in names]

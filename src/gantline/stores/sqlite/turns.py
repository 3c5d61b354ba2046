"""Turns: which group comes next in a queue and priority; tenants first, then of each its groups.

`gantline_turn` has one row per range; those of jobs without a group, and of suspects, are floors
and no more. A turn in line says that its group may have something due: one too many costs a look,
one too few must not be. Who was served gets the next number, so that the lowest was served longest
ago; 0 is new. Jobs of the default tenant without a group are one group of it, the plain one, found
by the floors as ever.
"""

import heapq
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from gantline.contract.flow import PLAIN
from gantline.stores.ranks import PRIORITIES
from gantline.stores.sqlite.rows import Row, execute_in

if TYPE_CHECKING:
    from gantline.stores.sqlite.limits import Limits
    from gantline.stores.sqlite.ready import Merge, ReadyRow

Range = tuple[int, int, int]
"""A lane, a rank and a group."""


class TurnState(IntEnum):
    """What a turn waits for."""

    NONE = 0
    """It is only a floor."""
    IN_LINE = 1
    LATER = 2
    FULL = 3


class Entry(NamedTuple):
    """A turn that may come into line."""

    lane: int
    rank: int
    group: int
    tenant: int
    served: int
    run_at: int
    state: TurnState


# So many groups share a claim at least, and this part of its limit, if they have as much.
_LEAST_WIDTH: Final = 10
_WIDTH_OF_LIMIT: Final = 5
# As many turns become due in one claim as keep it short; the others do in the next ones.
_MOST_DUE_AT_ONCE: Final = 1000
# A tenant with fewer groups in line has them read at once.
_FEW: Final = 12

_MARK_GROUPED = """
INSERT OR IGNORE INTO gantline_grouped (queue, rank, lane)
SELECT queue, ?, id FROM gantline_lane WHERE id = ?
"""
_UNMARK_GROUPED = """
DELETE FROM gantline_grouped AS gone WHERE queue = ? AND rank = ? AND lane = ?
AND NOT EXISTS (
    SELECT 1 FROM gantline_turn AS turn
    WHERE turn.lane = gone.lane AND turn.rank = gone.rank AND turn.grp > 0)
"""
_GROUPED = """
SELECT grouped.rank, grouped.lane, lane.job_type
FROM gantline_grouped AS grouped JOIN gantline_lane AS lane ON lane.id = grouped.lane
WHERE grouped.queue = ?
"""
_ENTER_TENANT = """
INSERT INTO gantline_tenant_turn (queue, rank, tenant, lane, served, since)
SELECT lane.queue, :rank, :tenant, lane.id, coalesce(
    (SELECT max(served) FROM gantline_tenant_turn AS other
     WHERE other.queue = lane.queue AND other.rank = :rank AND other.tenant = :tenant),
    :served), :run_at
FROM gantline_lane AS lane WHERE lane.id = :lane
ON CONFLICT (queue, rank, tenant, lane) DO NOTHING
"""
_TO_ENTER = "SELECT lane, rank, grp, tenant, served, run_at FROM gantline_turn"
_BECOME_DUE = f"""
{_TO_ENTER} WHERE lane = ? AND rank = ? AND state = 2 AND run_at <= ? ORDER BY run_at LIMIT ?
"""
_HAVE_ROOM = f"""
{_TO_ENTER} WHERE lane = ? AND rank = ? AND state = 3 AND full_at < ? LIMIT ?
"""
_FULL_OF_GROUPS = f"{_TO_ENTER} WHERE state = 3 AND grp IN {{}}"
_ANY_FULL = "SELECT 1 FROM gantline_turn WHERE state = 3 LIMIT 1"
_ENTER = """
UPDATE gantline_turn SET state = 1, full_at = NULL WHERE lane = ? AND rank = ? AND grp = ?
"""
# By itself, SQLite would read all turns of the range here, and in _LEAVE_TENANT.
_IN_LINE = """
SELECT EXISTS (SELECT 1 FROM gantline_turn INDEXED BY gantline_turn_in_line
               WHERE lane = :lane AND rank = :rank AND state = 1)
    OR EXISTS (SELECT 1 FROM gantline_turn INDEXED BY gantline_turn_later
               WHERE lane = :lane AND rank = :rank AND state = 2 AND run_at <= :now)
    OR EXISTS (SELECT 1 FROM gantline_turn INDEXED BY gantline_turn_full
               WHERE lane = :lane AND rank = :rank AND state = 3 AND full_at < :limit)
"""
_ANY_LIMIT: Final = 2**62

_TENANTS = """
SELECT served, since, tenant, new_is_next FROM gantline_tenant_turn
WHERE lane = ? AND rank = ? AND served {} 0
ORDER BY served, since
"""
_GROUPS = """
SELECT served, run_at, grp FROM gantline_turn
WHERE lane = ? AND rank = ? AND tenant = ? AND state = 1 AND served {} 0 ORDER BY served, run_at
"""
_STAY_IN_LINE: Final = frozenset({TurnState.IN_LINE, TurnState.NONE})
_IS_NEW: Final = {True: "=", False: ">"}
_FEW_GROUPS = """
SELECT served, run_at, job_id, grp FROM gantline_turn
WHERE lane = ? AND rank = ? AND tenant = ? AND state = 1 ORDER BY served, run_at LIMIT ?
"""
_FLOOR_OF_GROUP = """
SELECT served, run_at, job_id FROM gantline_turn
WHERE lane = ? AND rank = ? AND grp = ? AND state = 1
"""
_SERVE_TURN = "UPDATE gantline_turn SET served = ? WHERE lane = ? AND rank = ? AND grp = ?"
_SERVE_TENANT = """
UPDATE gantline_tenant_turn SET served = ?, new_is_next = ?
WHERE queue = ? AND rank = ? AND tenant = ?
"""
_LEAVE_TENANT = """
DELETE FROM gantline_tenant_turn AS gone WHERE queue = ? AND rank = ? AND tenant = ?
AND NOT EXISTS (
    SELECT 1 FROM gantline_turn AS turn INDEXED BY gantline_turn_in_line
    WHERE turn.lane = gone.lane AND turn.rank = gone.rank AND turn.tenant = gone.tenant
      AND turn.state = 1)
"""
_ROTATION = """
SELECT served, default_served, plain_served, new_is_next, new_group_is_next
FROM gantline_rotation WHERE queue = ? AND rank = ?
"""
_SET_ROTATION = "INSERT OR REPLACE INTO gantline_rotation VALUES (?, ?, ?, ?, ?, ?, ?)"


def state_of(rank: int, group: int, *, is_due: bool) -> TurnState:
    if group == PLAIN or rank >= PRIORITIES:
        return TurnState.NONE
    return TurnState.IN_LINE if is_due else TurnState.LATER


# -- into line ------------------------------------------------------------------------------------


def enter(connection: sqlite3.Connection, entries: Iterable[Entry]) -> None:
    """Note that these turns are there; and of those in line, that their tenants are, too."""
    lanes = {(one.rank, one.lane) for one in entries}
    if lanes:
        connection.executemany(_MARK_GROUPED, list(lanes))
        first: dict[tuple[int, int, int], Entry] = {}
        for one in entries:
            if one.state is TurnState.IN_LINE and one.tenant != PLAIN:
                key = (one.rank, one.tenant, one.lane)
                if key not in first or one.run_at < first[key].run_at:
                    first[key] = one
        connection.executemany(
            _ENTER_TENANT,
            [entry._asdict() for entry in first.values()],
        )


def _reenter(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Put turns into line that were not."""
    connection.executemany(_ENTER, [row[:3] for row in rows])
    enter(connection, [Entry._make((*row, TurnState.IN_LINE)) for row in rows])


def give_back_places(connection: sqlite3.Connection, groups: Iterable[int]) -> None:
    """Put the turns of groups into line of which a run ends, where they had been full."""
    found = sorted({*groups} - {PLAIN})
    if found:
        _reenter(connection, execute_in(connection, _FULL_OF_GROUPS, found))


def is_any_full(connection: sqlite3.Connection) -> bool:
    return connection.execute(_ANY_FULL).fetchone() is not None


# -- who is next ----------------------------------------------------------------------------------

Lanes = Sequence[tuple[int, str]]
"""Lanes with their job types."""


def read_grouped(connection: sqlite3.Connection, queue: str) -> dict[int, list[tuple[int, str]]]:
    """Read in which lanes of a queue groups have anything waiting, by rank."""
    found: dict[int, list[tuple[int, str]]] = {}
    for rank, lane, kind in connection.execute(_GROUPED, (queue,)):
        found.setdefault(rank, []).append((lane, kind))
    return found


def has_turn(
    connection: sqlite3.Connection, rank: int, lanes: Lanes, limits: "Limits", now: int
) -> bool:
    """Whether any turn of these lanes is in line, or would be in a claim."""

    def is_in_line(lane: int, kind: str) -> bool:
        values = {"lane": lane, "rank": rank, "now": now, "limit": _limit_of(kind, limits)}
        return bool(connection.execute(_IN_LINE, values).fetchone()[0])

    return any(is_in_line(lane, kind) for lane, kind in lanes)


def _limit_of(kind: str, limits: "Limits") -> int:
    limit = limits.running(kind)
    return _ANY_LIMIT if limit is None else limit


class _Node(Protocol):
    """A tenant or a group that waits for its turn."""

    is_new: bool

    def take(self, limit: int) -> "list[ReadyRow]":
        """Take so many of its due jobs; fewer where it has, or may start, no more."""
        ...


class _Sharing:
    """Deals places out: the same to each of those who wait, as far as it has jobs.

    New ones and others alternate, so that neither keeps the other waiting; of each the longest
    waiting goes first. A claim reaches only as many as its limit is worth, and more where these
    have too few. Who had more than it was given comes again after all others.
    """

    def __init__(self, new: Iterator[_Node], served: Iterator[_Node], *, new_is_next: bool) -> None:
        self.new_is_next = new_is_next
        self._nodes = _alternate(new, served) if new_is_next else _alternate(served, new)
        self._next: deque[_Node] = deque()
        self._again: deque[_Node] = deque()

    def take(self, limit: int) -> "list[ReadyRow]":
        found: list[ReadyRow] = []
        while len(found) < limit:
            width = _width(limit - len(found))
            self._next += islice(self._nodes, max(0, width - len(self._next)))
            if not self._next:
                if not self._again:
                    break
                self._next, self._again = self._again, self._next
            for left in range(min(width, len(self._next)), 0, -1):
                share = -((len(found) - limit) // left)
                if not share:
                    break
                node = self._next.popleft()
                rows = node.take(share)
                found += rows
                if rows:
                    self.new_is_next = not node.is_new
                if len(rows) == share:
                    self._again.append(node)
        return found


def _alternate(one: Iterator[_Node], other: Iterator[_Node]) -> Iterator[_Node]:
    while (node := next(one, None)) is not None:
        yield node
        one, other = other, one
    yield from other


def _width(limit: int) -> int:
    """Among how many a claim shares so many places, while these have enough."""
    return min(limit, max(_LEAST_WIDTH, limit // _WIDTH_OF_LIMIT))


class _Tenant:
    """A tenant, whose groups take turns in what it gets."""

    def __init__(
        self, tenant: int, rotation: "Rotation", *, is_new: bool, new_is_next: bool
    ) -> None:
        self.tenant = tenant
        self.is_new = is_new
        self.new_is_next = new_is_next
        self._rotation = rotation
        self._groups: _Sharing | _Group | None = None

    def take(self, limit: int) -> "list[ReadyRow]":
        if self._groups is None:
            self._groups = self._rotation.groups_of(self.tenant, new_is_next=self.new_is_next)
        rows = self._groups.take(limit)
        if isinstance(self._groups, _Sharing):
            self.new_is_next = self._groups.new_is_next
        self._rotation.visit(self, served=bool(rows))
        return rows


class _Group:
    """A group, of which the types of a queue are merged."""

    def __init__(
        self,
        tenant: int,
        group: int,
        merge: "Merge",
        ranges: Sequence[Range],
        rotation: "Rotation",
        *,
        is_new: bool,
    ) -> None:
        self.tenant = tenant
        self.ranges = ranges
        self.is_new = is_new
        self.merge = merge
        self._group = group
        self._rotation = rotation

    def take(self, limit: int) -> "list[ReadyRow]":
        rows = self.merge.take(limit)
        if rows:
            self._rotation.groups_served[self._group] = self._rotation.count()
        return rows


class Rotation:
    """The turns of one queue and rank, for one claim. Reads all before anything is written."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        queue: str,
        rank: int,
        lanes: Lanes,
        *,
        limits: "Limits",
        plain: "Merge",
        merge: "Callable[[Iterator[Row]], Merge]",
        read: Callable[[str, Sequence[object]], Iterator[Row]],
    ) -> None:
        """`plain` has the jobs without a group; `merge` makes one of a group's floors.

        `read` reads rows one by one, and ends at the latest when the claim does.
        """
        self.groups_served: dict[int, int] = {}
        """The numbers of the groups that were given anything."""
        self._connection = connection
        self._queue = queue
        self._rank = rank
        self._lanes = lanes
        self._limits = limits
        self._plain = plain
        self._merge = merge
        self._read = read
        self._groups: dict[int, _Group] = {}
        self._tenants: dict[int, _Tenant] = {}
        self._tenants_served: dict[int, int] = {}
        self._seen: set[int] = set()
        row = connection.execute(_ROTATION, (queue, rank)).fetchone() or (0, 0, 0, 1, 1)
        self._last: int = row[0]
        self._default_served: int = row[1]
        self._plain_served: int = row[2]
        self._new_group: int = row[4]
        self._sharing = _Sharing(
            self._tenants_in_line(is_new=True),
            self._tenants_in_line(is_new=False),
            new_is_next=bool(row[3]),
        )

    def visit(self, tenant: _Tenant, *, served: bool) -> None:
        """Remember that a tenant was asked, and whether it had anything."""
        self._tenants[tenant.tenant] = tenant
        if served:
            self._tenants_served[tenant.tenant] = self.count()

    def count(self) -> int:
        """Give the number of one who is served."""
        self._last += 1
        return self._last

    def take(self, limit: int) -> "list[ReadyRow]":
        # What the types may start is dealt out first: else the first group would have all of it.
        room = sum(self._limits.of_type(kind) for _, kind in self._lanes)
        found = self._sharing.take(min(limit, room))
        return found + self._sharing.take(limit - len(found))

    @property
    def merges(self) -> "list[Merge]":
        """Those that were looked at."""
        return [self._plain, *(one.merge for group, one in self._groups.items() if group)]

    def _tenants_in_line(self, *, is_new: bool) -> Iterator[_Node]:
        statement = _TENANTS.format(_IS_NEW[is_new])
        sources = [self._read_lane(statement, lane, kind) for lane, kind in self._lanes]
        if not is_new and self._has_default():
            sources.append(iter([(self._default_served, 0, PLAIN, self._new_group)]))
        for _, _, tenant, new_is_next in heapq.merge(*sources):
            if tenant not in self._seen:
                self._seen.add(tenant)
                yield _Tenant(tenant, self, is_new=is_new, new_is_next=bool(new_is_next))

    def _has_default(self) -> bool:
        if self._plain.may_have_more:
            return True
        return any(self._few_groups(PLAIN, lane, 1) for lane, _ in self._lanes_with_room())

    def _lanes_with_room(self) -> Lanes:
        return [
            (lane, kind)
            for lane, kind in self._lanes
            if not self._limits.holds(kind) or self._limits.of_type(kind)
        ]

    def _few_groups(self, tenant: int, lane: int, limit: int) -> list[Row]:
        values = (lane, self._rank, tenant, limit)
        return self._connection.execute(_FEW_GROUPS, values).fetchall()

    def groups_of(self, tenant: int, *, new_is_next: bool) -> "_Sharing | _Group":
        """Let the groups of a tenant share that are in line."""
        floors: dict[int, list[Row]] = {}
        served: dict[int, int] = {}
        for lane, kind in self._lanes_with_room():
            rows = self._few_groups(tenant, lane, _FEW)
            if len(rows) == _FEW:
                return _Sharing(
                    self._many_groups(tenant, is_new=True),
                    self._many_groups(tenant, is_new=False),
                    new_is_next=new_is_next,
                )
            for at, run_at, job_id, group in rows:
                floors.setdefault(group, []).append((run_at, job_id, lane, self._rank, group, kind))
                served[group] = max(at, served.get(group, 0))
        if len(floors) == 1 and tenant != PLAIN:  # as usual: most tenants are a group
            ((group, found),) = floors.items()
            return self._make_group(tenant, group, found, is_new=not served[group])
        in_order = sorted(floors, key=lambda group: (served[group], min(floors[group])))
        new = [group for group in in_order if not served[group]]
        others = in_order[len(new) :]
        if tenant == PLAIN and self._plain.may_have_more:
            before = [group for group in others if served[group] < self._plain_served]
            others.insert(len(before), PLAIN)
        return _Sharing(
            (self._make_group(tenant, group, floors[group], is_new=True) for group in new),
            (self._make_group(tenant, one, floors.get(one, ()), is_new=False) for one in others),
            new_is_next=new_is_next,
        )

    def _many_groups(self, tenant: int, *, is_new: bool) -> Iterator[_Node]:
        """Yield the groups of a tenant that are in line, longest first, as they are asked for."""
        statement = _GROUPS.format(_IS_NEW[is_new])
        sources = [self._read_lane(statement, lane, kind, tenant) for lane, kind in self._lanes]
        if tenant == PLAIN and not is_new and self._plain.may_have_more:
            sources.append(iter([(self._plain_served, 0, PLAIN)]))
        for _, _, group in heapq.merge(*sources):
            if group in self._groups:
                continue  # of another lane
            found = [
                (row, (*row[1:], lane, self._rank, group, kind))
                for lane, kind in self._lanes_with_room()
                for row in self._connection.execute(_FLOOR_OF_GROUP, (lane, self._rank, group))
            ]
            if is_new and any(row[0] for row, _ in found):
                continue  # new in one lane only
            yield self._make_group(tenant, group, [floor for _, floor in found], is_new=is_new)

    def _make_group(
        self, tenant: int, group: int, floors: Sequence[Row], *, is_new: bool
    ) -> _Group:
        merge = self._plain if group == PLAIN else self._merge(iter(sorted(floors)))
        ranges = [(lane, rank, group) for _, _, lane, rank, *_ in floors]
        node = _Group(tenant, group, merge, ranges, self, is_new=is_new)
        self._groups[group] = node
        return node

    def _read_lane(self, statement: str, lane: int, kind: str, *values: int) -> Iterator[Row]:
        """Read rows of a lane as long as its type has room."""
        for row in self._read(statement, (lane, self._rank, *values)):
            if self._limits.holds(kind) and not self._limits.of_type(kind):
                return
            yield row

    def bring_due(self, now: int) -> None:
        """Put turns into line that have become due, or whose limit is higher now.

        Many more than a claim has slots: some of them may be full at the higher limit, too.
        """
        for lane, kind in self._lanes:
            values = (lane, self._rank, now, _MOST_DUE_AT_ONCE)
            rows = self._connection.execute(_BECOME_DUE, values).fetchall()
            limit = _limit_of(kind, self._limits)
            values = (lane, self._rank, limit, _MOST_DUE_AT_ONCE)
            rows += self._connection.execute(_HAVE_ROOM, values).fetchall()
            if rows:
                _reenter(self._connection, rows)

    def write(self, states: Mapping[Range, TurnState | None]) -> None:
        """Write who was served, and remove what is no longer in line.

        `states` has what the turns wait for that were looked at: these rows are written already.
        """
        where = (self._queue, self._rank)
        write = self._connection.executemany
        groups, served = self._groups, self._tenants_served
        write(
            _SERVE_TURN,
            [
                (at, *key)
                for group, at in self.groups_served.items()
                for key in groups[group].ranges
                if key not in states
            ],
        )
        left = {key: state for key, state in states.items() if state not in _STAY_IN_LINE}
        leaving = {groups[group].tenant for _, _, group in left}
        leaving |= self._tenants.keys() - served.keys()
        write(_LEAVE_TENANT, [(*where, tenant) for tenant in leaving - {PLAIN}])
        write(
            _SERVE_TENANT,
            [
                (served[tenant], node.new_is_next, *where, tenant)
                for tenant, node in self._tenants.items()
                if tenant in served and tenant != PLAIN
            ],
        )
        emptied = {lane for (lane, _, group), state in left.items() if group and state is None}
        write(_UNMARK_GROUPED, [(*where, lane) for lane in emptied])
        if served:
            default = self._tenants.get(PLAIN)
            self._connection.execute(
                _SET_ROTATION,
                (
                    *where,
                    self._last,
                    served.get(PLAIN, self._default_served),
                    self.groups_served.get(PLAIN, self._plain_served),
                    self._sharing.new_is_next,
                    default.new_is_next if default else self._new_group,
                ),
            )

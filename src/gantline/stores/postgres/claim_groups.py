"""Claims in queues where groups take turns or runs are limited."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, NamedTuple

from gantline.contract.clock import span_micros
from gantline.contract.flow import PLAIN, TypeFlow, group_number
from gantline.stores.postgres.arrays import (
    Array,
    Bigints,
    Doubles,
    Integers,
    RandomUuids,
    Texts,
    Uuids,
)
from gantline.stores.postgres.claim_requests import (
    GROUP,
    IN_ORDER,
    JOB,
    LANE,
    PRIORITY,
    REGISTERED,
    RUN_AT,
    TENANT,
    TOKEN,
    Claim,
    QueueRequest,
    Suspects,
)
from gantline.stores.postgres.floors import START, Floors, Position, Range
from gantline.stores.postgres.rotation import (
    NONE_DUE,
    SHUT,
    USED_UP,
    Left,
    Rotation,
    Turn,
)
from gantline.stores.postgres.sql import Row, Sql

_CLAIM = f"SELECT * FROM gantline.claim_groups(%s, {REGISTERED}, {', '.join(['%s'] * 29)})"  # noqa: S608  # constants only
_TURNS: Final = -1
# A claim that is not full looks at more groups, and more pages of them, in so many calls.
_MOST_CALLS: Final = 4
_FURTHER_TURNS: Final = 64
_WIDTH: Final = len(Left._fields)
_FREE: Final = TypeFlow(job_type="")

PlainRanges = Callable[[list[int]], Awaitable[list[Range]]]
"""Gives the ranges without a group that a claim opens of these lanes."""


class _TurnRange(NamedTuple):
    """A range to search, and of which turn it is."""

    turn: int
    lane: int
    rank: int
    tenant: int
    group: int
    floor: Position
    each: int
    slots: int
    new: int = 0


class _Answer(NamedTuple):
    """What one call has started, and how it has left what it looked at."""

    rows: list[Row]
    is_repeated: bool
    turns_since: int
    """From when on new turns are looked for; -1 where there may be more of them now."""
    new_after: int
    after: int
    left: list[Left]
    shut: list[Left]
    """The lanes of which this claim can start no more, or no plain jobs."""


class GroupClaims:
    """The claims of one process by turns, with the rotation of each queue."""

    def __init__(self, floors: Floors) -> None:
        self._floors = floors
        self._rotations: dict[str, Rotation] = {}

    def _rotation(self, queue: str) -> Rotation:
        return self._rotations.setdefault(queue, Rotation())

    def are_needed(self, claim: Claim) -> bool:
        """Whether this claim has limits, or its queues are known to have groups."""
        return any(
            one.flow or (not one.request.suspects and self._rotation(one.request.queue).is_used)
            for one in claim.requests
        )

    def expect(self, claim: Claim) -> None:
        """Say that there are turns in the queues of this claim."""
        for one in claim.requests:
            self._rotation(one.request.queue).expect()

    async def start(
        self,
        sql: Sql,
        claim: Claim,
        plain: PlainRanges,
        suspects: Suspects,
        *,
        is_repeated: bool,
        reads_page: bool,
    ) -> list[Row]:
        """Start runs, request by request."""
        found: list[Row] = []
        call = _Calls(sql, claim)
        for one in claim.requests:
            if not one.lanes and not is_repeated:
                continue
            if one.request.suspects:
                rows = await self._start_suspects(call, one, suspects, is_repeated=is_repeated)
            else:
                rows = await self._start_turns(call, one, plain, reads_page=reads_page)
            found += rows
            if call.is_repeated:
                break
        return found

    async def _start_suspects(
        self, call: "_Calls", one: QueueRequest, due: Suspects, *, is_repeated: bool
    ) -> list[Row]:
        """Start those with the most crashes of which any may start."""
        for limit, ranges in one.ranges_of_suspects(due):
            searched = [
                _TurnRange(0, range_.lane, range_.rank, 0, range_.group, range_.floor, limit, limit)
                for range_ in ranges
            ]
            answer = await call.run(one, limit, searched)
            if answer.rows or answer.is_repeated:
                return sorted(answer.rows, key=IN_ORDER)
        if is_repeated and not call.is_repeated:
            return sorted((await call.run(one, 0, [])).rows, key=IN_ORDER)
        return []

    async def _start_turns(
        self, call: "_Calls", one: QueueRequest, plain: PlainRanges, *, reads_page: bool
    ) -> list[Row]:
        rotation, limit = self._rotation(one.request.queue), one.request.limit
        are_many = self._floors.are_many(one.lanes)
        one = one._replace(at_most=dict(one.at_most))
        found: list[Row] = []
        looked_at: set[tuple[int, int]] = set()
        shut: set[Left] = set()
        began_after, has_wrapped = rotation.after, False
        opened = await plain(one.lanes)
        for number in range(_MOST_CALLS):
            asked = limit - len(found)
            most = max(asked, _FURTHER_TURNS) if number else rotation.most_turns(limit)
            turns = rotation.deal(asked, one.lanes, most=most, except_for=looked_at)
            answer = await call.run(
                one,
                asked,
                self._ranges(turns, opened),
                since=self._floors.turns_since(one.lanes),
                new=asked if number else rotation.slots_of_new(asked),
                new_after=rotation.new_after,
                after=rotation.after,
                reads_page=reads_page and not number,
            )
            found += answer.rows
            if answer.is_repeated:
                break
            for row in answer.rows:
                if row[LANE] in one.at_most:
                    one.at_most[row[LANE]] -= 1
            self._update(one, rotation, answer)
            looked_at |= {(left.rank, left.group) for left in answer.left}
            looked_at |= {(turn.rank, turn.group) for turn in turns}
            has_wrapped |= answer.after < 0
            if len(found) >= limit:
                break
            opened = []
            if not shut.issuperset(answer.shut):
                # Else what is due of these would stand before all others, in every claim.
                shut |= set(answer.shut)
                one = one._replace(lanes=_without(one.lanes, shut, SHUT))
                if are_many:
                    opened = await plain(_without(one.lanes, shut))
                    looked_at -= {(range_.rank, PLAIN) for range_ in opened}
            more_pages = not has_wrapped or began_after > answer.after > -1
            if not one.lanes or not (
                answer.turns_since < 0
                or more_pages
                or opened
                or rotation.knows_others(one.lanes, looked_at)
            ):
                break
        rotation.was_full = len(found) >= limit
        return sorted(found, key=IN_ORDER)

    def _ranges(self, turns: Sequence[Turn], plain: Iterable[Range]) -> list[_TurnRange]:
        plain_floors = {(one.lane, one.rank): one.floor for one in plain}
        return [
            _TurnRange(number, lane, turn.rank, turn.tenant, turn.group, floor, *turn[4:])
            for number, turn in enumerate(turns, start=1)
            for lane in turn.lanes
            if (
                floor := plain_floors.get((lane, turn.rank))
                if turn.group == PLAIN
                else self._floors.of_group(lane, turn.rank, turn.group)
            )
        ]

    def _update(self, one: QueueRequest, rotation: Rotation, answer: _Answer) -> None:
        taken = [
            (
                row[LANE],
                row[PRIORITY],
                group_number(row[TENANT], row[GROUP]),
                (row[RUN_AT], row[JOB]),
            )
            for row in sorted(answer.rows, key=IN_ORDER)
            if row[TENANT] is not None
        ]
        self._floors.raise_to((lane, rank, at) for lane, rank, group, at in taken if group == PLAIN)
        self._floors.raise_groups_to(row for row in taken if row[2] != PLAIN)
        if answer.turns_since > 0:
            self._floors.raise_turns_to(one.lanes, answer.turns_since)
        self._floors.remove_candidates(
            Range(left.lane, left.rank, START)
            for left in answer.left
            if left.group == PLAIN and left.state in (NONE_DUE, USED_UP)
        )
        rotation.after, rotation.new_after = answer.after, answer.new_after
        rotation.update(answer.left)


class _Calls:
    """The calls of one claim: only the first looks for what it has started already."""

    def __init__(self, sql: Sql, claim: Claim) -> None:
        self._sql = sql
        self._claim = claim
        self._is_first = True
        self.is_repeated = False

    async def run(
        self,
        one: QueueRequest,
        limit: int,
        searched: Sequence[_TurnRange],
        *,
        since: int | None = None,
        new: int = 0,
        new_after: int = -1,
        after: int | None = None,
        reads_page: bool = False,
    ) -> _Answer:
        claim = self._claim
        rows = await self._sql.rows(
            _CLAIM,
            claim.now,
            claim.session,
            claim.now,
            claim.claim_id,
            span_micros(claim.lease),
            RandomUuids(limit),
            limit,
            self._is_first,
            Bigints(list(claim.logged)) if claim.logged else None,
            *_lane_columns(one),
            since,
            new,
            new_after,
            after,
            reads_page,
            *_range_columns(searched),
        )
        self._is_first = False
        if not rows or rows[-1][TOKEN] is not None:
            self.is_repeated = True
            return _Answer(rows, True, 0, -1, -1, [], [])
        numbers = rows.pop()[_TURNS]
        every = [Left(*numbers[start : start + _WIDTH]) for start in range(3, len(numbers), _WIDTH)]
        left = [one for one in every if one.state < SHUT]
        shut = [one for one in every if one.state >= SHUT]
        return _Answer(rows, False, numbers[0] or 0, numbers[1], numbers[2], left, shut)


def _without(lanes: Iterable[int], shut: Iterable[Left], *states: int) -> list[int]:
    """Give the lanes beside those that are shut, in one of these states if any is given."""
    left_out = {one.lane for one in shut if not states or one.state in states}
    return [lane for lane in lanes if lane not in left_out]


def _lane_columns(one: QueueRequest) -> list[Array | None]:
    if not one.flow:
        most = Integers([one.at_most.get(lane) for lane in one.lanes]) if one.at_most else None
        return [Bigints(one.lanes), None, most, None, None, None, None, None]
    flows = [one.flow.get(lane, _FREE) for lane in one.lanes]
    gates = [flow.gate for flow in flows]
    return [
        Bigints(one.lanes),
        Texts([flow.job_type or None for flow in flows]),
        Integers([one.at_most.get(lane) for lane in one.lanes]),
        Integers([_in_32_bits(flow.running) for flow in flows]),
        Integers([_in_32_bits(flow.running_in_all) for flow in flows]),
        Texts([gate and gate.name for gate in gates]),
        Doubles([gate and 1e6 / gate.per_second for gate in gates]),
        Integers([gate and _in_32_bits(gate.burst) for gate in gates]),
    ]


def _in_32_bits(number: int | None) -> int | None:
    return number and min(number, 2**31 - 1)


def _range_columns(searched: Sequence[_TurnRange]) -> list[Array]:
    return [
        Bigints([one.turn for one in searched]),
        Bigints([one.lane for one in searched]),
        Integers([one.rank for one in searched]),
        Bigints([one.tenant for one in searched]),
        Bigints([one.group for one in searched]),
        Bigints([one.floor[0] for one in searched]),
        Uuids([one.floor[1] for one in searched]),
        Integers([one.each for one in searched]),
        Integers([one.slots for one in searched]),
        Integers([one.new for one in searched]),
    ]

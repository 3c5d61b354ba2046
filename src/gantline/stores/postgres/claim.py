"""claim: due jobs from ready to lease; and the floors from which this process searches."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import lru_cache
from heapq import nsmallest
from operator import itemgetter
from typing import Final, NamedTuple
from uuid import UUID

from psycopg.errors import NotNullViolation

from gantline.contract.clock import span_micros
from gantline.contract.errors import SessionNotRegistered
from gantline.contract.query import LaneRequest
from gantline.contract.records import SESSIONS
from gantline.contract.snapshot import SUSPECT_AFTER_CRASHES, Run
from gantline.runtime import monotonic
from gantline.stores.postgres.arrays import Bigints, Integers, RandomUuids, Uuids
from gantline.stores.postgres.calls import Calls
from gantline.stores.postgres.lanes import Lanes
from gantline.stores.postgres.leases import forget
from gantline.stores.postgres.sql import Row, Sql
from gantline.stores.ranks import RANKS, crashes_of
from gantline.stores.sql.rows import RUN_WIDTH, job_from_row, run_from_row

# There are few suspects: their ranks have no floors.
_RANKS: Final = RANKS[0]
START: Final = (0, UUID(int=0))
# Up to so many ranges are opened in one claim; 64 cost 0.3 ms.
_FEW_RANGES: Final = 64
_FULL_SEARCH_SECONDS: Final = 1.0
_SHARE_OF_TIME: Final = 20

Position = tuple[int, UUID]
"""The time due and the id of a row."""


class Range(NamedTuple):
    """A lane and a rank, and the position from which to search."""

    lane: int
    rank: int
    floor: Position


class Floors:
    """The position from which this process searches each range of the ready queue.

    Claimed rows leave dead entries in the index until they are vacuumed, and an open snapshot keeps
    them for hours. A search that begins after the last row it took does not read them again. A row
    that is committed late, or requeued, may be below a floor. So all floors are cleared once per
    second, or less often where that search would take more than a twentieth of the time. Order is
    promised within that span.
    """

    def __init__(self, monotonic: Callable[[], float] = monotonic) -> None:
        self._monotonic = monotonic
        self._floors: dict[tuple[int, int], Position] = {}
        self._candidates: dict[tuple[int, int], Position] = {}
        self._full_search_at = 0.0

    def begin(self, *, found_nothing: bool = False) -> float | None:
        """Begin a claim. If it is a full search, without floors, return when it began.

        A claim that found nothing is repeated as a full search.
        """
        now = self._monotonic()
        if now < self._full_search_at and not found_nothing:
            return None
        self._floors.clear()
        self._candidates.clear()
        return now

    def finish_full_search(self, since: float) -> None:
        """End the full search that began then, and set when the next one is due."""
        now = self._monotonic()
        self._full_search_at = now + max(_FULL_SEARCH_SECONDS, _SHARE_OF_TIME * (now - since))

    @staticmethod
    def are_many(lanes: Sequence[int]) -> bool:
        return len(lanes) * len(_RANKS) > _FEW_RANGES

    def ranges_of(self, lanes: Sequence[int]) -> list[Range]:
        return [
            Range(lane, rank, self._floors.get((lane, rank), START))
            for rank in _RANKS
            for lane in lanes
        ]

    def raise_to(self, taken: Iterable[tuple[int, int, Position]]) -> None:
        """Raise the floors to the last rows taken, given in order.

        A concurrent claim may have raised them further.
        """
        last = {(lane, rank): position for lane, rank, position in taken}
        for key, position in last.items():
            self._floors[key] = max(position, self._floors.get(key, START))
            if key in self._candidates:
                self._candidates[key] = max(position, self._candidates[key])

    # -- with many lanes, a claim opens only candidates: ranges that are known to have due rows ----

    def add_candidates(self, heads: Iterable[tuple[int, int, Position]]) -> None:
        """Add ranges that have due rows, with the position of the first."""
        self._candidates |= {(lane, rank): position for lane, rank, position in heads}

    def candidates(self, lanes: Sequence[int]) -> list[Range]:
        """Give the ranges whose rows come next, as many as one claim opens."""
        among = set(lanes)
        known = (
            (rank, position, lane)
            for (lane, rank), position in self._candidates.items()
            if lane in among
        )
        first = nsmallest(_FEW_RANGES // len(_RANKS), known)
        return [Range(lane, rank, position) for rank, position, lane in first]

    def remove_candidates(self, ranges: Iterable[Range]) -> None:
        """Remove ranges that had fewer rows than were requested."""
        for one in ranges:
            self._candidates.pop((one.lane, one.rank), None)


# A lease has a session: without a record of it there is none, so nothing is started.
_REGISTERED = f"""(
    SELECT key FROM gantline.record WHERE namespace = '{SESSIONS}' AND key = %s
      AND (expires_at IS NULL OR expires_at > coalesce(%s, gantline.micros())))"""  # noqa: S608
_CLAIM = f"SELECT * FROM gantline.claim_jobs(%s, {_REGISTERED}, {', '.join(['%s'] * 11)})"  # noqa: S608
_HEADS = """
SELECT given.lane, given.rank, head.run_at, head.job_id
FROM unnest(%s, %s) AS given (lane, rank)
CROSS JOIN LATERAL (
    SELECT run_at, job_id FROM gantline.ready
    WHERE ready.lane = given.lane AND ready.rank = given.rank
      AND ready.run_at <= coalesce(%s, gantline.micros())
    ORDER BY run_at, job_id LIMIT 1
) AS head
"""
# Also what this claim has started, if it is repeated. In one statement, so that a suspect is seen
# either as due or as started.
_SUSPECTS = """
SELECT lane, rank FROM gantline.due_suspects(%s)
UNION ALL
SELECT lane, NULL FROM gantline.lease WHERE claim_id = %s
"""
_CRASHES, _PRIORITY, _STARTED_AT = 5, 7, 8
_RUN_AT, _LANE, _JOB, _TENANT = RUN_WIDTH, RUN_WIDTH + 1, RUN_WIDTH + 2, RUN_WIDTH + 3
_IN_ORDER = itemgetter(_PRIORITY, _RUN_AT, _JOB)


class _QueueRequest(NamedTuple):
    """A request for one queue, with its lanes."""

    request: LaneRequest
    lanes: list[int]
    at_most: dict[int, int]
    """How many jobs of these lanes may be taken at most."""


class _Claim(NamedTuple):
    """One call of claim."""

    session: str
    claim_id: UUID
    lease: timedelta
    now: int | None
    requests: list[_QueueRequest]
    logged: set[int]
    """The lanes in which a start is an event."""

    @property
    def is_for_suspects(self) -> bool:
        return any(one.request.suspects for one in self.requests)

    @property
    def is_for_others(self) -> bool:
        return any(not one.request.suspects for one in self.requests)


class _Opened(NamedTuple):
    """Ranges from which, together, at most so many jobs are taken."""

    limit: int
    ranges: list[Range]


class Claims:
    """The claims of one process, with what it keeps between them."""

    def __init__(self, calls: Calls, lanes: Lanes) -> None:
        self._calls = calls
        self._lanes = lanes
        self._floors = Floors()

    async def claim(
        self,
        session: str,
        claim_id: UUID,
        requests: Sequence[LaneRequest],
        *,
        lease: timedelta,
        now: int | None,
    ) -> list[Run]:
        claim = _Claim(session, claim_id, lease, now, requests=[], logged=set())

        async def look_up(sql: Sql) -> None:
            claim.requests[:] = [await self._resolve(sql, one) for one in _merge(requests)]
            for one in requests:
                if one.logged:
                    claim.logged.update(await self._lanes.find_numbers(sql, one.queue, one.logged))

        return await self._calls.run(lambda sql: self._claim(sql, claim), before=look_up)

    async def _resolve(self, sql: Sql, request: LaneRequest) -> _QueueRequest:
        lanes = await self._lanes.find_numbers(sql, request.queue, request.job_types)
        if not request.at_most:
            return _QueueRequest(request, lanes, {})
        by_type = dict(request.at_most)
        kinds = ((lane, self._lanes.name_of(lane)[1]) for lane in lanes)
        at_most = {lane: by_type[kind] for lane, kind in kinds if kind in by_type}
        return _QueueRequest(request, [lane for lane in lanes if at_most.get(lane, 1) > 0], at_most)

    async def _claim(self, sql: Sql, claim: _Claim) -> list[Run]:
        rows = await (
            self._search(sql, claim) if claim.is_for_others else self._start_existing(sql, claim)
        )
        return [
            run_from_row(
                row,
                job_from_row(row[_JOB:], self._lanes.name_of(row[_LANE])),
                waited_seconds=(row[_STARTED_AT] - row[_RUN_AT]) / 1e6,
            )
            for row in rows
        ]

    async def _search(self, sql: Sql, claim: _Claim) -> list[Row]:
        full_search_began = self._floors.begin()
        rows = await self._start_existing(sql, claim)
        if not rows and full_search_began is None:
            full_search_began = self._floors.begin(found_nothing=True)
            rows = await self._start_existing(sql, claim)
        if full_search_began is not None:
            self._floors.finish_full_search(full_search_began)
        return rows

    async def _start_existing(self, sql: Sql, claim: _Claim) -> list[Row]:
        """Start runs. Removes what is left of jobs that were removed by hand."""
        while True:
            rows = await self._start(sql, claim)
            removed = [row[_JOB] for row in rows if row[_TENANT] is None]
            if not removed:
                return rows
            await forget(sql, removed)
            if len(removed) < len(rows):
                return [row for row in rows if row[_TENANT] is not None]

    async def _start(self, sql: Sql, claim: _Claim) -> list[Row]:
        requests, due, is_repeated = claim.requests, list[tuple[int, int]](), False
        if claim.is_for_suspects:
            found = await sql.rows(_SUSPECTS, claim.now, claim.claim_id)
            due = [(lane, rank) for lane, rank in found if rank is not None]
            is_repeated = len(due) < len(found)
        opened = [
            _open_suspects(one, due)
            if one.request.suspects
            else _Opened(one.request.limit, await self._ranges(sql, one.lanes, claim.now))
            for one in requests
        ]
        if not (claim.is_for_others or is_repeated or any(one.ranges for one in opened)):
            return []
        try:
            rows = await sql.rows(
                _CLAIM,
                claim.now,
                claim.session,
                claim.now,
                claim.claim_id,
                span_micros(claim.lease),
                RandomUuids(sum(one.limit for one in opened)),
                Integers([one.limit for one in opened]),
                *_columns(opened),
                _limits(requests, opened),
                Bigints(list(claim.logged)) if claim.logged else None,
            )
        except NotNullViolation as error:
            if error.diag.column_name == "session":
                raise SessionNotRegistered(claim.session) from None
            raise
        rows.sort(key=_IN_ORDER)
        if len(requests) > 1:
            order = {
                (one.request.queue, bool(one.request.suspects)): index
                for index, one in enumerate(requests)
            }
            rows.sort(key=lambda row: order.get((self._queue_of(row), _is_suspect(row)), 0))
        self._update_floors(claim, opened, rows)
        return rows

    async def _ranges(self, sql: Sql, lanes: list[int], now: int | None) -> list[Range]:
        if not self._floors.are_many(lanes):
            return self._floors.ranges_of(lanes)
        if not (candidates := self._floors.candidates(lanes)):
            every = self._floors.ranges_of(lanes)
            columns = (Bigints([one.lane for one in every]), Integers([one.rank for one in every]))
            heads = await sql.rows(_HEADS, *columns, now)
            self._floors.add_candidates((row[0], row[1], (row[2], row[3])) for row in heads)
            candidates = self._floors.candidates(lanes)
        return candidates

    def _queue_of(self, row: Row) -> str:
        return self._lanes.name_of(row[_LANE])[0]

    def _update_floors(self, claim: _Claim, opened: list[_Opened], rows: list[Row]) -> None:
        if claim.is_for_suspects:
            rows = [row for row in rows if not _is_suspect(row)]
        self._floors.raise_to(
            (row[_LANE], row[_PRIORITY], (row[_RUN_AT], row[_JOB])) for row in rows
        )
        found = Counter(map(self._queue_of, rows))
        for one, (limit, ranges) in zip(claim.requests, opened, strict=True):
            if not one.request.suspects and found[one.request.queue] < limit:
                self._floors.remove_candidates(ranges)


def _merge(requests: Sequence[LaneRequest]) -> list[LaneRequest]:
    """Merge requests of the same queue and types: rows that we lock twice would be taken twice."""
    merged: dict[tuple[str, tuple[str, ...], tuple[int, ...]], LaneRequest] = {}
    for request in requests:
        if request.limit > 0 and request.job_types:
            kinds = _sort_distinct(request.job_types)
            key = (request.queue, kinds, request.suspects)
            limit, at_most = request.limit, request.at_most
            if (first := merged.get(key)) is not None:
                limit, at_most = limit + first.limit, _add_limits(first, request)
            merged[key] = LaneRequest(
                request.queue, kinds, limit, at_most=at_most, suspects=request.suspects
            )
    return list(merged.values())


def _add_limits(one: LaneRequest, other: LaneRequest) -> tuple[tuple[str, int], ...]:
    """Add the limits of two requests by type; a request without one has its overall limit."""
    of_one, of_other = dict(one.at_most), dict(other.at_most)
    return tuple(
        (kind, max(0, of_one.get(kind, one.limit)) + max(0, of_other.get(kind, other.limit)))
        for kind in of_one | of_other
    )


@lru_cache(maxsize=64)
def _sort_distinct(job_types: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(set(job_types)))


def _is_suspect(row: Row) -> bool:
    return int(row[_CRASHES]) >= SUSPECT_AFTER_CRASHES


def _open_suspects(one: _QueueRequest, due: Iterable[tuple[int, int]]) -> _Opened:
    """Open the ranges of the suspects with the most crashes of which any may be taken."""
    by_crashes: defaultdict[int, list[Range]] = defaultdict(list)
    for lane, rank in due:
        if lane in one.lanes:
            by_crashes[crashes_of(rank)].append(Range(lane, rank, START))
    for crashes in sorted(by_crashes, reverse=True):
        if (limit := one.request.most_suspects(crashes)) > 0:
            return _Opened(limit, by_crashes[crashes])
    return _Opened(0, [])


def _columns(opened: list[_Opened]) -> tuple[Integers, Bigints, Integers, Bigints, Uuids]:
    flat = [(index, one) for index, (_, some) in enumerate(opened, start=1) for one in some]
    return (
        Integers([index for index, _ in flat]),
        Bigints([one.lane for _, one in flat]),
        Integers([one.rank for _, one in flat]),
        Bigints([one.floor[0] for _, one in flat]),
        Uuids([one.floor[1] for _, one in flat]),
    )


def _limits(requests: list[_QueueRequest], opened: list[_Opened]) -> Integers | None:
    """For each range, how many jobs of its lane may be taken; None where nothing is limited."""
    if not any(one.at_most for one in requests):
        return None
    return Integers(
        [
            one.at_most.get(range_.lane)
            for one, (_, ranges) in zip(requests, opened, strict=True)
            for range_ in ranges
        ]
    )

"""claim: due jobs from ready to lease; and reading the runs that are under way."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple
from uuid import UUID

from windlass.contract.clock import span_micros
from windlass.contract.query import LaneRequest
from windlass.contract.snapshot import Run
from windlass.stores.postgres.arrays import Bigints, Integers, RandomUuids, Uuids
from windlass.stores.postgres.calls import Calls
from windlass.stores.postgres.floors import Floors, Range
from windlass.stores.postgres.lanes import Lanes
from windlass.stores.postgres.rows import (
    JOB_COLUMNS,
    RUN_COLUMNS,
    RUN_WIDTH,
    job_from_row,
    run_from_row,
)
from windlass.stores.postgres.sql import Row, Sql, looked_up

_CLAIM = f"SELECT * FROM windlass.claim_jobs({', '.join(['%s'] * 12)})"  # noqa: S608
_HEADS = """
SELECT wanted.lane, wanted.priority, head.run_at, head.job_id
FROM unnest(%s, %s) AS wanted (lane, priority)
CROSS JOIN LATERAL (
    SELECT run_at, job_id FROM windlass.ready
    WHERE ready.lane = wanted.lane AND ready.priority = wanted.priority
      AND ready.run_at <= coalesce(%s, windlass.micros())
    ORDER BY run_at, job_id LIMIT 1
) AS head
"""
_EXPIRED = f"""
SELECT {RUN_COLUMNS}, {JOB_COLUMNS}, lane.queue, lane.job_type
FROM windlass.lease
{looked_up("job", "id", "lease.job_id")}
{looked_up("lane", "id", "lease.lane")}
WHERE lease.until <= coalesce(%s, windlass.micros()) AND lease.job_id > %s
ORDER BY lease.job_id LIMIT %s
"""  # noqa: S608  # constants only
_PRIORITY, _STARTED_AT = 7, 8
_RUN_AT, _LANE, _JOB = RUN_WIDTH, RUN_WIDTH + 1, RUN_WIDTH + 2
_IN_ORDER = itemgetter(_PRIORITY, _RUN_AT, _JOB)


class _Wanted(NamedTuple):
    """What a claim wants of one queue, by lane."""

    queue: str
    limit: int
    lanes: list[int]


class _Claim(NamedTuple):
    """Whose claim it is, and what for."""

    session: str
    claim_id: UUID
    lease: timedelta
    now: int | None
    wanted: list[_Wanted]
    logged: set[int]
    """The lanes in which a start is an event."""


class Claims:
    """The claims of one process, with what it remembers between them."""

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
        claim = _Claim(session, claim_id, lease, now, wanted=[], logged=set())

        async def look_up(sql: Sql) -> None:
            claim.wanted[:] = [
                _Wanted(queue, limit, await self._lanes.numbers(sql, queue, job_types))
                for (queue, job_types), limit in _merged(requests).items()
            ]
            for one in requests:
                if one.logged:
                    claim.logged.update(await self._lanes.numbers(sql, one.queue, one.logged))

        return await self._calls.run(lambda sql: self._claim(sql, claim), before=look_up)

    async def _claim(self, sql: Sql, claim: _Claim) -> list[Run]:
        looks_behind = self._floors.begin()
        rows = await self._rows(sql, claim)
        if not rows and looks_behind is None:
            looks_behind = self._floors.begin(found_nothing=True)
            rows = await self._rows(sql, claim)
        if looks_behind is not None:
            self._floors.looked_behind(looks_behind)
        return [
            run_from_row(
                row,
                job_from_row(row[_JOB:], self._lanes.place_of(row[_LANE])),
                waited_seconds=(row[_STARTED_AT] - row[_RUN_AT]) / 1e6,
            )
            for row in rows
        ]

    async def _rows(self, sql: Sql, claim: _Claim) -> list[Row]:
        wanted = claim.wanted
        ranges = [await self._ranges(sql, one.lanes, claim.now) for one in wanted]
        rows = await sql.rows(
            _CLAIM,
            claim.now,
            claim.session,
            claim.claim_id,
            span_micros(claim.lease),
            RandomUuids(sum(one.limit for one in wanted)),
            Integers([one.limit for one in wanted]),
            *_columns(ranges),
            Bigints(list(claim.logged)) if claim.logged else None,
        )
        rows.sort(key=_IN_ORDER)
        if len(wanted) > 1:
            queues = {one.queue: place for place, one in enumerate(wanted)}
            rows.sort(key=lambda row: queues.get(self._queue_of(row), 0))
        self._remember(wanted, ranges, rows)
        return rows

    async def _ranges(self, sql: Sql, lanes: list[int], now: int | None) -> list[Range]:
        if not self._floors.are_many(lanes):
            return self._floors.all_of(lanes)
        if not (promising := self._floors.promising(lanes)):
            every = self._floors.all_of(lanes)
            columns = (
                Bigints([one.lane for one in every]),
                Integers([one.priority for one in every]),
            )
            heads = await sql.rows(_HEADS, *columns, now)
            self._floors.promise((row[0], row[1], (row[2], row[3])) for row in heads)
            promising = self._floors.promising(lanes)
        return promising

    def _queue_of(self, row: Row) -> str:
        return self._lanes.place_of(row[_LANE])[0]

    def _remember(self, wanted: list[_Wanted], ranges: list[list[Range]], rows: list[Row]) -> None:
        self._floors.took((row[_LANE], row[_PRIORITY], (row[_RUN_AT], row[_JOB])) for row in rows)
        found = Counter(map(self._queue_of, rows))
        for one, opened in zip(wanted, ranges, strict=True):
            if found[one.queue] < one.limit:
                self._floors.exhausted(opened)


def _merged(requests: Sequence[LaneRequest]) -> dict[tuple[str, tuple[str, ...]], int]:
    """One limit per queue and set of types: rows that we lock twice would be taken twice."""
    limits: dict[tuple[str, tuple[str, ...]], int] = {}
    for request in requests:
        if request.limit > 0 and request.job_types:
            place = (request.queue, _distinct(request.job_types))
            limits[place] = limits.get(place, 0) + request.limit
    return limits


@lru_cache(maxsize=64)
def _distinct(job_types: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(set(job_types)))


def _columns(ranges: list[list[Range]]) -> tuple[Integers, Bigints, Integers, Bigints, Uuids]:
    flat = [(place, one) for place, some in enumerate(ranges, start=1) for one in some]
    return (
        Integers([place for place, _ in flat]),
        Bigints([one.lane for _, one in flat]),
        Integers([one.priority for _, one in flat]),
        Bigints([one.floor[0] for _, one in flat]),
        Uuids([one.floor[1] for _, one in flat]),
    )


async def expired(sql: Sql, *, limit: int, after: UUID | None, now: int | None) -> list[Run]:
    rows = await sql.rows(_EXPIRED, now, after or UUID(int=0), limit)
    return [run_from_row(row, job_from_row(row[RUN_WIDTH:-2], row[-2:])) for row in rows]

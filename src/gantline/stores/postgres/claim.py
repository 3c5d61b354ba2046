"""claim: due jobs from ready to lease."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from psycopg.errors import NotNullViolation

from gantline.contract.clock import span_micros
from gantline.contract.errors import SessionNotRegistered
from gantline.contract.query import LaneRequest
from gantline.contract.snapshot import SUSPECT_AFTER_CRASHES, Run
from gantline.stores.postgres.arrays import Bigints, Integers, RandomUuids, Uuids
from gantline.stores.postgres.calls import Calls
from gantline.stores.postgres.claim_groups import GroupClaims
from gantline.stores.postgres.claim_requests import (
    CRASHES,
    IN_ORDER,
    JOB,
    LANE,
    LATE_MICROS,
    PRIORITY,
    REGISTERED,
    RUN_AT,
    STARTED_AT,
    TENANT,
    TOKEN,
    Claim,
    QueueRequest,
    Suspects,
    merge,
)
from gantline.stores.postgres.floors import Floors, Range
from gantline.stores.postgres.lanes import Lanes
from gantline.stores.postgres.leases import forget
from gantline.stores.postgres.sql import Row, Sql
from gantline.stores.sql.rows import job_from_row, run_from_row

_CLAIM = f"SELECT * FROM gantline.claim_jobs(%s, {REGISTERED}, {', '.join(['%s'] * 14)})"  # noqa: S608
_HEADS = """
SELECT given.lane, given.rank, head.run_at, head.job_id
FROM unnest(%s, %s) AS given (lane, rank)
CROSS JOIN LATERAL (
    SELECT run_at, job_id FROM gantline.ready
    WHERE ready.lane = given.lane AND ready.rank = given.rank AND ready.grp = 0
      AND ready.run_at <= coalesce(%s, gantline.micros())
    ORDER BY run_at, job_id LIMIT 1
) AS head
"""
# Also what this claim has started, if it is repeated. In one statement, so that a suspect is seen
# either as due or as started.
_SUSPECTS = """
SELECT lane, rank, grp FROM gantline.due_suspects(%s)
UNION ALL
SELECT lane, NULL, NULL FROM gantline.lease WHERE claim_id = %s
"""


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
        self._groups = GroupClaims(self._floors)

    async def claim(
        self,
        session: str,
        claim_id: UUID,
        requests: Sequence[LaneRequest],
        *,
        lease: timedelta,
        now: int | None,
    ) -> list[Run]:
        claim = Claim(session, claim_id, lease, now, requests=[], logged=set())

        async def look_up(sql: Sql) -> None:
            claim.requests[:] = [await self._resolve(sql, one) for one in merge(requests)]
            for one in requests:
                if one.logged:
                    claim.logged.update(await self._lanes.find_numbers(sql, one.queue, one.logged))

        return await self._calls.run(lambda sql: self._claim(sql, claim), before=look_up)

    async def _resolve(self, sql: Sql, request: LaneRequest) -> QueueRequest:
        lanes = await self._lanes.find_numbers(sql, request.queue, request.job_types)
        if not request.at_most and not request.flow:
            return QueueRequest(request, lanes, {}, {})
        by_type = dict(request.at_most)
        flow_by_type = {one.job_type: one for one in request.flow}
        kinds = [(lane, self._lanes.name_of(lane)[1]) for lane in lanes]
        at_most = {lane: by_type[kind] for lane, kind in kinds if kind in by_type}
        flow = {lane: flow_by_type[kind] for lane, kind in kinds if kind in flow_by_type}
        lanes = [lane for lane in lanes if at_most.get(lane, 1) > 0]
        return QueueRequest(request, lanes, at_most, flow)

    async def _claim(self, sql: Sql, claim: Claim) -> list[Run]:
        rows = await (
            self._search(sql, claim) if claim.is_for_others else self._start_existing(sql, claim)
        )
        return [
            run_from_row(
                row,
                job_from_row(row[JOB:], self._lanes.name_of(row[LANE])),
                waited_seconds=(row[STARTED_AT] - row[RUN_AT]) / 1e6,
            )
            for row in rows
        ]

    async def _search(self, sql: Sql, claim: Claim) -> list[Row]:
        full_search_began = self._floors.begin()
        rows = await self._start_existing(sql, claim, is_full=full_search_began is not None)
        if not rows and full_search_began is None:
            full_search_began = self._floors.begin(found_nothing=True)
            rows = await self._start_existing(sql, claim, is_full=True)
        if full_search_began is not None:
            self._floors.finish_full_search(full_search_began)
        return rows

    async def _start_existing(self, sql: Sql, claim: Claim, *, is_full: bool = False) -> list[Row]:
        """Start runs. Removes what is left of jobs that were removed by hand."""
        while True:
            rows = await self._start(sql, claim, is_full=is_full)
            removed = [row[JOB] for row in rows if row[TENANT] is None]
            if not removed:
                return rows
            await forget(sql, removed)
            if len(removed) < len(rows):
                return [row for row in rows if row[TENANT] is not None]

    async def _start(self, sql: Sql, claim: Claim, *, is_full: bool) -> list[Row]:
        suspects, is_repeated = Suspects(), False
        if claim.is_for_suspects:
            found = await sql.rows(_SUSPECTS, claim.now, claim.claim_id)
            suspects = [(lane, rank, group) for lane, rank, group in found if rank is not None]
            is_repeated = len(suspects) < len(found)
        if not self._groups.are_needed(claim):
            rows = await self._start_plain(sql, claim, suspects, is_repeated)
            if rows is not None:
                return rows
            self._groups.expect(claim)

        async def plain(lanes: list[int]) -> list[Range]:
            return await self._ranges(sql, lanes, claim.now)

        try:
            return await self._groups.start(
                sql, claim, plain, suspects, is_repeated=is_repeated, reads_page=is_full
            )
        except NotNullViolation as error:
            raise _explain(error, claim) from None

    async def _start_plain(
        self, sql: Sql, claim: Claim, suspects: Suspects, is_repeated: bool
    ) -> list[Row] | None:
        """Start runs where no group takes turns and nothing is limited; None where it is not so."""
        requests = claim.requests
        opened = [
            _open_suspects(one, suspects)
            if one.request.suspects
            else _Opened(one.request.limit, await self._ranges(sql, one.lanes, claim.now))
            for one in requests
        ]
        if not (claim.is_for_others or is_repeated or any(one.ranges for one in opened)):
            return []
        lanes = [lane for one in requests if not one.request.suspects for lane in one.lanes]
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
                _groups(opened) if claim.is_for_suspects else None,
                Bigints(lanes) if lanes else None,
                self._floors.turns_since(lanes),
            )
        except NotNullViolation as error:
            raise _explain(error, claim) from None
        if rows and rows[0][TOKEN] is None:
            return None
        rows.sort(key=IN_ORDER)
        if rows:
            self._floors.raise_turns_to(lanes, max(row[STARTED_AT] for row in rows) - LATE_MICROS)
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
        return self._lanes.name_of(row[LANE])[0]

    def _update_floors(self, claim: Claim, opened: list[_Opened], rows: list[Row]) -> None:
        if claim.is_for_suspects:
            rows = [row for row in rows if not _is_suspect(row)]
        self._floors.raise_to((row[LANE], row[PRIORITY], (row[RUN_AT], row[JOB])) for row in rows)
        found = Counter(map(self._queue_of, rows))
        for one, (limit, ranges) in zip(claim.requests, opened, strict=True):
            if not one.request.suspects and found[one.request.queue] < limit:
                self._floors.remove_candidates(ranges)


def _is_suspect(row: Row) -> bool:
    return int(row[CRASHES]) >= SUSPECT_AFTER_CRASHES


def _open_suspects(one: QueueRequest, due: Suspects) -> _Opened:
    """Open the ranges of the suspects with the most crashes of which any may be taken."""
    for limit, ranges in one.ranges_of_suspects(due):
        return _Opened(limit, ranges)
    return _Opened(0, [])


def _explain(error: NotNullViolation, claim: Claim) -> Exception:
    return SessionNotRegistered(claim.session) if error.diag.column_name == "session" else error


def _columns(opened: list[_Opened]) -> tuple[Integers, Bigints, Integers, Bigints, Uuids]:
    flat = [(index, one) for index, (_, some) in enumerate(opened, start=1) for one in some]
    return (
        Integers([index for index, _ in flat]),
        Bigints([one.lane for _, one in flat]),
        Integers([one.rank for _, one in flat]),
        Bigints([one.floor[0] for _, one in flat]),
        Uuids([one.floor[1] for _, one in flat]),
    )


def _groups(opened: list[_Opened]) -> Bigints:
    return Bigints([one.group for _, some in opened for one in some])


def _limits(requests: list[QueueRequest], opened: list[_Opened]) -> Integers | None:
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

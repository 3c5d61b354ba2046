"""What a claim asks for, by queue, with the lanes of each; and the rows that answer it."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import lru_cache
from operator import itemgetter
from typing import Final, NamedTuple
from uuid import UUID

from gantline.contract.flow import TypeFlow
from gantline.contract.query import LaneRequest
from gantline.contract.records import SESSIONS
from gantline.stores.postgres.floors import START, Range
from gantline.stores.ranks import crashes_of
from gantline.stores.sql.rows import JOB_WIDTH, RUN_WIDTH

# A lease has a session: without a record of it there is none, so nothing is started.
REGISTERED: Final = f"""(
    SELECT key FROM gantline.record WHERE namespace = '{SESSIONS}' AND key = %s
      AND (expires_at IS NULL OR expires_at > coalesce(%s, gantline.micros())))"""  # noqa: S608  # constants only
TOKEN, CRASHES, PRIORITY, STARTED_AT = 0, 5, 7, 8
RUN_AT, LANE, JOB, TENANT = RUN_WIDTH, RUN_WIDTH + 1, RUN_WIDTH + 2, RUN_WIDTH + 3
GROUP: Final = JOB + JOB_WIDTH - 1
IN_ORDER: Final = itemgetter(PRIORITY, RUN_AT, JOB)
LATE_MICROS: Final = 100_000
"""What is committed later than this after its instant is found by the next full search."""

Suspects = list[tuple[int, int, int]]
"""The lanes, ranks and groups in which suspects are due."""


class QueueRequest(NamedTuple):
    """A request for one queue, with its lanes."""

    request: LaneRequest
    lanes: list[int]
    at_most: dict[int, int]
    """How many jobs of these lanes may be taken at most."""
    flow: dict[int, TypeFlow]
    """The limits and gates of these lanes."""

    def ranges_of_suspects(self, due: Suspects) -> Iterator[tuple[int, list[Range]]]:
        """Give the ranges of those with the most crashes, and their limit; then of others."""
        by_crashes: defaultdict[int, list[Range]] = defaultdict(list)
        for lane, rank, group in due:
            if lane in self.lanes:
                by_crashes[crashes_of(rank)].append(Range(lane, rank, START, group))
        for crashes in sorted(by_crashes, reverse=True):
            if (limit := self.request.most_suspects(crashes)) > 0:
                yield limit, by_crashes[crashes]


class Claim(NamedTuple):
    """One call of claim."""

    session: str
    claim_id: UUID
    lease: timedelta
    now: int | None
    requests: list[QueueRequest]
    logged: set[int]
    """The lanes in which a start is an event."""

    @property
    def is_for_suspects(self) -> bool:
        return any(one.request.suspects for one in self.requests)

    @property
    def is_for_others(self) -> bool:
        return any(not one.request.suspects for one in self.requests)


def merge(requests: Sequence[LaneRequest]) -> list[LaneRequest]:
    """Merge requests of the same queue and types: rows that we lock twice would be taken twice."""
    merged: dict[tuple[str, tuple[str, ...], tuple[int, ...]], LaneRequest] = {}
    for request in requests:
        if request.limit > 0 and request.job_types:
            kinds = _sort_distinct(request.job_types)
            key = (request.queue, kinds, request.suspects)
            limit, at_most, flow = request.limit, request.at_most, request.flow
            if (first := merged.get(key)) is not None:
                limit, at_most = limit + first.limit, _add_limits(first, request)
                flow = (*first.flow, *flow)
            merged[key] = LaneRequest(
                request.queue, kinds, limit, at_most=at_most, suspects=request.suspects, flow=flow
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

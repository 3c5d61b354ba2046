"""Floors: the positions from which this process searches what is due."""

from collections.abc import Callable, Iterable, Sequence
from heapq import nsmallest
from typing import Final, NamedTuple
from uuid import UUID

from gantline.contract.flow import PLAIN
from gantline.runtime import monotonic
from gantline.stores.ranks import RANKS

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
    """A lane and a rank of a group, and the position from which to search."""

    lane: int
    rank: int
    floor: Position
    group: int = PLAIN


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
        self._of_groups: dict[tuple[int, int, int], Position] = {}
        self._turns_since: dict[int, int] = {}
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
        self._of_groups.clear()
        self._turns_since.clear()
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

    # -- of groups --------------------------------------------------------------------------------

    def of_group(self, lane: int, rank: int, group: int) -> Position:
        return self._of_groups.get((lane, rank, group), START)

    def raise_groups_to(self, taken: Iterable[tuple[int, int, int, Position]]) -> None:
        """The same for the last rows taken of groups, given in order of each."""
        for lane, rank, group, position in taken:
            key = (lane, rank, group)
            self._of_groups[key] = max(position, self._of_groups.get(key, START))

    def turns_since(self, lanes: Iterable[int]) -> int:
        """From when on to look for new turns in these lanes; 0 in a full search."""
        return min((self._turns_since.get(lane, 0) for lane in lanes), default=0)

    def raise_turns_to(self, lanes: Iterable[int], since: int) -> None:
        for lane in lanes:
            self._turns_since[lane] = max(since, self._turns_since.get(lane, 0))

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

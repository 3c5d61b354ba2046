"""Floors: where in each range of the ready queue this process begins to look.

Rows that were claimed leave dead entries in the index until they are vacuumed, and a snapshot that
somebody holds open keeps them for hours. Whoever begins behind the last row it took does not step
over them again. What is committed late, or given back, may lie below a floor; so every second all
floors are forgotten once, or as seldom as keeps that look below a twentieth of the time. Order is
promised within that span.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from heapq import nsmallest
from typing import Final, NamedTuple
from uuid import UUID

# Of suspects there are few: no floor is remembered for their ranks.
_RANKS: Final = range(4)
START: Final = (0, UUID(int=0))
# Up to so many ranges are opened in one claim; 64 cost 0.3 ms.
_FEW_RANGES: Final = 64
_LOOK_BEHIND_SECONDS: Final = 1.0
_SHARE_OF_TIME: Final = 20

Mark = tuple[int, UUID]
"""The time due and the id of a row."""


class Range(NamedTuple):
    """A lane and a rank, and from where on to look."""

    lane: int
    rank: int
    floor: Mark


class Floors:
    """What one process remembers of the ready queue."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._floors: dict[tuple[int, int], Mark] = {}
        self._promising: dict[tuple[int, int], Mark] = {}
        self._look_behind_at = 0.0

    def begin(self, *, found_nothing: bool = False) -> float | None:
        """Start a claim. One that looks behind the floors, as one does that found nothing, is given
        when it began."""
        now = self._monotonic()
        if now < self._look_behind_at and not found_nothing:
            return None
        self._floors.clear()
        self._promising.clear()
        return now

    def looked_behind(self, since: float) -> None:
        """The look that began then is done; decide when the next one is due."""
        now = self._monotonic()
        self._look_behind_at = now + max(_LOOK_BEHIND_SECONDS, _SHARE_OF_TIME * (now - since))

    @staticmethod
    def are_many(lanes: Sequence[int]) -> bool:
        return len(lanes) * len(_RANKS) > _FEW_RANGES

    def all_of(self, lanes: Sequence[int]) -> list[Range]:
        return [
            Range(lane, rank, self._floors.get((lane, rank), START))
            for rank in _RANKS
            for lane in lanes
        ]

    def took(self, taken: Iterable[tuple[int, int, Mark]]) -> None:
        """Raise the floors to the last rows taken, given in order.

        A claim beside this one may have raised them further.
        """
        last = {(lane, rank): mark for lane, rank, mark in taken}
        for place, mark in last.items():
            self._floors[place] = max(mark, self._floors.get(place, START))
            if place in self._promising:
                self._promising[place] = max(mark, self._promising[place])

    # -- with many lanes, only those are opened that are known to have work ------------------------

    def promise(self, heads: Iterable[tuple[int, int, Mark]]) -> None:
        """These ranges have due rows, beginning with these."""
        self._promising |= {(lane, rank): mark for lane, rank, mark in heads}

    def promising(self, lanes: Sequence[int]) -> list[Range]:
        """The ranges whose rows come next, as many as one claim opens."""
        wanted = set(lanes)
        known = (
            (rank, mark, lane) for (lane, rank), mark in self._promising.items() if lane in wanted
        )
        first = nsmallest(_FEW_RANGES // len(_RANKS), known)
        return [Range(lane, rank, mark) for rank, mark, lane in first]

    def exhausted(self, ranges: Iterable[Range]) -> None:
        """These ranges gave less than was asked for."""
        for one in ranges:
            self._promising.pop((one.lane, one.rank), None)

"""Counts that are never more than a small part of the server's work, however often asked for.

Most are kept sums; only the jobs that are not due yet must be counted, 0.1 s for a million.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import msgspec

from gantline.contract.query import LaneCounts

_CHEAP_SECONDS: Final = 0.05
_SHARE_OF_TIME: Final = 20
_MOST_KEPT: Final = 1_000


class _Kept(NamedTuple):
    counts: list[LaneCounts]
    until: float


class Counts:
    """Give an answer again for twenty times as long as it took, if it took long."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._kept: dict[str | None, _Kept] = {}

    async def get(
        self, tenant_id: str | None, count: Callable[["Timed"], Awaitable[list[LaneCounts]]]
    ) -> list[LaneCounts]:
        """Count, or tell what was counted; `count` is to time what the server does for it.

        To wait for a connection is none of that: else counts would be old just when many submit,
        and depth caps are told by them.
        """
        kept = self._kept.get(tenant_id)
        if kept is None or kept.until <= self._monotonic():
            timed = Timed(self._monotonic)
            counts = await count(timed)
            if timed.seconds < _CHEAP_SECONDS:
                self._kept.pop(tenant_id, None)
                return counts
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            kept = _Kept(counts, self._monotonic() + _SHARE_OF_TIME * timed.seconds)
            self._kept[tenant_id] = kept
        return [msgspec.structs.replace(lane) for lane in kept.counts]


class Timed:
    """Times a block."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._began = 0.0
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._began = self._monotonic()

    def __exit__(self, *error: object) -> None:
        self.seconds = self._monotonic() - self._began

"""Slow counts: given again for a while, so that asking often keeps no store from others."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import msgspec

from gantline.runtime import monotonic

Count = TypeVar("Count", bound=msgspec.Struct)

_CHEAP_SECONDS: Final = 0.05
_SHARE_OF_TIME: Final = 20
_MOST_KEPT: Final = 1_000


@dataclass(slots=True)
class _Kept(Generic[Count]):
    counts: list[Count]
    took_seconds: float
    until: float


class Stopwatch:
    """Times a block."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._began = 0.0
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._began = self._seconds()

    def __exit__(self, *error: object) -> None:
        self.seconds = self._seconds() - self._began


class SlowCounts(Generic[Count]):
    """Caches slow counts of a tenant, for twenty times as long as counting took."""

    def __init__(
        self,
        monotonic: Callable[[], float] = monotonic,
        work_seconds: Callable[[], float] = monotonic,
    ) -> None:
        """`work_seconds` is the clock by which counting is timed."""
        self._monotonic = monotonic
        self._work_seconds = work_seconds
        self._kept: dict[str | None, _Kept[Count]] = {}

    async def get(
        self, tenant_id: str | None, count: Callable[[Stopwatch], Awaitable[list[Count]]]
    ) -> list[Count]:
        """Count, or give what was counted before; `count` must time the work of the store.

        Waiting for a connection does not count: otherwise counts would be old when many submit,
        and depth caps depend on them. What was slow is counted by one at a time.
        """
        kept = self._kept.get(tenant_id)
        now = self._monotonic()
        if kept is None or kept.until <= now:
            if kept:
                kept.until = now + _SHARE_OF_TIME * kept.took_seconds
            timed = Stopwatch(self._work_seconds)
            counts = await count(timed)
            if timed.seconds < _CHEAP_SECONDS:
                self._kept.pop(tenant_id, None)
                return counts
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            until = self._monotonic() + _SHARE_OF_TIME * timed.seconds
            kept = self._kept[tenant_id] = _Kept(counts, timed.seconds, until)
        return [msgspec.structs.replace(one) for one in kept.counts]

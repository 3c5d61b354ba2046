"""Slots: how many runs a process may have at once, per queue."""

import asyncio
from collections.abc import Mapping

from windlass.contract.errors import InvalidInput
from windlass.contract.query import LaneRequest


class Slots:
    """Free places by queue. Claims are made into free places only."""

    def __init__(self, concurrency: Mapping[str, int]) -> None:
        if not concurrency or any(count < 1 for count in concurrency.values()):
            raise InvalidInput(
                "A worker needs at least one queue with at least one slot.",
                next_step="For instance -q default:10.",
            )
        self._free = dict(concurrency)
        self._total = sum(concurrency.values())
        self._changed = asyncio.Event()

    @property
    def free(self) -> Mapping[str, int]:
        return dict(self._free)

    @property
    def busy(self) -> int:
        return self._total - sum(self._free.values())

    @property
    def are_full(self) -> bool:
        return not any(self._free.values())

    @property
    def total(self) -> int:
        return self._total

    def requests(self, job_types: tuple[str, ...], paused: frozenset[str]) -> list[LaneRequest]:
        """What a claim may ask for now."""
        return [
            LaneRequest(queue, job_types, free)
            for queue, free in self._free.items()
            if free > 0 and queue not in paused
        ]

    def take(self, queue: str) -> None:
        self._free[queue] -= 1

    def give_back(self, queue: str) -> None:
        self._free[queue] += 1
        self._changed.set()

    async def changed(self) -> None:
        """Wait until a place becomes free."""
        self._changed.clear()
        await self._changed.wait()

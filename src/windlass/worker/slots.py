"""Slots: how many runs a process may have at once, per queue."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

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
        self._kept = dict.fromkeys(concurrency, 0)
        self._total = sum(concurrency.values())
        self._most = {queue: (count + 1) // 2 for queue, count in concurrency.items()}
        self._changed = asyncio.Event()

    @property
    def without_a_run(self) -> Mapping[str, int]:
        """Places in which nothing runs, those that are kept for a claim included."""
        kept = self._kept.copy()
        return {queue: free + kept[queue] for queue, free in self._free.items()}

    @property
    def busy(self) -> int:
        return self._total - sum(self._free.values())

    @property
    def are_full(self) -> bool:
        return not any(self._free.values())

    @property
    def total(self) -> int:
        return self._total

    @property
    def are_half_free(self) -> bool:
        return 2 * sum(self._free.values()) >= self._total

    def requests(
        self, job_types: tuple[str, ...], paused: frozenset[str], logged: tuple[str, ...] = ()
    ) -> list[LaneRequest]:
        """What a claim may ask for now: free places, at most half of all that the queue has."""
        return [
            LaneRequest(queue, job_types, min(free, self._most[queue]), logged)
            for queue, free in self._free.items()
            if free > 0 and queue not in paused
        ]

    @contextmanager
    def kept_for(self, wanted: Sequence[LaneRequest]) -> Iterator[None]:
        """Keep the places that a claim has asked for until it is answered."""
        for request in wanted:
            self._free[request.queue] -= request.limit
            self._kept[request.queue] += request.limit
        try:
            yield
        finally:
            for request in wanted:
                self._free[request.queue] += request.limit
                self._kept[request.queue] -= request.limit
            self._changed.set()

    def take(self, queue: str) -> None:
        self._free[queue] -= 1

    def give_back(self, queue: str) -> None:
        self._free[queue] += 1
        self._changed.set()

    async def changed(self) -> None:
        """Wait until a place becomes free."""
        self._changed.clear()
        await self._changed.wait()

"""Replay: the events that a client has missed, read anew and written as they would have been."""

from collections.abc import AsyncIterator
from typing import Final

from gantline.api.port import Jobs
from gantline.api.streams.happening import Happening
from gantline.api.streams.tail import Tail
from gantline.api.streams.wanted import Wanted
from gantline.contract.snapshot import LoggedEvent

_PAGE: Final = 100


class Replay:
    """Read what lies between two positions, a little at a time."""

    def __init__(self, jobs: Jobs, tail: Tail) -> None:
        self._jobs = jobs
        self._tail = tail

    async def missed(
        self, wanted: Wanted, *, after: int, upto: int
    ) -> AsyncIterator[list[Happening]]:
        """Find the events of `wanted` behind `after`, to be read in order; raise TooOld."""
        numbers = await self._tail.numbers(wanted, after=after, upto=upto)
        return self._pages(wanted, numbers)

    async def _pages(self, wanted: Wanted, numbers: list[int]) -> AsyncIterator[list[Happening]]:
        for first in range(0, len(numbers), _PAGE):
            yield await self._read(wanted, numbers[first : first + _PAGE])

    async def _read(self, wanted: Wanted, numbers: list[int]) -> list[Happening]:
        events = await self._events(numbers)
        ids = list({event.entry.job_id for event in events})
        jobs = dict(zip(ids, await self._jobs.store.get(ids, tenant_id=None), strict=True))
        now = self._jobs.clock.now()
        return [
            Happening(event, job, now)
            for event in events
            if (job := jobs[event.entry.job_id]) is not None
            and event.is_of(job)
            and wanted.admits(job.job)
        ]

    async def _events(self, numbers: list[int]) -> list[LoggedEvent]:
        """Read these events; those next to each other at once, few others between them."""
        found: dict[int, LoggedEvent] = {}
        for first, last in _runs(numbers):
            for event in await self._jobs.store.events(after=first - 1, limit=last - first + 1):
                found[event.sequence] = event
        return [found[number] for number in numbers if number in found]


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number - runs[-1][1] <= _PAGE // 10:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs

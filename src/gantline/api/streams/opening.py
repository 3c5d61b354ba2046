"""Opening a stream: where its jobs stand, and what its client has missed."""

from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from gantline.api.port import Jobs
from gantline.api.seal import NO_NUMBER
from gantline.api.searching import find_each
from gantline.api.streams.feed import Feed, TooOld
from gantline.api.streams.subscription import EventFilter, StreamedEvent, Subscription
from gantline.contract.errors import JobNotFound
from gantline.contract.snapshot import JobSnapshot, LoggedEvent

_MOST_LIVING: Final = 100
_PAGE: Final = 100


class StreamOpening(NamedTuple):
    """What a stream begins with."""

    position: int
    """All up to this number is in what is sent first, or has been sent before."""
    states: Sequence[JobSnapshot] = ()
    missed: AsyncIterator[list[StreamedEvent]] | None = None
    is_reset: bool = False


class Opener:
    """Begin to fill a subscription, and find what its client must be sent first.

    In this order: the subscription joins the feed at a position; what is read then shows all up to
    it, and the feed gives what comes after. For a client that comes back the feed then catches up,
    so that every event that is in what was read is also sent as an event, and before.
    """

    def __init__(self, jobs: Jobs, feed: Feed) -> None:
        self._jobs = jobs
        self._feed = feed

    async def of_job(
        self, subscription: Subscription, job_id: UUID, last: str | None
    ) -> StreamOpening | None:
        """None where the client, by `last`, has heard all up to the end of the job."""
        position = await self._feed.follow(subscription)
        (job,) = await self._jobs.store.get([job_id], tenant_id=None)
        if job is None or not subscription.filter.admits(job.job):
            raise JobNotFound(job_id)
        if job.status.is_terminal or last is not None:
            position = await self._feed.caught_up()
        if last is None:
            return StreamOpening(position, [job])
        try:
            pages = await self._missed(subscription.filter, last, upto=position)
        except TooOld:
            return StreamOpening(position, [job], is_reset=True)
        missed = [event async for page in pages for event in page]
        if job.status.is_terminal and not missed:
            return None
        return StreamOpening(position, [job], _once(missed))

    async def of_many(self, subscription: Subscription, last: str | None) -> StreamOpening:
        position, event_filter = await self._feed.follow(subscription), subscription.filter
        states = await self._states(event_filter)
        if last is None:
            return StreamOpening(position, states)
        position = await self._feed.caught_up()
        try:
            pages = await self._missed(event_filter, last, upto=position)
        except TooOld:
            return StreamOpening(position, states, is_reset=True)
        # Their progress may have gone on; how others ended is among what was missed.
        named = [job for job in states if event_filter.job_ids and not job.status.is_terminal]
        return StreamOpening(position, named, pages)

    async def _states(self, event_filter: EventFilter) -> list[JobSnapshot]:
        """The jobs that are named; where none is, the newest of those that have not ended."""
        if not event_filter.job_ids:
            living = find_each(self._jobs.store, event_filter.living, _MOST_LIVING)
            return [job async for job in living]
        found = await self._jobs.store.get(sorted(event_filter.job_ids), tenant_id=None)
        return [job for job in found if job is not None and event_filter.admits(job.job)]

    # -- what a client has missed, read anew ------------------------------------------------------

    async def _missed(
        self, event_filter: EventFilter, last: str, *, upto: int
    ) -> AsyncIterator[list[StreamedEvent]]:
        """Find the events after `last`, to be read in order, a little at a time; raise TooOld."""
        after = self._feed.seal.open_number(last, event_filter.tenant_id)
        if after == NO_NUMBER:
            raise TooOld
        numbers = await self._feed.tail.numbers(event_filter, after=after, upto=upto)
        return self._pages(event_filter, numbers)

    async def _pages(
        self, event_filter: EventFilter, numbers: list[int]
    ) -> AsyncIterator[list[StreamedEvent]]:
        for first in range(0, len(numbers), _PAGE):
            yield await self._read(event_filter, numbers[first : first + _PAGE])

    async def _read(self, event_filter: EventFilter, numbers: list[int]) -> list[StreamedEvent]:
        events = await self._events(numbers)
        ids = list({event.entry.job_id for event in events})
        jobs = dict(zip(ids, await self._jobs.store.get(ids, tenant_id=None), strict=True))
        now = self._jobs.clock.now()
        return [
            StreamedEvent(event, job, now, self._feed.seal)
            for event in events
            if (job := jobs[event.entry.job_id]) is not None
            and event.is_of(job)
            and event_filter.admits(job.job)
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


async def _once(page: list[StreamedEvent]) -> AsyncIterator[list[StreamedEvent]]:
    yield page

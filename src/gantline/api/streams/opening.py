"""Opening a stream: where its jobs stand, and what its client has missed."""

from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from gantline.api.port import Jobs
from gantline.api.streams.feed import Feed
from gantline.api.streams.happening import Happening
from gantline.api.streams.replay import Replay
from gantline.api.streams.subscription import Subscription
from gantline.api.streams.tail import TooOld
from gantline.api.streams.wanted import Wanted
from gantline.contract.errors import JobNotFound
from gantline.contract.snapshot import JobSnapshot

_MOST_LIVING: Final = 100


class Opening(NamedTuple):
    """What a stream begins with."""

    position: int
    """All up to this number is in what is told first, or has been told before."""
    states: Sequence[JobSnapshot] = ()
    missed: AsyncIterator[list[Happening]] | None = None
    is_reset: bool = False


class Opener:
    """Begin to fill a subscription, and find what its client must be told first.

    In this order: what is read after the feed has let the subscription in shows all up to the
    position there, and what comes behind it the subscription is given. For who comes back, the feed
    is then made to catch up: so every event that is in what was read is told by itself before.
    """

    def __init__(self, jobs: Jobs, feed: Feed) -> None:
        self._jobs = jobs
        self._feed = feed
        self._replay = Replay(jobs, feed.tail)

    async def of_job(
        self, subscription: Subscription, job_id: UUID, last: int | None
    ) -> Opening | None:
        """None where the client, by `last`, has heard all up to the end of the job."""
        position = await self._feed.follow(subscription)
        (job,) = await self._jobs.store.get([job_id], tenant_id=None)
        if job is None or not subscription.wanted.admits(job.job):
            raise JobNotFound(job_id)
        if job.status.is_terminal or last is not None:
            position = await self._feed.caught_up()
        if last is None:
            return Opening(position, [job])
        try:
            pages = await self._replay.missed(subscription.wanted, after=last, upto=position)
        except TooOld:
            return Opening(position, [job], is_reset=True)
        missed = [happening async for page in pages for happening in page]
        if job.status.is_terminal and not missed:
            return None
        return Opening(position, [job], _once(missed))

    async def of_many(self, subscription: Subscription, last: int | None) -> Opening:
        position, wanted = await self._feed.follow(subscription), subscription.wanted
        states = await self._states(wanted)
        if last is None:
            return Opening(position, states)
        position = await self._feed.caught_up()
        try:
            pages = await self._replay.missed(wanted, after=last, upto=position)
        except TooOld:
            return Opening(position, states, is_reset=True)
        # Their progress may have gone on; how others ended is among what was missed.
        named = [job for job in states if wanted.job_ids and not job.status.is_terminal]
        return Opening(position, named, pages)

    async def _states(self, wanted: Wanted) -> list[JobSnapshot]:
        """The jobs that are named; where none is, the newest of those that have not ended."""
        if not wanted.job_ids:
            page = await self._jobs.store.find(wanted.living, limit=_MOST_LIVING)
            return list(page.items)
        found = await self._jobs.store.get(sorted(wanted.job_ids), tenant_id=None)
        return [job for job in found if job is not None and wanted.admits(job.job)]


async def _once(page: list[Happening]) -> AsyncIterator[list[Happening]]:
    yield page

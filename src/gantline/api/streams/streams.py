"""All event streams of a process: opened, counted, and ended when the server stops."""

import asyncio
from typing import Final
from uuid import UUID

from gantline.api.answer import NO_STORE, Answer
from gantline.api.call import Call
from gantline.api.operation import Identify
from gantline.api.port import Jobs
from gantline.api.streams.feed import Feed
from gantline.api.streams.following import Following
from gantline.api.streams.guard import Guard
from gantline.api.streams.opening import Opener, Opening
from gantline.api.streams.places import Places
from gantline.api.streams.server_watch import IsStopping, stopping_of
from gantline.api.streams.settings import StreamSettings
from gantline.api.streams.stream import EventStream
from gantline.api.streams.subscription import End, Subscription
from gantline.api.streams.wanted import Wanted
from gantline.api.streams.watch import Watch
from gantline.auth.authorizer import Authorizer

_LOOK_AT_THE_SERVER_SECONDS: Final = 0.25


class Streams:
    """Open streams; one feed and one watch serve all of them."""

    def __init__(self, jobs: Jobs, authorizer: Authorizer, settings: StreamSettings) -> None:
        self._jobs = jobs
        self._authorizer = authorizer
        self._settings = settings
        self._places = Places(most=settings.most, most_of_one=settings.most_of_one)
        self._feed = Feed(jobs, most_missed=settings.most_missed)
        self._opener = Opener(jobs, self._feed)
        self._watch = Watch(jobs, every_seconds=settings.progress_seconds)
        self._open: dict[Subscription, IsStopping] = {}
        self._looking: asyncio.Task[None] | None = None

    async def open(
        self,
        call: Call,
        wanted: Wanted,
        identify: Identify,
        *,
        last: int | None,
        ends_with: UUID | None = None,
    ) -> Answer:
        """Answer with a stream, or with 204 where the client has heard all there will be.

        `last` is what it has heard; `ends_with` is the job whose end is the end of the stream. A
        browser's EventSource comes back after every end, and only a 204 stops it.
        """
        place = self._places.take(call.principal)
        settings = self._settings
        subscription = Subscription(
            wanted, most_bytes=settings.most_waiting_bytes, ends_with=ends_with
        )

        def close() -> None:
            self._let_go(subscription)
            place.give_back()

        try:
            opening = await self._opening(subscription, last)
            if opening is None:
                close()
                return Answer(204, headers=(NO_STORE,))
            guard = Guard(call, identify, self._authorizer, clock=self._jobs.clock)
            following = Following(
                self._jobs, self._feed, subscription, guard, opening, settings=settings
            )
        except BaseException:
            close()
            raise
        self._keep(subscription, stopping_of(call.scope))
        return EventStream(
            following.texts(), subscription, close=close, stall_seconds=settings.stall_seconds
        )

    def look(self) -> None:
        """Something was done here that leaves an event; those who follow it need not wait."""
        self._feed.look()

    def end_all(self) -> None:
        """End every stream, so that its client goes elsewhere and is told the rest there."""
        for subscription in self._open:
            subscription.finish(End.STOPPING)

    async def close(self) -> None:
        self.end_all()
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        await self._watch.close()
        await self._feed.close()

    async def _opening(self, subscription: Subscription, last: int | None) -> Opening | None:
        if subscription.ends_with is None:
            return await self._opener.of_many(subscription, last)
        return await self._opener.of_job(subscription, subscription.ends_with, last)

    def _keep(self, subscription: Subscription, is_stopping: IsStopping) -> None:
        self._open[subscription] = is_stopping
        self._watch.add(subscription)
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_at_the_server())

    def _let_go(self, subscription: Subscription) -> None:
        self._open.pop(subscription, None)
        self._feed.leave(subscription)
        self._watch.remove(subscription)
        subscription.drop(End.OLD)

    async def _look_at_the_server(self) -> None:
        while self._open:
            for subscription, is_stopping in self._open.items():
                if is_stopping():
                    subscription.finish(End.STOPPING)
            await asyncio.sleep(_LOOK_AT_THE_SERVER_SECONDS)
        self._looking = None

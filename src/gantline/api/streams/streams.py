"""All event streams of a process: opened, counted, and ended when the server stops."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Final
from uuid import UUID

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gantline.api.call import Call, Identify
from gantline.api.json_response import NO_STORE
from gantline.api.port import Jobs
from gantline.api.problems import ApiCode
from gantline.api.seal import SealKeeper
from gantline.api.shares import Holder, Shares, Turns
from gantline.api.streams.feed import Feed
from gantline.api.streams.following import Following, StreamGuard
from gantline.api.streams.opening import Opener, StreamOpening
from gantline.api.streams.settings import StreamSettings
from gantline.api.streams.subscription import End, EventFilter, Subscription
from gantline.api.streams.watch import IsStopping, Watch, stopping_of
from gantline.auth.authorizer import Authorizer
from gantline.contract.errors import GantlineError

_log = logging.getLogger("gantline.api")

_LOOK_AT_THE_SERVER_SECONDS: Final = 0.25
# Where the response is never sent, what it holds is released after this time.
_SENT_WITHIN_SECONDS: Final = 60.0


class Streams:
    """Open streams; one feed and one watch serve all of them."""

    def __init__(
        self, jobs: Jobs, authorizer: Authorizer, seals: SealKeeper, settings: StreamSettings
    ) -> None:
        self._jobs = jobs
        self._authorizer = authorizer
        self._settings = settings
        self._feed = Feed(jobs, seals, most_missed=settings.most_missed)
        self._opener = Opener(jobs, self._feed)
        self._watch = Watch(jobs, every_seconds=settings.progress_seconds)
        self._shares = Shares(
            settings.open,
            "event streams open",
            code=ApiCode.TOO_MANY_STREAMS,
            code_of_process=ApiCode.TOO_MANY_STREAMS,
        )
        self._turns = Turns(1)
        self._holders: dict[Subscription, Holder] = {}
        self._open: dict[Subscription, IsStopping] = {}
        self._looking: asyncio.Task[None] | None = None

    async def open(
        self,
        call: Call,
        event_filter: EventFilter,
        identify: Identify,
        *,
        last: str | None,
        ends_with: UUID | None = None,
    ) -> Response:
        """Answer with a stream, or with 204 where the client has heard all there will be.

        `last` is the id of what it has heard; `ends_with` is the job whose end is the end of the
        stream. A browser's EventSource comes back after every end, and only a 204 stops it.
        """
        settings = self._settings
        subscription = Subscription(
            event_filter, most_bytes=settings.most_waiting_bytes, ends_with=ends_with
        )

        holder = Holder.of(call.principal)
        self._shares.take(holder)
        self._holders[subscription] = holder
        try:
            opening = await self._opening(subscription, last)
            if opening is None:
                self._unsubscribe(subscription)
                return Response(status_code=204, headers={"cache-control": NO_STORE})
            guard = StreamGuard(call, identify, self._authorizer, clock=self._jobs.clock)
            following = Following(
                self._jobs,
                self._feed,
                subscription,
                guard,
                opening,
                settings=settings,
                turns=self._turns,
            )
        except BaseException:
            self._unsubscribe(subscription)
            raise
        self._keep(subscription, stopping_of(call.scope))
        return EventStream(
            following.texts(),
            subscription,
            close=lambda: self._unsubscribe(subscription),
            stall_seconds=settings.stall_seconds,
        )

    def look(self) -> None:
        """Something was done here that leaves an event; those who follow it need not wait."""
        self._feed.look()

    def end_all(self) -> None:
        """End every stream, so that its client goes to another server for the rest."""
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

    async def _opening(self, subscription: Subscription, last: str | None) -> StreamOpening | None:
        if subscription.ends_with is None:
            return await self._opener.of_many(subscription, last)
        return await self._opener.of_job(subscription, subscription.ends_with, last)

    def _keep(self, subscription: Subscription, is_stopping: IsStopping) -> None:
        self._open[subscription] = is_stopping
        self._watch.add(subscription)
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_at_the_server())

    def _unsubscribe(self, subscription: Subscription) -> None:
        if holder := self._holders.pop(subscription, None):
            self._shares.give_back(holder)
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


class EventStream(Response):
    """Send texts until there are no more, the client is gone, or takes nothing any more.

    Starlette's StreamingResponse knows neither the last nor how to release what was never sent.
    """

    def __init__(
        self,
        texts: AsyncGenerator[bytes, None],
        subscription: Subscription,
        *,
        close: Callable[[], None],
        stall_seconds: float,
    ) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers(
            {
                "content-type": "text/event-stream",
                # A proxy must neither cache nor compress nor buffer what is sent.
                "cache-control": "no-store, no-transform",
                "x-accel-buffering": "no",
            }
        )
        self._texts = texts
        self._subscription = subscription
        self._close = close
        self._stall_seconds = stall_seconds
        self._closing = asyncio.get_running_loop().call_later(_SENT_WITHIN_SECONDS, close)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._closing.cancel()
        try:
            headers = self.raw_headers
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            if scope["method"] != "HEAD":
                await self._send_texts(send, receive)
            async with asyncio.timeout(self._stall_seconds):
                await send({"type": "http.response.body", "body": b""})
        except (TimeoutError, OSError):
            _log.info("an event stream was dropped: its client takes nothing")
        finally:
            self._close()

    async def _send_texts(self, send: Send, receive: Receive) -> None:
        leaving = asyncio.create_task(self._until_gone(receive))
        try:
            async with aclosing(self._texts) as texts:
                async for text in texts:
                    async with asyncio.timeout(self._stall_seconds):
                        message = {"type": "http.response.body", "body": text, "more_body": True}
                        await send(message)
        except GantlineError as error:
            _log.warning("an event stream has ended, for its client to come back: %s", error)
        finally:
            leaving.cancel()
            with suppress(asyncio.CancelledError):
                await leaving

    async def _until_gone(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._subscription.drop(End.CLIENT_GONE)

"""The feed: reads the log once for all streams of a process, while there are any.

Workers are asked for a hint when events were numbered; a hint makes us look at once. Since a hint
may be lost, we also look by ourselves, ever less often, and then number what nobody else has.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import chain
from typing import Final, NamedTuple
from uuid import UUID

from gantline.api.port import Jobs
from gantline.api.seal import Seal, SealKeeper
from gantline.api.streams.subscription import End, EventFilter, StreamedEvent, Subscription
from gantline.contract.errors import StoreUnavailable
from gantline.contract.snapshot import JobSnapshot, LoggedEvent
from gantline.contract.store import JobReader
from gantline.contract.wakeup import Hint, Wakeup
from gantline.manager.sequencer import number_events

_log = logging.getLogger("gantline.api")

# A page is handed out without a pause, in which nothing else goes on.
_PAGE: Final = 100
_TAIL_PAGE: Final = 1000
_FIRST_LOOK_SECONDS: Final = 0.05
_LONGEST_LOOK_SECONDS: Final = 1.0
# Where hints come in floods, many of them are one look.
_SHORTEST_PAUSE_SECONDS: Final = 0.02
_ASK_EVERY_SECONDS: Final = 1.0
_NUMBER_EVERY_SECONDS: Final = 1.0


class Feed:
    """Hand every event to the subscriptions that may want it. Reads nothing while there are none.

    A subscription joins between two pages, at `position`, and is given what comes after it.
    """

    seal: Seal
    """Of the store that is read; known from when the first subscription has joined."""

    def __init__(self, jobs: Jobs, seals: SealKeeper, *, most_missed: int) -> None:
        self._jobs = jobs
        self._seals = seals
        self._joining: dict[Subscription, asyncio.Future[int]] = {}
        self._broad: set[Subscription] = set()
        self._by_job: dict[UUID, set[Subscription]] = {}
        self._catching_up: list[asyncio.Future[int]] = []
        self._look = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self._number_at = -math.inf
        self.tail = Tail(lambda: jobs.store, most=most_missed)

    @property
    def position(self) -> int:
        """The last number that was handed out to all."""
        return self.tail.end

    async def follow(self, subscription: Subscription) -> int:
        """Begin to fill a subscription; return after which number. Raise what the store raises."""
        joining: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._joining[subscription] = joining
        self._read_at_once()
        try:
            return await joining
        finally:
            self._joining.pop(subscription, None)

    def leave(self, subscription: Subscription) -> None:
        """Fill it no longer."""
        self._joining.pop(subscription, None)
        self._broad.discard(subscription)
        for job_id in subscription.filter.job_ids:
            followers = self._by_job.get(job_id, set())
            followers.discard(subscription)
            if not followers:
                self._by_job.pop(job_id, None)

    async def caught_up(self) -> int:
        """Hand out all that was committed before, numbered or not; return the position then."""
        waiting: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._catching_up.append(waiting)
        self._read_at_once()
        return await waiting

    def look(self) -> None:
        """Look at once, and number, if anybody follows: something has been written here."""
        self._number_at = -math.inf
        self._look.set()

    async def close(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        self._refuse(StoreUnavailable("The API is being closed."))

    # -- reading ----------------------------------------------------------------------------------

    def _read_at_once(self) -> None:
        self._look.set()
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        wakeup = self._jobs.new_wakeup()
        try:
            await self._begin(wakeup)
            await self._read_while_followed(wakeup)
        except Exception as error:
            self._reading = None
            self._refuse(error)
            # Nothing reads for them any more. Their clients come back, which starts a new reader.
            for subscription in {*self._broad, *chain.from_iterable(self._by_job.values())}:
                subscription.finish(End.STOPPING)
        finally:
            await wakeup.close()

    async def _begin(self, wakeup: Wakeup) -> None:
        self.seal = await self._seals.seal()
        self.tail.begin(await self._jobs.store.last_event())
        await wakeup.open(self._on_hint)

    def _on_hint(self, hint: Hint) -> None:
        if hint is Hint.ENDED:
            self._look.set()

    async def _read_while_followed(self, wakeup: Wakeup) -> None:
        loop = asyncio.get_running_loop()
        pause, asked_at, is_away = _FIRST_LOOK_SECONDS, -math.inf, False
        while self._is_followed():
            if loop.time() - asked_at >= _ASK_EVERY_SECONDS:
                wakeup.notify(Hint.WATCHED)
                asked_at = loop.time()
            self._look.clear()
            self._admit()
            try:
                found = await self._read_all()
            except Exception as error:
                if not is_away:
                    _log.warning("could not read events, trying again: %s", error)
                self._refuse(error)
                is_away, found = True, 0
            else:
                is_away = False
            pause = _FIRST_LOOK_SECONDS if found else min(2 * pause, _LONGEST_LOOK_SECONDS)
            await asyncio.sleep(_SHORTEST_PAUSE_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._look.wait()
        # At once, without waiting for anything: a subscription that joins now starts anew.
        self._reading = None

    def _is_followed(self) -> bool:
        return bool(self._joining or self._broad or self._by_job or self._catching_up)

    def _admit(self) -> None:
        for subscription, joining in self._joining.items():
            if joining.done():
                continue
            if subscription.filter.job_ids and not subscription.filter.awaited:
                for job_id in subscription.filter.job_ids:
                    self._by_job.setdefault(job_id, set()).add(subscription)
            else:
                self._broad.add(subscription)
            joining.set_result(self.position)
        self._joining.clear()

    def _refuse(self, error: Exception) -> None:
        """Fail the waiters, which must not wait for ever; those that follow just get nothing."""
        for waiting in (*self._joining.values(), *self._catching_up):
            if not waiting.done():
                waiting.set_exception(error)
        self._joining.clear()
        self._catching_up.clear()

    async def _read_all(self) -> int:
        catching_up, self._catching_up = self._catching_up, []
        try:
            await self._number(at_once=bool(catching_up))
            found = number = await self._read_page()
            while number == _PAGE:
                self._admit()
                number = await self._read_page()
                found += number
        except Exception:
            self._catching_up += catching_up
            raise
        for waiting in catching_up:
            if not waiting.done():
                waiting.set_result(self.position)
        return found

    async def _number(self, *, at_once: bool) -> None:
        now, store = asyncio.get_running_loop().time(), self._jobs.store
        if store.capabilities.event_lag > timedelta(0) and (at_once or now >= self._number_at):
            self._number_at = now + _NUMBER_EVERY_SECONDS
            await number_events(store)

    # -- handing out ------------------------------------------------------------------------------

    async def _read_page(self) -> int:
        events = await self._jobs.store.events(after=self.position, limit=_PAGE)
        followed = [event for event in events if self._followers(event)]
        jobs = await self._jobs_of(followed)
        # From here on nothing waits, so that a new subscription has all of a page or nothing.
        now = self._jobs.clock.now()
        for event in followed:
            job = jobs[event.entry.job_id]
            if job is not None and event.is_of(job):
                streamed = StreamedEvent(event, job, now, self.seal)
                for subscription in self._followers(event):
                    subscription.offer(streamed)
        self.tail.append(events)
        return len(events)

    def _followers(self, event: LoggedEvent) -> list[Subscription]:
        named = self._by_job.get(event.entry.job_id, ())
        return [one for one in (*named, *self._broad) if one.filter.may_concern(event)]

    async def _jobs_of(self, events: list[LoggedEvent]) -> dict[UUID, JobSnapshot | None]:
        ids = list({event.entry.job_id for event in events})
        found = await self._jobs.store.get(ids, tenant_id=None) if ids else []
        return dict(zip(ids, found, strict=True))


class TooOld(Exception):
    """What happened since a position is not known any more."""


class _Passed(NamedTuple):
    """What is remembered of an event; the rest is in the store."""

    number: int
    tenant_id: str
    job_type: str
    job_id: UUID

    @classmethod
    def of(cls, event: LoggedEvent) -> "_Passed":
        return cls(event.sequence, event.tenant_id, event.job_type, event.entry.job_id)

    def may_be(self, event_filter: EventFilter) -> bool:
        return (
            self.tenant_id == event_filter.tenant_id
            and event_filter.may_name(self.job_id)
            and (not event_filter.job_types or self.job_type in event_filter.job_types)
        )


class Tail:
    """Which events there were lately, so that clients that come back need not read them all.

    After a restart all clients come back at once, each with its own Last-Event-ID. It has all
    events between two numbers: `start` is before the first, `end` is the last.
    """

    def __init__(self, reader: Callable[[], JobReader], *, most: int) -> None:
        self._reader = reader
        self._most = most
        self._passed: deque[_Passed] = deque()
        self._extending = asyncio.Lock()
        self.start = self.end = 0

    def begin(self, position: int) -> None:
        """Forget everything, and go on after this number."""
        self._passed.clear()
        self.start = self.end = position

    def append(self, events: Sequence[LoggedEvent]) -> None:
        """Remember what was read next, in order."""
        self._passed.extend(map(_Passed.of, events))
        if events:
            self.end = events[-1].sequence
        while len(self._passed) > self._most:
            self.start = self._passed.popleft().number

    async def numbers(self, event_filter: EventFilter, *, after: int, upto: int) -> list[int]:
        """The numbers of events that a stream may have missed; raise TooOld.

        A number that is not there belonged to a job that was removed: a client that shows that job
        must read anew, since no event can say so.
        """
        if not after <= upto <= self.end:
            raise TooOld
        await self._reach_back_to(after)
        between = [one for one in self._passed if after < one.number <= upto]
        if len(between) != upto - after:
            raise TooOld
        return [one.number for one in between if one.may_be(event_filter)]

    async def _reach_back_to(self, after: int) -> None:
        async with self._extending:
            earlier: list[_Passed] = []
            position, start = after, self.start
            while position < start:
                if self.end - after > self._most:
                    raise TooOld
                page = await self._reader().events(
                    after=position, limit=min(_TAIL_PAGE, start - position)
                )
                if start != self.start:  # it has moved on meanwhile
                    raise TooOld
                position = page[-1].sequence if page else start
                earlier += [_Passed.of(event) for event in page if event.sequence <= start]
            if earlier or after < start:
                self._passed.extendleft(reversed(earlier))
                self.start = after

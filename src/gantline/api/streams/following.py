"""Following: what one client is sent, from where its jobs stand to the end of its stream."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from gantline.api.call import Call, Identify
from gantline.api.documents import ResetDocument
from gantline.api.json_response import encode
from gantline.api.port import Jobs
from gantline.api.shares import Turns
from gantline.api.streams.feed import Feed
from gantline.api.streams.opening import StreamOpening
from gantline.api.streams.settings import StreamSettings
from gantline.api.streams.subscription import (
    RETRY,
    End,
    EventFilter,
    StreamedEvent,
    Subscription,
    emitted_messages,
    event_text,
    ping_text,
    position_text,
)
from gantline.api.views import entity_tag, status_document
from gantline.auth.action import Action
from gantline.auth.authorizer import Authorizer, Target
from gantline.auth.principal import Principal
from gantline.contract.clock import Clock
from gantline.contract.errors import GantlineError, NotAuthenticated
from gantline.contract.job import Job
from gantline.contract.snapshot import JobSnapshot

_log = logging.getLogger("gantline.api")

# A store or an identity provider may be away for a moment; who it is was known a moment ago.
_UNKNOWN_FOR_SECONDS: Final = 30.0
STATE: Final = "state"
"""Where a job stands: at first, and when that changes without an event."""
PROGRESS: Final = "progress"
RESET: Final = "reset"
_TOO_OLD: Final = encode(
    ResetDocument(detail="Some events since your Last-Event-ID are gone; read everything again.")
)


class _Shown(NamedTuple):
    """What the client was last sent of a job."""

    version: int
    logged: int
    tag: str
    fence: int | None
    has_ended: bool

    @classmethod
    def of(cls, job: JobSnapshot, tag: str) -> "_Shown":
        fence = job.fence if job.run else None
        return cls(job.version, _logged(job), tag, fence, job.status.is_terminal)


def _logged(job: JobSnapshot) -> int:
    return job.last.version if job.last else 0


class Following:
    """Give the texts of a stream, one after the other, until it has ended."""

    def __init__(
        self,
        jobs: Jobs,
        feed: Feed,
        subscription: Subscription,
        guard: "StreamGuard",
        opening: StreamOpening,
        *,
        settings: StreamSettings,
        turns: Turns,
    ) -> None:
        """`turns`: one stream of a tenant at a time makes its texts, however many it has open."""
        self._jobs = jobs
        self._feed = feed
        self._subscription = subscription
        self._guard = guard
        self._opening = opening
        self._settings = settings
        self._turns = turns
        self._tenant_id = guard.principal.tenant_id
        self._position = opening.position
        self._shown: dict[UUID, _Shown] = {}
        self._time = asyncio.get_running_loop().time
        self._check_at = self._time() + settings.check_seconds

    async def texts(self) -> AsyncGenerator[bytes, None]:
        old_at = self._time() + self._longest_seconds()
        ping_at = self._time() + self._settings.ping_seconds
        yield RETRY
        async for text in self._first():
            yield text
        while True:
            await self._check()
            if texts := await self._next():
                yield texts
            if self._subscription.end is not None:
                return
            if self._time() >= old_at:
                self._subscription.finish(End.OLD)
            if self._time() >= ping_at:
                yield ping_text(self._moved_on())
                ping_at = self._time() + self._settings.ping_seconds
            await self._subscription.wait(min(old_at, ping_at, self._check_at) - self._time())

    # -- what comes first -------------------------------------------------------------------------

    async def _first(self) -> AsyncIterator[bytes]:
        opening = self._opening
        if opening.is_reset:
            yield event_text(RESET, _TOO_OLD, position=None)
        while opening.missed is not None:
            async with self._turns.of(self._tenant_id):
                page = await anext(opening.missed, None)
            if page is None:
                break
            await self._check()
            if self._subscription.end is not None:
                # What waits comes after what was missed, so it must not be sent either.
                self._subscription.drop(self._subscription.end)
                return
            yield b"".join([event.text for event in page if await self._is_to_be_sent(event)])
        async with self._turns.of(self._tenant_id):
            messages = [
                event
                for job in opening.states
                if await self._guard.may_see(job.job)
                for event in self._standing(job)
            ]
        # With the last of them the client has heard all up to the position, and not before.
        last = len(messages)
        yield b"".join(
            event_text(name, data, position=self._sealed() if index == last else None)
            for index, (name, data) in enumerate(messages, start=1)
        ) or position_text(self._sealed())

    async def _is_to_be_sent(self, event: StreamedEvent) -> bool:
        if not await self._may_see(event):
            return False
        self._remember(event)
        return True

    def _standing(self, job: JobSnapshot) -> list[tuple[str, bytes]]:
        """Where a job stands; and how it has ended, by the name of that event."""
        shown, is_end = self._shown.get(job.job.job_id), job.status.is_terminal
        if shown is not None and shown.version > job.version:
            if shown.has_ended:
                self._end_with(job.job.job_id)
            return []  # what was missed is newer
        is_heard = shown is not None
        now = self._jobs.clock.now()
        data = encode(status_document(job, now))
        self._shown[job.job.job_id] = _Shown.of(job, entity_tag(job, now))
        messages = [(STATE, data)] if not (is_end and is_heard) else []
        if is_end and not is_heard and job.last is not None:
            messages += emitted_messages(job.job, job.last)
        if is_end and self._end_with(job.job.job_id) and job.last is not None and not is_heard:
            messages.append((job.last.event, data))
        return messages

    def _end_with(self, job_id: UUID) -> bool:
        """End the stream if it is about this job."""
        if job_id != self._subscription.ends_with:
            return False
        self._subscription.finish(End.DONE)
        return True

    # -- what comes then --------------------------------------------------------------------------

    async def _next(self) -> bytes:
        """All that waits, as one text: to send a hundred takes as long as to send one."""
        if not self._subscription.has_some:
            return b""
        texts: list[bytes] = []
        async with self._turns.of(self._tenant_id):
            for event in self._subscription.take():
                if event.number <= self._position:
                    continue
                self._position = event.number
                if not self._is_shown(event) and await self._is_to_be_sent(event):
                    texts.append(event.text)
                    if event.ends and self._end_with(event.job.job_id):
                        return b"".join(texts)
            for job in self._subscription.take_standing():
                name = self._news(job)
                if name is not None and await self._guard.may_see(job.job):
                    now = self._jobs.clock.now()
                    self._shown[job.job.job_id] = _Shown.of(job, entity_tag(job, now))
                    texts.append(event_text(name, encode(status_document(job, now)), position=None))
        return b"".join(texts)

    async def _may_see(self, event: StreamedEvent) -> bool:
        if await self._guard.may_see(event.job):
            return True
        if self._subscription.ends_with is not None:
            self._subscription.drop(End.REFUSED)
        return False

    def _remember(self, event: StreamedEvent) -> None:
        job_id, version = event.job.job_id, event.version
        if self._subscription.filter.names(event.job):
            fence = event.fence
            self._shown[job_id] = _Shown(version, version, event.tag, fence, event.ends)

    def _is_shown(self, event: StreamedEvent) -> bool:
        shown = self._shown.get(event.job.job_id)
        if shown is None:
            return False
        if event.is_on_request and event.version < shown.version:
            return True  # it would lead back to where the job stood before
        return event.version <= shown.logged

    def _news(self, job: JobSnapshot) -> str | None:
        """By what name to send how a job stands; None where there is nothing to send.

        A change with an event is sent as that event, and first.
        """
        shown = self._shown.get(job.job.job_id)
        if shown is None:
            return STATE
        if _logged(job) > shown.logged:
            self._subscription.show_again(job.job.job_id)
            return None
        tag = entity_tag(job, self._jobs.clock.now())
        if job.status.is_terminal or job.version < shown.version or tag == shown.tag:
            return None
        return PROGRESS if job.run and job.fence == shown.fence else STATE

    # -- now and then -----------------------------------------------------------------------------

    def _longest_seconds(self) -> float:
        settings = self._settings
        return (
            settings.longest_seconds if self._guard.can_ask else settings.longest_unchecked_seconds
        )

    async def _check(self) -> None:
        """Check again, when it is time, whether the client may follow; else send nothing more."""
        if self._time() < self._check_at:
            return
        self._check_at = self._time() + self._settings.check_seconds
        if await self._guard.is_still_known() and await self._still_sees():
            self._subscription.filter = self._guard.narrowed(self._subscription.filter)
        else:
            self._subscription.drop(End.REFUSED)

    async def _still_sees(self) -> bool:
        """Where the stream is about one job: whether that may still be read."""
        if self._subscription.ends_with is None:
            return True
        return all([await self._guard.may_see(job.job) for job in self._opening.states])

    def _moved_on(self) -> str:
        """The position that was reached, maybe without anything to send."""
        if self._subscription.is_empty:
            self._position = max(self._position, self._feed.position)
        return self._sealed()

    def _sealed(self) -> str:
        return self._feed.seal.number(self._position, self._subscription.filter.tenant_id)


class StreamGuard:
    """The principal of a stream, checked again every few seconds, and what it may see.

    What was allowed when the stream was opened may not be allowed any more.
    """

    def __init__(
        self, call: Call, identify: Identify, authorizer: Authorizer, *, clock: Clock
    ) -> None:
        self._call = call
        self._identify = identify
        self._authorizer = authorizer
        self._clock = clock
        self._known_at = clock.monotonic()
        self.principal: Principal = call.principal
        self.can_ask = not call.is_known_already
        """Whether the principal can be checked again."""

    async def is_still_known(self) -> bool:
        """Check the principal again, by the credentials that opened the stream."""
        if not self.can_ask:
            return True
        try:
            principal = await self._identify(self._call)
        except NotAuthenticated:
            return False
        except GantlineError as error:
            _log.warning("cannot check now who follows a stream: %s", error)
            return self._clock.monotonic() - self._known_at < _UNKNOWN_FOR_SECONDS
        if principal is None or self._is_another(principal):
            return False
        self.principal, self._known_at = principal, self._clock.monotonic()
        return True

    def _is_another(self, principal: Principal) -> bool:
        return (principal.tenant_id, principal.id) != (self.principal.tenant_id, self.principal.id)

    async def may_see(self, job: Job) -> bool:
        return await self._authorizer.may(self.principal, Action.READ, Target.of(job))

    def narrowed(self, event_filter: EventFilter) -> EventFilter:
        """The filter, limited to what may be seen now."""
        scope = self._authorizer.scope(self.principal, Action.READ)
        return msgspec.structs.replace(event_filter, visible_to=scope)

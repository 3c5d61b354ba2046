"""A subscription: what waits to be sent to one stream, bounded."""

import asyncio
from collections import deque
from contextlib import suppress
from enum import Enum, auto
from uuid import UUID

from gantline.api.streams.happening import Happening
from gantline.api.streams.wanted import Wanted
from gantline.contract.snapshot import JobSnapshot


class End(Enum):
    """Why a stream goes on no longer."""

    DONE = auto()
    """All was told that it is about."""
    TOO_SLOW = auto()
    STOPPING = auto()
    REFUSED = auto()
    """Who follows it may not do so any more."""
    OLD = auto()
    CLIENT_GONE = auto()


class Subscription:
    """Filled by the feed and the watch, emptied by its stream."""

    def __init__(self, wanted: Wanted, *, most_bytes: int, ends_with: UUID | None = None) -> None:
        """`ends_with` is the job whose end is the end of the stream."""
        self.wanted = wanted
        self.ends_with = ends_with
        self.end: End | None = None
        self._most_bytes = most_bytes
        self._bytes = 0
        self._events: deque[Happening] = deque()
        self._standing: dict[UUID, JobSnapshot] = {}
        self._tags: dict[UUID, str] = {}
        self._some = asyncio.Event()

    # -- filling ----------------------------------------------------------------------------------

    def offer(self, happening: Happening) -> None:
        """Let an event wait; one too many ends the stream behind those that wait already."""
        if self.end is not None or not self.wanted.admits(happening.job):
            return
        if self._events and self._bytes + len(happening.text) > self._most_bytes:
            self.finish(End.TOO_SLOW)
            return
        self._bytes += len(happening.text)
        self._events.append(happening)
        self._some.set()

    def show(self, job: JobSnapshot, tag: str) -> None:
        """Let a job's state wait, if it is another than before; of several only the last."""
        job_id = job.job.job_id
        if self.end is None and self._tags.get(job_id) != tag and self.wanted.admits(job.job):
            self._tags[job_id] = tag
            self._standing[job_id] = job
            self._some.set()

    def show_again(self, job_id: UUID) -> None:
        """Its state could not be sent yet."""
        self._tags.pop(job_id, None)

    def lose(self, job_id: UUID) -> None:
        """A job that is named is not there."""
        if job_id == self.ends_with:
            self.finish(End.DONE)

    def finish(self, end: End) -> None:
        """End the stream when what waits has been sent."""
        self.end = self.end or end
        self._some.set()

    def drop(self, end: End) -> None:
        """End the stream at once."""
        self._events.clear()
        self._standing.clear()
        self.finish(end)

    # -- emptying ---------------------------------------------------------------------------------

    async def wait(self, seconds: float) -> None:
        """Wait until there is something to send or the stream has ended, but not for ever."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._some.wait()

    def take(self) -> list[Happening]:
        taken, self._bytes = list(self._events), 0
        self._events.clear()
        if self.end is None:
            self._some.clear()
        return taken

    def take_standing(self) -> list[JobSnapshot]:
        taken = list(self._standing.values())
        self._standing.clear()
        return taken

    @property
    def is_empty(self) -> bool:
        return not self._events

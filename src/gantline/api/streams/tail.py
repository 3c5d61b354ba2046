"""The tail: which events there were lately, so that those who come back need not read them all.

After a restart all clients come back at once, each with its own Last-Event-ID.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from gantline.api.streams.wanted import Wanted
from gantline.contract.snapshot import LoggedEvent
from gantline.contract.store import JobReader

_PAGE: Final = 1000


class TooOld(Exception):
    """What happened since a position cannot be told any more."""


class _Passed(NamedTuple):
    """What is remembered of an event; the rest is in the store."""

    number: int
    tenant_id: str
    job_type: str
    job_id: UUID

    @classmethod
    def of(cls, event: LoggedEvent) -> "_Passed":
        return cls(event.sequence, event.tenant_id, event.job_type, event.entry.job_id)

    def may_be(self, wanted: Wanted) -> bool:
        return (
            self.tenant_id == wanted.tenant_id
            and (not wanted.job_ids or self.job_id in wanted.job_ids)
            and (not wanted.job_types or self.job_type in wanted.job_types)
        )


class Tail:
    """All events between two numbers: `start` is before the first, `end` is the last."""

    def __init__(self, reader: Callable[[], JobReader], *, most: int) -> None:
        self._reader = reader
        self._most = most
        self._passed: deque[_Passed] = deque()
        self._extending = asyncio.Lock()
        self.start = self.end = 0

    def begin(self, position: int) -> None:
        """Forget everything, and go on behind this number."""
        self._passed.clear()
        self.start = self.end = position

    def append(self, events: Sequence[LoggedEvent]) -> None:
        """Remember what was read next, in order."""
        self._passed.extend(map(_Passed.of, events))
        if events:
            self.end = events[-1].sequence
        while len(self._passed) > self._most:
            self.start = self._passed.popleft().number

    async def numbers(self, wanted: Wanted, *, after: int, upto: int) -> list[int]:
        """The numbers of events that a stream may have missed; raise TooOld.

        A number that is not there belonged to a job that was removed: whoever shows that job must
        be told, and cannot be told by an event.
        """
        if not after <= upto <= self.end:
            raise TooOld
        await self._reach_back_to(after)
        between = [one for one in self._passed if after < one.number <= upto]
        if len(between) != upto - after:
            raise TooOld
        return [one.number for one in between if one.may_be(wanted)]

    async def _reach_back_to(self, after: int) -> None:
        async with self._extending:
            earlier: list[_Passed] = []
            position, start = after, self.start
            while position < start:
                if self.end - after > self._most:
                    raise TooOld
                page = await self._reader().events(
                    after=position, limit=min(_PAGE, start - position)
                )
                if start != self.start:  # it has moved on meanwhile
                    raise TooOld
                position = page[-1].sequence if page else start
                earlier += [_Passed.of(event) for event in page if event.sequence <= start]
            if earlier or after < start:
                self._passed.extendleft(reversed(earlier))
                self.start = after

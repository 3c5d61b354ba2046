"""Stores that break a promise, whichever store they stand for; a proof must say so."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import count
from typing import Any, cast

import msgspec

from gantline.contract.results import Applied, ApplyResult, InsertResult, Stale
from gantline.contract.snapshot import LoggedEvent
from gantline.contract.status import Event
from gantline.contract.store import JobStore
from gantline.contract.submission import NewJob
from gantline.contract.transition import Transition


class _Broken:
    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._numbers = count(1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _ForgetsJobs(_Broken):
    async def insert(self, jobs: Sequence[NewJob]) -> list[InsertResult]:
        if next(self._numbers) % 20 == 0:
            return [Applied(1) for _ in jobs]
        return await self._store.insert(jobs)


class _ConfirmsWhatItRefused(_Broken):
    async def apply(self, transitions: Sequence[Transition]) -> list[ApplyResult]:
        answers = await self._store.apply(transitions)
        return [Applied(99) if isinstance(one, Stale) else one for one in answers]


class _ForgetsFollowUps(_Broken):
    async def apply(self, transitions: Sequence[Transition]) -> list[ApplyResult]:
        alone = [msgspec.structs.replace(one, follow_ups=()) for one in transitions]
        return await self._store.apply(alone)


class _HidesEvents(_Broken):
    async def events(self, *, after: int, limit: int) -> list[LoggedEvent]:
        events = await self._store.events(after=after, limit=limit)
        return [event for event in events if event.sequence % 20]


class _LetsRetriesWait(_Broken):
    async def apply(self, transitions: Sequence[Transition]) -> list[ApplyResult]:
        late = [
            msgspec.structs.replace(one, delay=timedelta(hours=1))
            if one.event is Event.RETRIED
            else one
            for one in transitions
        ]
        return await self._store.apply(late)


def forgets_jobs(store: JobStore) -> JobStore:
    """Confirms some that it has not stored."""
    return cast("JobStore", _ForgetsJobs(store))


def confirms_what_it_refused(store: JobStore) -> JobStore:
    """A worker that has lost its run is answered that its end was accepted."""
    return cast("JobStore", _ConfirmsWhatItRefused(store))


def forgets_follow_ups(store: JobStore) -> JobStore:
    return cast("JobStore", _ForgetsFollowUps(store))


def hides_events(store: JobStore) -> JobStore:
    """A consumer never hears of one in twenty."""
    return cast("JobStore", _HidesEvents(store))


def lets_retries_wait(store: JobStore) -> JobStore:
    """Jobs that are to be tried again are not."""
    return cast("JobStore", _LetsRetriesWait(store))

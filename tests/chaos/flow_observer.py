"""The observer of limits: looks at the store all the while, beside those who work on it."""

import asyncio
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import psycopg
from redis.exceptions import RedisError

from gantline.contract.errors import StoreUnavailable
from gantline.contract.flow import GroupState
from gantline.contract.store import JobStore
from tests.chaos.flow_tables import Tables

_LOOK_SECONDS: Final = 0.1
_PER_PAGE: Final = 500
_AWAY: Final = (
    StoreUnavailable,
    OSError,
    sqlite3.Error,
    psycopg.Error,
    RedisError,
)


class TooMany(NamedTuple):
    """More runs of a key than may be."""

    by: str
    key: str
    running: int

    def __str__(self) -> str:
        return f"{self.key} had {self.running} runs, by {self.by}"


class EmptyPlace(NamedTuple):
    """Something of a key was due and a place was empty, for so long."""

    key: str
    seconds: float
    state: GroupState

    def __str__(self) -> str:
        return f"{self.key}: {self.state} for {self.seconds:.1f} s, with a place empty"


class Observer:
    """Collects what breaks a rule. While the store is away, nothing is expected of it."""

    def __init__(
        self, store: JobStore, tables: Tables, *, job_type: str, most: int, within: float
    ) -> None:
        """`within`: after so many seconds a free place should have been taken."""
        self._store = store
        self._tables = tables
        self._job_type = job_type
        self._most = most
        self._within = within
        self._empty_since: dict[str, tuple[GroupState, float]] = {}
        self.looks: Counter[str] = Counter()
        self.most_seen: Counter[str] = Counter()
        """By each way of looking, the most runs of a key."""
        self.violations: list[TooMany | EmptyPlace] = []

    def check(self) -> None:
        for by in ("groups", "tables"):
            assert self.most_seen[by] >= self._most, f"by {by} no key was ever seen to be full"
        assert not self.violations, "\n".join(map(str, self.violations[:20]))

    async def look(self) -> None:
        try:
            self._judge("tables", await asyncio.to_thread(self._tables.running))
            groups = await self._groups()
        except _AWAY:
            self._empty_since.clear()
            return
        self._judge("groups", {one.group: one.running for one in groups})
        self._look_for_empty_places(groups)

    async def _groups(self) -> list[GroupState]:
        found: list[GroupState] = []
        after = ""
        while True:
            page = await self._store.groups(
                "default", self._job_type, tenant_id=None, limit=_PER_PAGE, after=after
            )
            found += page.items
            if not (after := page.next):
                return found

    def _judge(self, by: str, running: Mapping[str, int]) -> None:
        self.looks[by] += 1
        self.most_seen[by] = max(self.most_seen[by], *running.values(), 0)
        self.violations += [
            TooMany(by, key, count) for key, count in running.items() if count > self._most
        ]

    def _look_for_empty_places(self, groups: list[GroupState]) -> None:
        now = time.monotonic()
        there: dict[str, tuple[GroupState, float]] = {}
        for one in groups:
            if one.oldest_due_at is None or one.running >= self._most:
                continue
            before, since = self._empty_since.get(one.group, (one, now))
            # Whoever went in their turn has left others at the head.
            if before.oldest_due_at != one.oldest_due_at:
                before, since = one, now
            if now - since > self._within:
                self.violations.append(EmptyPlace(one.group, now - since, one))
                since = now
            there[one.group] = before, since
        self._empty_since = there


@asynccontextmanager
async def observed(observer: Observer) -> AsyncIterator[Observer]:
    """Look as long as the block lasts; `check` is left to the caller."""

    async def look_for_ever() -> None:
        while True:
            await observer.look()
            await asyncio.sleep(_LOOK_SECONDS)

    looking = asyncio.create_task(look_for_ever())
    try:
        yield observer
    except BaseException as error:
        for violation in observer.violations[:20]:
            error.add_note(str(violation))
        raise
    finally:
        looking.cancel()
        await asyncio.wait({looking})
    if not looking.cancelled():
        looking.result()

"""RedisStore: every verb is one script on one prefix of a Redis or Valkey, shared by many hosts."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import redis

from gantline.contract.capabilities import Capabilities
from gantline.contract.clock import Clock, to_micros
from gantline.contract.errors import SchemaMismatch, StoreMisconfigured, StoreUnavailable
from gantline.contract.flow import GateState, GroupPage
from gantline.contract.query import (
    Cursor,
    DeadCount,
    JobFilter,
    LaneCounts,
    LaneRequest,
    Page,
    Pruned,
    PruneRule,
    at_most,
    in_64_bits,
)
from gantline.contract.records import Record, RecordWrite
from gantline.contract.results import (
    Applied,
    ApplyResult,
    Conflict,
    DeleteResult,
    InsertResult,
    Leadership,
    ProgressResult,
    Renewal,
)
from gantline.contract.snapshot import JobSnapshot, LogEntry, LoggedEvent, Progress, Run, RunRef
from gantline.contract.store import StoreTransaction
from gantline.contract.stored import Dumped, Part, Stored, refuse_running
from gantline.contract.submission import DedupeKey, NewJob
from gantline.contract.text import is_storable, storable_start
from gantline.contract.transition import StateGuard, Transition
from gantline.contract.wakeup import EarlyHints, RedisChannel
from gantline.stores.diagnostics import Advice
from gantline.stores.redis import claim as claims
from gantline.stores.redis import (
    copying,
    counts,
    dedupe,
    events,
    flow,
    leases,
    prune,
    query,
    records,
    scripts,
)
from gantline.stores.redis.ahead import ahead
from gantline.stores.redis.apply import apply
from gantline.stores.redis.calls import Calls
from gantline.stores.redis.failures import reads_replies
from gantline.stores.redis.insert import insert
from gantline.stores.redis.location import Location
from gantline.stores.redis.rows import encode_lane, read_instant
from gantline.stores.redis.server import Server, advice, ask_server, capabilities

FORMAT: Final = 4
"""The version of the layout of the keys. A store with another version is refused."""


class _Opened:
    """What an open store holds, and what it knows about its server."""

    def __init__(self, calls: Calls, server: Server) -> None:
        self.calls = calls
        self.server = server


class RedisStore:
    """Keep jobs in Redis. Callable from several event loops."""

    def __init__(
        self,
        location: Location,
        *,
        clock: Clock | None = None,
        tokens: claims.Tokens = claims.new_tokens,
    ) -> None:
        """Without a clock, time is the server's. `tokens` makes so many tokens, 16 bytes each."""
        self.location = location
        self._clock = clock
        self._tokens = tokens
        self._early_hints = EarlyHints(_channel_name(location) if location.wakeup else "")
        self._opened: _Opened | None = None
        self._opening = asyncio.Lock()

    @property
    def capabilities(self) -> Capabilities:
        return capabilities(self._opened.server if self._opened else None, self.location)

    @property
    def channel(self) -> RedisChannel | None:
        location = self.location
        if not location.wakeup:
            return None
        any_server = len(location.urls) == 1 or location.cluster
        return RedisChannel(location.urls, _channel_name(location), any_server, self._early_hints)

    async def software(self) -> Mapping[str, str]:
        server = self._parts.server
        return {server.software: server.version, "redis-py": redis.__version__}

    @reads_replies
    async def advice(self) -> Sequence[Advice]:
        return advice(await ask_server(self._calls), self.location)

    @reads_replies
    async def open(self) -> None:
        async with self._opening:
            if self._opened is not None:
                return
            calls = Calls(self.location)
            try:
                await calls.find_cluster_nodes()
                found = int(await calls.run(scripts.FORMAT, FORMAT))
                if found != FORMAT:
                    raise SchemaMismatch(
                        f"The jobs under this prefix are kept in format {found}; this Gantline "
                        f"knows format {FORMAT}.",
                        next_step="Use the Gantline that wrote them, or another prefix.",
                    )
                server = await ask_server(calls)
            except BaseException:
                await calls.close()
                raise
            self._opened = _Opened(calls, server)

    async def close(self) -> None:
        async with self._opening:
            opened, self._opened = self._opened, None
            if opened is not None:
                await opened.calls.close()

    @property
    def _parts(self) -> _Opened:
        if self._opened is None:
            raise StoreUnavailable("The store is not open.", next_step="Call open() first.")
        return self._opened

    @property
    def _calls(self) -> Calls:
        return self._parts.calls

    def _now(self) -> bytes:
        """The instant to use instead of the server's; empty: the server's."""
        return b"" if self._clock is None else b"%d" % to_micros(self._clock.now())

    @reads_replies
    async def ping(self) -> datetime:
        return read_instant(await self._calls.run(scripts.PING, self._now()))

    # -- writing ----------------------------------------------------------------------------------

    @reads_replies
    async def insert(self, jobs: Sequence[NewJob]) -> list[InsertResult]:
        return await insert(self._calls, tuple(jobs), self._now(), self._early_hints)

    async def insert_in(self, connection: Any, jobs: Sequence[NewJob]) -> list[InsertResult]:
        raise StoreMisconfigured(
            "Redis has no transactions to join.",
            next_step="Submit without `connection`, or use a SQL store.",
        )

    def transaction(self) -> AbstractAsyncContextManager[StoreTransaction]:
        raise StoreMisconfigured("Redis has no transactions.", next_step="Use a SQL store.")

    @reads_replies
    async def claim(
        self, session: str, claim_id: UUID, requests: Sequence[LaneRequest], *, lease: timedelta
    ) -> list[Run]:
        return await claims.claim(
            self._calls,
            session,
            claim_id,
            requests,
            lease=lease,
            now=self._now(),
            tokens=self._tokens,
        )

    @reads_replies
    async def renew(self, session: str, runs: Sequence[RunRef], *, lease: timedelta) -> Renewal:
        return await leases.renew(self._calls, session, tuple(runs), lease=lease, now=self._now())

    @reads_replies
    async def expired(self, *, limit: int, after: UUID | None = None) -> list[Run]:
        return await leases.expired(self._calls, limit=at_most(limit), after=after, now=self._now())

    @reads_replies
    async def past_expiry(self, *, limit: int) -> list[UUID]:
        return await leases.past_expiry(self._calls, limit=at_most(limit), now=self._now())

    @reads_replies
    async def expire_session(self, session: str) -> int:
        return await leases.expire_session(self._calls, session, self._now())

    @reads_replies
    async def progress(self, updates: Sequence[Progress]) -> list[ProgressResult]:
        return await leases.progress(self._calls, tuple(updates), self._now())

    @reads_replies
    async def apply(self, transitions: Sequence[Transition]) -> list[ApplyResult]:
        return await apply(self._calls, tuple(transitions), self._now())

    @reads_replies
    async def delete(self, jobs: Sequence[tuple[UUID, StateGuard]]) -> list[DeleteResult]:
        return await prune.delete(self._calls, tuple(jobs))

    @reads_replies
    async def prune(
        self, rules: Sequence[PruneRule], *, limit: int, keep_events_after: int | None = None
    ) -> Pruned:
        return await prune.prune(
            self._calls,
            rules,
            limit=at_most(limit),
            keep_events_after=keep_events_after,
            now=self._now(),
        )

    async def sequence(self, *, limit: int) -> int:
        return 0  # rows are numbered when they are written: scripts run one after the other

    @reads_replies
    async def lead(self, role: str, owner: str, *, lease: timedelta) -> Leadership | None:
        return await records.lead(self._calls, role, owner, lease=lease, now=self._now())

    @reads_replies
    async def resign(self, role: str, owner: str, term: int) -> None:
        await records.resign(self._calls, role, owner, term)

    @reads_replies
    async def write_records(self, writes: Sequence[RecordWrite]) -> list[Applied | Conflict]:
        return await records.write_checked(self._calls, tuple(writes), self._now())

    # -- reading ----------------------------------------------------------------------------------

    @reads_replies
    async def get(
        self, job_ids: Sequence[UUID], *, tenant_id: str | None
    ) -> list[JobSnapshot | None]:
        return await query.get(self._calls, tuple(job_ids), tenant_id)

    @reads_replies
    async def request_keys(self, job_ids: Sequence[UUID]) -> list[DedupeKey | None]:
        return await dedupe.find_request_keys(self._calls, tuple(job_ids), self._now())

    @reads_replies
    async def find(self, job_filter: JobFilter, *, limit: int, after: Cursor | None = None) -> Page:
        return await query.find(
            self._calls, job_filter, limit=at_most(limit), after=after, now=self._now()
        )

    @reads_replies
    async def counts(self, *, tenant_id: str | None) -> list[LaneCounts]:
        if not is_storable(tenant_id or ""):
            return []
        return await counts.counts(self._calls, tenant_id, self._now())

    @reads_replies
    async def ahead(
        self, job_id: UUID, job_types: Collection[str], *, tenant_id: str | None, limit: int
    ) -> dict[int, int] | None:
        return await ahead(
            self._calls,
            job_id,
            tuple(job_types),
            tenant_id=tenant_id,
            limit=at_most(limit),
            now=self._now(),
        )

    @reads_replies
    async def groups(
        self, queue: str, job_type: str, *, tenant_id: str | None, limit: int, after: str = ""
    ) -> GroupPage:
        if not is_storable(queue + job_type + (tenant_id or "")):
            return GroupPage(())
        return await flow.groups(
            self._calls,
            encode_lane(queue, job_type),
            tenant_id=tenant_id,
            limit=at_most(limit),
            after=after,
            now=self._now(),
        )

    @reads_replies
    async def waiting(
        self, queue: str, job_type: str, *, tenant_id: str, group: str, at_most: int
    ) -> int:
        if not is_storable(queue + job_type + tenant_id + group):
            return 0
        lane = encode_lane(queue, job_type)
        queued = await flow.count_queued(self._calls, lane, tenant_id=tenant_id, group=group)
        return min(queued, at_most)

    @reads_replies
    async def gates(self, names: Sequence[str]) -> list[GateState]:
        return await flow.gates(self._calls, names)

    @reads_replies
    async def dead_counts(self, *, tenant_id: str | None) -> list[DeadCount]:
        if not is_storable(tenant_id or ""):
            return []
        return await counts.dead_counts(self._calls, tenant_id)

    @reads_replies
    async def history(self, job_id: UUID, *, tenant_id: str | None) -> list[LogEntry]:
        return await events.history(self._calls, job_id, tenant_id)

    @reads_replies
    async def events(self, *, after: int, limit: int) -> list[LoggedEvent]:
        return await events.events(self._calls, after=in_64_bits(after), limit=at_most(limit))

    @reads_replies
    async def last_event(self) -> int:
        return int(await self._calls.run(scripts.LAST_EVENT))

    @reads_replies
    async def held(self, keys: Sequence[DedupeKey]) -> list[UUID | None]:
        return await dedupe.find_holders(self._calls, tuple(keys), self._now())

    @reads_replies
    async def read_records(
        self, namespace: str, *, prefix: str = "", after: str = "", limit: int = 1000
    ) -> list[Record]:
        if not is_storable(namespace + prefix):
            return []
        return await records.read(
            self._calls,
            namespace,
            prefix=prefix,
            after=storable_start(after),
            limit=at_most(limit),
            now=self._now(),
        )

    # -- moving to another store ------------------------------------------------------------------

    @reads_replies
    async def dump(self, part: Part, *, after: str = "", limit: int) -> Dumped:
        return await copying.dump(self._calls, part, after, limit)

    @reads_replies
    async def load(self, items: Sequence[Stored]) -> None:
        refuse_running(items)
        await copying.load(self._calls, tuple(items))

    @reads_replies
    async def clear(self) -> None:
        await copying.clear(self._calls)


def _channel_name(location: Location) -> str:
    """Name the channel. Channels are not separated by database, so the name has its number."""
    return f"{{{location.prefix}}}:wake:{location.database}"

"""PostgresStore: every verb on one schema of a PostgreSQL database, shared by many hosts."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import psycopg

from gantline.contract.capabilities import Capabilities
from gantline.contract.clock import Clock, from_micros, span_micros, to_micros
from gantline.contract.errors import StoreBusy, StoreUnavailable
from gantline.contract.flow import GateState, GroupPage, group_number
from gantline.contract.payload import DEFAULT_PAYLOAD_LIMIT
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
from gantline.contract.stored import Dumped, Part, Stored, StoredJob, refuse_running
from gantline.contract.submission import DedupeKey, NewJob
from gantline.contract.text import is_storable, storable_start
from gantline.contract.transition import StateGuard, Transition
from gantline.contract.wakeup import PostgresChannel
from gantline.stores.migrations import Migrator
from gantline.stores.pool import Purpose
from gantline.stores.postgres import (
    copying,
    counts,
    events,
    groups,
    leases,
    prune,
    query,
    records,
    schema,
)
from gantline.stores.postgres.ahead import ahead
from gantline.stores.postgres.apply import apply, follow_ups_of
from gantline.stores.postgres.calls import Calls, do_nothing
from gantline.stores.postgres.claim import Claims
from gantline.stores.postgres.connection import full_conninfo
from gantline.stores.postgres.dedupe import find_holder, find_request_keys
from gantline.stores.postgres.insert import accept_own_duplicates, insert, lanes_of, split_by_key
from gantline.stores.postgres.lanes import Lanes
from gantline.stores.postgres.location import Location
from gantline.stores.postgres.schema import PostgresMigrator
from gantline.stores.postgres.settle import is_plain
from gantline.stores.postgres.sql import Sql
from gantline.stores.postgres.transaction import PostgresTransaction, insert_through
from gantline.stores.slow_counts import SlowCounts, Stopwatch

# How long a batch of submits waits for a key in an open transaction; then each waits alone.
_PATIENCE_MS: Final = 200


class _Opened:
    """What an open store holds, and what it has cached of its database."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.lanes = Lanes()
        self.claims = Claims(calls, self.lanes)
        self.counts = SlowCounts[LaneCounts]()
        self.dead_counts = SlowCounts[DeadCount]()
        self.sequencer = events.Sequencer()
        self.empty_batches = prune.EmptyBatches()
        self.numbers = events.Numbers()
        self.queue_check = prune.QueueCheck()
        self.turn_check = prune.TurnCheck()


class PostgresStore:
    """Keep jobs in PostgreSQL. Callable from several event loops."""

    def __init__(
        self,
        location: Location,
        *,
        clock: Clock | None = None,
        before_commit: Callable[[], None] | None = None,
        make_calls: Callable[..., Calls] = Calls,
    ) -> None:
        """Without a clock, time is the server's. Tests stop a commit in `before_commit`."""
        self.location = location
        self._clock = clock
        self._before_commit = before_commit
        self._make_calls = make_calls
        self._opened: _Opened | None = None
        self._opening = asyncio.Lock()

    @property
    def capabilities(self) -> Capabilities:
        survives = self._opened is None or self._opened.calls.are_durable
        return Capabilities(
            durability="power_loss" if survives else "process",
            ack_lost_on="the loss of the disk, or a failover to a standby that is not synchronous"
            if survives
            else "a crash of the server, for the commits of its last moments",
            caller_transaction=True,
            clock="server",
            writers="many",
            event_lag=timedelta(seconds=1),
            count_staleness=timedelta(seconds=10),
            max_payload_bytes=DEFAULT_PAYLOAD_LIMIT,
            turns=True,
            limits=True,
            patience=self.location.deadline,
        )

    @property
    def channel(self) -> PostgresChannel | None:
        if not self.location.wakeup:
            return None
        return PostgresChannel(full_conninfo(self.location), f"{self.location.schema}.wake")

    @property
    def migrator(self) -> Migrator:
        return PostgresMigrator(self.location)

    async def software(self) -> Mapping[str, str]:
        async def ask(sql: Sql) -> str:
            rows = await sql.rows("SELECT current_setting('server_version')")
            return str(rows[0][0])

        return {"PostgreSQL": await self.calls.run(ask), "psycopg": psycopg.__version__}

    async def open(self) -> None:
        async with self._opening:
            if self._opened is not None:
                return
            calls = self._make_calls(self.location, before_commit=self._before_commit)
            try:
                await calls.run(self._prepare, atomic=True)
            except BaseException:
                await calls.close()
                raise
            self._opened = _Opened(calls)

    async def _prepare(self, sql: Sql) -> None:
        if self.location.auto_migrate:
            await schema.migrate(sql, self.location)
        else:
            await schema.check(sql, self.location)

    async def close(self) -> None:
        async with self._opening:
            opened, self._opened = self._opened, None
            if opened is not None:
                await opened.calls.close()

    @property
    def _parts(self) -> "_Opened":
        if self._opened is None:
            raise StoreUnavailable("The store is not open.", next_step="Call open() first.")
        return self._opened

    @property
    def calls(self) -> Calls:
        return self._parts.calls

    def _now(self) -> int | None:
        """The instant to use instead of the server's."""
        return None if self._clock is None else to_micros(self._clock.now())

    async def ping(self) -> datetime:
        async def ask(sql: Sql) -> datetime:
            rows = await sql.rows("SELECT coalesce(%s, gantline.micros())", self._now())
            return from_micros(rows[0][0])

        return await self.calls.run(ask)

    # -- writing ----------------------------------------------------------------------------------

    async def insert(self, jobs: Sequence[NewJob]) -> list[InsertResult]:
        jobs = tuple(jobs)
        if not jobs:
            return []
        try:
            return await self._insert(jobs, patience_ms=_PATIENCE_MS if len(jobs) > 1 else None)
        except StoreBusy:
            # One of them waits for a key; the others must not.
            alone = [self._insert((new,), patience_ms=None) for new in jobs]
            return [results[0] for results in await asyncio.gather(*alone)]

    async def _insert(
        self, jobs: tuple[NewJob, ...], *, patience_ms: int | None
    ) -> list[InsertResult]:
        lanes, in_rounds = self._parts.lanes, list(split_by_key(jobs))

        async def write(sql: Sql) -> list[InsertResult]:
            results = await insert(
                sql, jobs, in_rounds, lanes=lanes, now=self._now(), patience_ms=patience_ms
            )
            return accept_own_duplicates(results, jobs) if sql.is_repeated else results

        # A round is one atomic statement: BEGIN and COMMIT would be two more round trips.
        return await self.calls.run(
            write, atomic=len(in_rounds) > 1, before=lambda sql: lanes.load(sql, lanes_of(jobs))
        )

    async def insert_in(self, connection: Any, jobs: Sequence[NewJob]) -> list[InsertResult]:
        lanes = self._parts.lanes
        names = tuple(lanes_of(jobs))
        if not lanes.knows(names):
            # Not in the caller's transaction: others would wait for its end to load the lane.
            await self.calls.run(do_nothing, before=lambda sql: lanes.load_unlocked(sql, names))
        return await insert_through(connection, jobs, location=self.location, now=self._now())

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[PostgresTransaction]:
        async with self.calls.transaction() as sql:
            yield PostgresTransaction(sql, self._parts.lanes, self.calls, self._now())

    async def claim(
        self, session: str, claim_id: UUID, requests: Sequence[LaneRequest], *, lease: timedelta
    ) -> list[Run]:
        return await self._parts.claims.claim(
            session, claim_id, requests, lease=lease, now=self._now()
        )

    async def renew(self, session: str, runs: Sequence[RunRef], *, lease: timedelta) -> Renewal:
        runs = tuple(runs)
        if not runs:
            return Renewal()
        return await self.calls.run(
            lambda sql: leases.renew(
                sql, session, runs, now=self._now(), lease_micros=span_micros(lease)
            ),
            purpose=Purpose.CONTROL,
        )

    async def expire_session(self, session: str) -> int:
        if not is_storable(session):
            return 0
        return await self.calls.run(
            lambda sql: leases.expire_session(sql, session, self._now()), purpose=Purpose.CONTROL
        )

    async def progress(self, updates: Sequence[Progress]) -> list[ProgressResult]:
        updates = tuple(updates)
        return await self.calls.run(
            lambda sql: leases.progress(sql, updates, now=self._now()), atomic=len(updates) > 1
        )

    async def apply(self, transitions: Sequence[Transition]) -> list[ApplyResult]:
        transitions, lanes = tuple(transitions), self._parts.lanes
        return await self.calls.run(
            lambda sql: apply(sql, transitions, lanes=lanes, now=self._now()),
            atomic=not all(map(is_plain, transitions)),
            before=lambda sql: lanes.load(sql, lanes_of(follow_ups_of(transitions))),
        )

    async def delete(self, jobs: Sequence[tuple[UUID, StateGuard]]) -> list[DeleteResult]:
        jobs = tuple(jobs)
        return await self.calls.run(lambda sql: prune.delete(sql, jobs), atomic=True)

    async def prune(
        self, rules: Sequence[PruneRule], *, limit: int, keep_events_after: int | None = None
    ) -> Pruned:
        queue_check, turn_check = self._parts.queue_check, self._parts.turn_check
        empty_batches = self._parts.empty_batches
        return await self.calls.run(
            lambda sql: prune.prune(
                sql,
                rules,
                queue_check=queue_check,
                turn_check=turn_check,
                empty_batches=empty_batches,
                limit=at_most(limit),
                keep_events_after=keep_events_after,
                now=self._now(),
            ),
            atomic=True,
        )

    async def sequence(self, *, limit: int) -> int:
        sequencer = self._parts.sequencer
        return await self.calls.run(lambda sql: sequencer.number_rows(sql, at_most(limit)))

    async def lead(self, role: str, owner: str, *, lease: timedelta) -> Leadership | None:
        return await self.calls.run(
            lambda sql: records.lead(
                sql, role, owner, lease_micros=span_micros(lease), now=self._now()
            ),
            purpose=Purpose.CONTROL,
        )

    async def resign(self, role: str, owner: str, term: int) -> None:
        await self.calls.run(
            lambda sql: records.resign(sql, role, owner, term, self._now()), purpose=Purpose.CONTROL
        )

    async def write_records(self, writes: Sequence[RecordWrite]) -> list[Applied | Conflict]:
        writes = tuple(writes)
        return await self.calls.run(
            lambda sql: records.write_checked(sql, writes, self._now()), atomic=True
        )

    # -- reading ----------------------------------------------------------------------------------

    async def get(
        self, job_ids: Sequence[UUID], *, tenant_id: str | None
    ) -> list[JobSnapshot | None]:
        return await self.calls.run(lambda sql: query.get(sql, job_ids, tenant_id))

    async def request_keys(self, job_ids: Sequence[UUID]) -> list[DedupeKey | None]:
        return await self.calls.run(lambda sql: find_request_keys(sql, job_ids, self._now()))

    async def find(self, job_filter: JobFilter, *, limit: int, after: Cursor | None = None) -> Page:
        return await self.calls.run(
            lambda sql: query.find(
                sql, job_filter, limit=at_most(limit), after=after, now=self._now()
            )
        )

    async def counts(self, *, tenant_id: str | None) -> list[LaneCounts]:
        if not is_storable(tenant_id or ""):
            return []

        async def count(timed: Stopwatch) -> list[LaneCounts]:
            async def ask(sql: Sql) -> list[LaneCounts]:
                with timed:
                    return await counts.counts(sql, tenant_id, self._now())

            return await self.calls.run(ask)

        return await self._parts.counts.get(tenant_id, count)

    async def ahead(
        self, job_id: UUID, job_types: Collection[str], *, tenant_id: str | None, limit: int
    ) -> dict[int, int] | None:
        return await self.calls.run(
            lambda sql: ahead(
                sql,
                job_id,
                job_types,
                tenant_id=tenant_id,
                limit=at_most(limit),
                now=self._now(),
            )
        )

    async def groups(
        self, queue: str, job_type: str, *, tenant_id: str | None, limit: int, after: str = ""
    ) -> GroupPage:
        if not is_storable(queue + job_type + (tenant_id or "")):
            return GroupPage(())
        return await self.calls.run(
            lambda sql: groups.groups(
                sql,
                (queue, job_type),
                tenant_id=tenant_id,
                limit=at_most(limit),
                after=after,
                now=self._now(),
            )
        )

    async def waiting(
        self, queue: str, job_type: str, *, tenant_id: str, group: str, at_most: int
    ) -> int:
        if not is_storable(queue + job_type):
            return 0
        number = group_number(tenant_id, group)
        return await self.calls.run(
            lambda sql: groups.waiting(sql, (queue, job_type), number, most=at_most)
        )

    async def gates(self, names: Sequence[str]) -> list[GateState]:
        return await self.calls.run(lambda sql: groups.gates(sql, names))

    async def dead_counts(self, *, tenant_id: str | None) -> list[DeadCount]:
        if not is_storable(tenant_id or ""):
            return []

        async def count(timed: Stopwatch) -> list[DeadCount]:
            async def ask(sql: Sql) -> list[DeadCount]:
                with timed:
                    return await counts.dead_counts(sql, tenant_id)

            return await self.calls.run(ask)

        return await self._parts.dead_counts.get(tenant_id, count)

    async def history(self, job_id: UUID, *, tenant_id: str | None) -> list[LogEntry]:
        if not is_storable(tenant_id or ""):
            return []
        return await self.calls.run(lambda sql: events.history(sql, job_id, tenant_id))

    async def events(self, *, after: int, limit: int) -> list[LoggedEvent]:
        return await self.calls.run(
            lambda sql: events.events(sql, after=after, limit=at_most(limit))
        )

    async def last_event(self) -> int:
        return await self.calls.run(events.last_event)

    async def expired(self, *, limit: int, after: UUID | None = None) -> list[Run]:
        return await self.calls.run(
            lambda sql: leases.expired(sql, limit=at_most(limit), after=after, now=self._now())
        )

    async def past_expiry(self, *, limit: int) -> list[UUID]:
        return await self.calls.run(
            lambda sql: query.past_expiry(sql, limit=at_most(limit), now=self._now())
        )

    async def held(self, keys: Sequence[DedupeKey]) -> list[UUID | None]:
        async def look(sql: Sql) -> list[UUID | None]:
            possible = [key for key in keys if is_storable("".join(key.identity))]
            found = {key.identity: await find_holder(sql, key, self._now()) for key in possible}
            held = [found.get(key.identity) for key in keys]
            return [one.job_id if one else None for one in held]

        return await self.calls.run(look)

    async def read_records(
        self, namespace: str, *, prefix: str = "", after: str = "", limit: int = 1000
    ) -> list[Record]:
        if not is_storable(namespace + prefix):
            return []
        return await self.calls.run(
            lambda sql: records.read(
                sql,
                namespace,
                prefix=prefix,
                after=storable_start(after),
                limit=at_most(limit),
                now=self._now(),
            )
        )

    # -- moving to another store ------------------------------------------------------------------

    async def dump(self, part: Part, *, after: str = "", limit: int) -> Dumped:
        numbers = self._parts.numbers
        return await self.calls.run(
            lambda sql: copying.dump(sql, part, after, limit, numbers), atomic=part is Part.JOBS
        )

    async def load(self, items: Sequence[Stored]) -> None:
        items, lanes = tuple(items), self._parts.lanes
        refuse_running(items)
        jobs = [item.job for item in items if isinstance(item, StoredJob)]
        await self.calls.run(
            lambda sql: copying.load(sql, items, lanes),
            atomic=True,
            before=lambda sql: lanes.load(sql, {(job.queue, job.job_type) for job in jobs}),
        )

    async def clear(self) -> None:
        while await self.calls.run(copying.clear_some, atomic=True):
            pass

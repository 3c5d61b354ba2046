"""SqliteStore: every verb on one database file, shared by the processes of a host."""

import asyncio
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from gantline.contract.capabilities import Capabilities
from gantline.contract.clock import Clock, to_micros
from gantline.contract.errors import StoreUnavailable
from gantline.contract.flow import GateState, GroupPage, group_number
from gantline.contract.job_id import uuid_from_bytes
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
from gantline.contract.stored import Dumped, Part, Stored, refuse_running
from gantline.contract.submission import DedupeKey, NewJob
from gantline.contract.text import is_storable, storable_start
from gantline.contract.transition import StateGuard, Transition
from gantline.runtime import new_uuid, thread_seconds
from gantline.stores.diagnostics import Advice
from gantline.stores.migrations import Migrator
from gantline.stores.slow_counts import SlowCounts, Stopwatch
from gantline.stores.sqlite import claim as claims
from gantline.stores.sqlite import copying, counts, events, leases, prune, query, ready, records
from gantline.stores.sqlite.ahead import ahead
from gantline.stores.sqlite.apply import apply
from gantline.stores.sqlite.connection import OpenedFile, describe_mode
from gantline.stores.sqlite.dedupe import find_holder, find_request_keys
from gantline.stores.sqlite.due import has_due
from gantline.stores.sqlite.groups import count_waiting, read_groups
from gantline.stores.sqlite.insert import insert
from gantline.stores.sqlite.limits import read_gates
from gantline.stores.sqlite.location import Location, check_location
from gantline.stores.sqlite.schema import SqliteMigrator, check, is_up_to_date, migrate
from gantline.stores.sqlite.threads import Readers, Writer
from gantline.stores.sqlite.transaction import (
    SqliteTransaction,
    TransactionQueue,
    check_caller,
    join_transaction,
    make_in_thread,
)

_READ: Final = "SELECT 1 FROM sqlite_schema LIMIT 1"
_LOST_ON: Final = {
    "full": "the loss of the disk",
    "normal": "a power cut or a crash of the operating system",
}


class _Opened:
    """What an open store holds: the writer, a second one for leases, the readers, the searchers."""

    def __init__(self, location: Location, before_commit: Callable[[], None] | None) -> None:
        check_location(location)
        self.file = OpenedFile(location.path)
        self.writer = Writer(
            location, self.file, name="gantline-writer", before_commit=before_commit
        )
        with ExitStack() as on_error:
            on_error.callback(self.writer.end)
            # Renewals never wait for the other writes of this process.
            self.lease_writer = Writer(location, self.file, name="gantline-lease-writer")
            on_error.callback(self.lease_writer.end)
            self.readers = Readers(location, self.file, name="gantline-reader")
            on_error.callback(self.readers.close)
            self.searchers = Readers.of_searches(location, self.file)
            on_error.pop_all()
        # By the processor time of the thread: a host that is busy with something else makes no
        # count slow.
        self.counts = SlowCounts[LaneCounts](work_seconds=thread_seconds)
        self.dead_counts = SlowCounts[DeadCount](work_seconds=thread_seconds)

    async def close(self) -> None:
        """Wait until the file is closed. Continues in its thread if the caller is cancelled."""
        loop = asyncio.get_running_loop()
        await asyncio.shield(loop.run_in_executor(None, self._close))

    def _close(self) -> None:
        for part in (self.searchers, self.readers, self.lease_writer, self.writer):
            part.close()

    def end(self) -> None:
        """Close without waiting for the writers; those who read must be idle."""
        self.searchers.close()
        self.readers.close()
        self.lease_writer.end()
        self.writer.end()


class SqliteStore:
    """Keep jobs in a SQLite file. Callable from several event loops and processes."""

    def __init__(
        self,
        location: Location,
        *,
        clock: Clock,
        tokens: Callable[[], UUID] = new_uuid,
        before_commit: Callable[[], None] | None = None,
    ) -> None:
        """`before_commit` is called in the writer's thread; tests hold or break a commit there."""
        self._location = location
        self._clock = clock
        self._tokens = tokens
        self._before_commit = before_commit
        self._transactions = TransactionQueue(location)
        self._opened: _Opened | None = None
        self._opening = asyncio.Lock()
        self._checks_first = False

    @property
    def path(self) -> Path:
        return self._location.path

    @property
    def capabilities(self) -> Capabilities:
        sync = self._location.sync
        return Capabilities(
            durability="power_loss" if sync == "full" else "process",
            ack_lost_on=_LOST_ON[sync],
            caller_transaction=True,
            clock="host",
            writers="host",
            event_lag=timedelta(0),
            count_staleness=timedelta(seconds=10),
            max_payload_bytes=DEFAULT_PAYLOAD_LIMIT,
            turns=True,
            limits=True,
            patience=timedelta(seconds=self._location.busy_seconds),
            local_file=self.path,
        )

    @property
    def channel(self) -> None:
        return None

    @property
    def migrator(self) -> Migrator:
        return SqliteMigrator(self._location)

    async def software(self) -> Mapping[str, str]:
        return {"SQLite": sqlite3.sqlite_version}

    async def advice(self) -> Sequence[Advice]:
        return [describe_mode(self.path)]

    async def open(self) -> None:
        async with self._opening:
            if self._opened is None:
                self._opened = await self._make()

    async def _make(self) -> _Opened:
        if not self._location.auto_migrate:
            await asyncio.to_thread(check, self._location)  # before the file is made
        opened = await make_in_thread(
            lambda: _Opened(self._location, self._before_commit), release=_Opened.end
        )
        try:
            # A caller that submits in its own transaction holds the lock that a migration needs.
            if self._location.auto_migrate and not await opened.readers.run(is_up_to_date):
                await opened.writer.run(migrate)
            opened.file.remember()
        except asyncio.CancelledError:
            opened.end()
            raise
        except BaseException:
            await opened.close()
            raise
        return opened

    async def close(self) -> None:
        async with self._opening:
            opened, self._opened = self._opened, None
            if opened is not None:
                await opened.close()

    @property
    def _parts(self) -> _Opened:
        if self._opened is None:
            raise StoreUnavailable("The store is not open.", next_step="Call open() first.")
        return self._opened

    def _now(self) -> int:
        return to_micros(self._clock.now())

    async def ping(self) -> datetime:
        await self._parts.readers.run(lambda connection: connection.execute(_READ).fetchone())
        return self._clock.now()

    # -- writing ----------------------------------------------------------------------------------
    # The clock is read inside the work, under the write lock: so instants and commits have one
    # order, and a writer that waited for the lock does not write an instant long past.

    # Arguments are copied first: the caller may change its list while the work waits.

    async def insert(self, jobs: Sequence[NewJob]) -> list[InsertResult]:
        jobs = tuple(jobs)
        return await self._parts.writer.run(
            lambda connection: insert(connection, jobs, self._now())
        )

    async def insert_in(self, connection: Any, jobs: Sequence[NewJob]) -> list[InsertResult]:
        self._parts.file.check()
        check_caller(connection, self.path)
        jobs = tuple(jobs)
        with join_transaction(connection, self._location):
            return insert(connection, jobs, self._now())

    def transaction(self) -> AbstractAsyncContextManager[SqliteTransaction]:
        return self._transactions.begin(self._parts.file, self._now)

    async def claim(
        self, session: str, claim_id: UUID, requests: Sequence[LaneRequest], *, lease: timedelta
    ) -> list[Run]:
        # Suspects are rare, so a claim of suspects only first checks whether there are any.
        only_suspects = all(request.suspects for request in requests)
        if (self._checks_first or only_suspects) and not await self._has_work(claim_id, requests):
            return []
        runs = await self._parts.writer.run(
            lambda connection: claims.claim(
                connection,
                session,
                claim_id,
                requests,
                lease=lease,
                now=self._now(),
                tokens=self._tokens,
            )
        )
        # While there is work, a check is a waste; an idle poll must not write.
        if not only_suspects:
            self._checks_first = not runs
        return runs

    async def _has_work(self, claim_id: UUID, requests: Sequence[LaneRequest]) -> bool:
        return await self._parts.readers.run(
            lambda connection: (
                bool(claims.find_runs_of_claim(connection, claim_id))
                or has_due(connection, requests, self._now())
            )
        )

    async def renew(self, session: str, runs: Sequence[RunRef], *, lease: timedelta) -> Renewal:
        runs = tuple(runs)
        return await self._parts.lease_writer.run(
            lambda connection: leases.renew(connection, session, runs, lease=lease, now=self._now())
        )

    async def past_expiry(self, *, limit: int) -> list[UUID]:
        return await self._parts.readers.run(
            lambda connection: ready.past_expiry(connection, at_most(limit), self._now())
        )

    async def expire_session(self, session: str) -> int:
        return await self._parts.lease_writer.run(
            lambda connection: leases.expire_session(connection, session, self._now())
        )

    async def progress(self, updates: Sequence[Progress]) -> list[ProgressResult]:
        updates = tuple(updates)
        return await self._parts.writer.run(
            lambda connection: leases.progress(connection, updates, self._now())
        )

    async def apply(self, transitions: Sequence[Transition]) -> list[ApplyResult]:
        transitions = tuple(transitions)
        return await self._parts.writer.run(
            lambda connection: apply(connection, transitions, self._now())
        )

    async def delete(self, jobs: Sequence[tuple[UUID, StateGuard]]) -> list[DeleteResult]:
        jobs = tuple(jobs)
        return await self._parts.writer.run(lambda connection: prune.delete(connection, jobs))

    async def prune(
        self, rules: Sequence[PruneRule], *, limit: int, keep_events_after: int | None = None
    ) -> Pruned:
        rules, limit = tuple(rules), at_most(limit)
        if not limit:
            return await self._parts.readers.run(
                lambda connection: Pruned(overdue=prune.measure_overdue(connection, rules))
            )
        return await self._parts.writer.run(
            lambda connection: prune.prune(
                connection,
                rules,
                limit=limit,
                keep_events_after=keep_events_after and in_64_bits(keep_events_after),
                now=self._now(),
            )
        )

    async def sequence(self, *, limit: int) -> int:
        return 0  # there is one writer at a time, so rows are numbered in the order of commits

    async def lead(self, role: str, owner: str, *, lease: timedelta) -> Leadership | None:
        return await self._parts.lease_writer.run(
            lambda connection: records.lead(connection, role, owner, lease, self._now())
        )

    async def resign(self, role: str, owner: str, term: int) -> None:
        await self._parts.lease_writer.run(
            lambda connection: records.resign(
                connection, role, owner, in_64_bits(term), self._now()
            )
        )

    async def write_records(self, writes: Sequence[RecordWrite]) -> list[Applied | Conflict]:
        writes = tuple(writes)
        return await self._parts.writer.run(
            lambda connection: records.write_checked(connection, writes, self._now())
        )

    # -- reading ----------------------------------------------------------------------------------

    async def get(
        self, job_ids: Sequence[UUID], *, tenant_id: str | None
    ) -> list[JobSnapshot | None]:
        return await self._parts.readers.run(
            lambda connection: query.get(connection, job_ids, tenant_id)
        )

    async def request_keys(self, job_ids: Sequence[UUID]) -> list[DedupeKey | None]:
        return await self._parts.readers.run(
            lambda connection: find_request_keys(connection, job_ids, self._now())
        )

    async def find(self, job_filter: JobFilter, *, limit: int, after: Cursor | None = None) -> Page:
        return await self._parts.searchers.run(
            lambda connection: query.find(
                connection, job_filter, limit=at_most(limit), after=after, now=self._now()
            )
        )

    async def counts(self, *, tenant_id: str | None) -> list[LaneCounts]:
        if not is_storable(tenant_id or ""):
            return []

        async def count(timed: Stopwatch) -> list[LaneCounts]:
            def ask(connection: sqlite3.Connection) -> list[LaneCounts]:
                with timed:
                    return counts.counts(connection, tenant_id, self._now())

            return await self._parts.readers.run(ask)

        return await self._parts.counts.get(tenant_id, count)

    async def ahead(
        self, job_id: UUID, job_types: Collection[str], *, tenant_id: str | None, limit: int
    ) -> dict[int, int] | None:
        return await self._parts.readers.run(
            lambda connection: ahead(
                connection,
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
        return await self._parts.searchers.run(
            lambda connection: read_groups(
                connection,
                queue,
                job_type,
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
        return await self._parts.readers.run(
            lambda connection: count_waiting(connection, queue, job_type, number, at_most)
        )

    async def gates(self, names: Sequence[str]) -> list[GateState]:
        return await self._parts.readers.run(lambda connection: read_gates(connection, names))

    async def dead_counts(self, *, tenant_id: str | None) -> list[DeadCount]:
        if not is_storable(tenant_id or ""):
            return []

        async def count(timed: Stopwatch) -> list[DeadCount]:
            def ask(connection: sqlite3.Connection) -> list[DeadCount]:
                with timed:
                    return counts.dead_counts(connection, tenant_id)

            return await self._parts.searchers.run(ask)

        return await self._parts.dead_counts.get(tenant_id, count)

    async def history(self, job_id: UUID, *, tenant_id: str | None) -> list[LogEntry]:
        if not is_storable(tenant_id or ""):
            return []
        return await self._parts.readers.run(
            lambda connection: events.history(connection, job_id, tenant_id)
        )

    async def events(self, *, after: int, limit: int) -> list[LoggedEvent]:
        return await self._parts.readers.run(
            lambda connection: events.events(
                connection, after=in_64_bits(after), limit=at_most(limit)
            )
        )

    async def last_event(self) -> int:
        return await self._parts.readers.run(events.last_event)

    async def expired(self, *, limit: int, after: UUID | None = None) -> list[Run]:
        # A sweep takes the write lock only where there is something to repair.
        if await self._parts.readers.run(lambda found: leases.needs_repair(found, self._now())):
            await self._parts.lease_writer.run(lambda found: leases.repair(found, self._now()))
        return await self._parts.readers.run(
            lambda connection: leases.expired(
                connection, limit=at_most(limit), after=after, now=self._now()
            )
        )

    async def held(self, keys: Sequence[DedupeKey]) -> list[UUID | None]:
        found = await self._parts.readers.run(
            lambda connection: [
                find_holder(connection, key, self._now())
                if is_storable("".join(key.identity))
                else None
                for key in keys
            ]
        )
        return [uuid_from_bytes(held.job_id) if held else None for held in found]

    async def read_records(
        self, namespace: str, *, prefix: str = "", after: str = "", limit: int = 1000
    ) -> list[Record]:
        if not is_storable(namespace + prefix):
            return []
        start = storable_start(after)
        return await self._parts.readers.run(
            lambda connection: records.read(
                connection, namespace, prefix, start, at_most(limit), self._now()
            )
        )

    # -- moving to another store ------------------------------------------------------------------

    async def dump(self, part: Part, *, after: str = "", limit: int) -> Dumped:
        return await self._parts.readers.run(
            lambda connection: copying.dump(connection, part, after, limit)
        )

    async def load(self, items: Sequence[Stored]) -> None:
        items = tuple(items)
        refuse_running(items)
        await self._parts.writer.run(lambda connection: copying.load(connection, items))

    async def clear(self) -> None:
        await self._parts.writer.run(copying.clear)

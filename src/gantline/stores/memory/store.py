"""The memory store: the readable reference of the protocol, and the oracle of the suite.

One entry per job, one lock around every verb. Keeps nothing when the process ends.
"""

import bisect
import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from threading import RLock
from typing import Any, Final, assert_never
from uuid import UUID

import msgspec

from gantline.contract.capabilities import Capabilities
from gantline.contract.clock import Clock, later
from gantline.contract.errors import SessionNotRegistered, StoreMisconfigured
from gantline.contract.flow import GateState, GroupPage, no_such_position
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
from gantline.contract.records import SESSIONS, Record, RecordWrite
from gantline.contract.results import (
    Applied,
    ApplyResult,
    Conflict,
    DeleteResult,
    Duplicate,
    InsertResult,
    Leadership,
    NotFound,
    ProgressResult,
    Renewal,
    Stale,
)
from gantline.contract.snapshot import (
    NEW_VERSION,
    JobSnapshot,
    LogEntry,
    LoggedEvent,
    Progress,
    Run,
    RunRef,
)
from gantline.contract.status import DEAD, Event, JobStatus, Reason
from gantline.contract.store import StoreTransaction
from gantline.contract.stored import (
    Dumped,
    Marks,
    Part,
    Stored,
    StoredEntry,
    StoredJob,
    StoredKey,
    StoredRecord,
    StoredTerm,
    refuse_running,
)
from gantline.contract.submission import DedupeKey, KeyKind, NewJob
from gantline.contract.transition import (
    Guard,
    Refusal,
    StateGuard,
    Transition,
    may_be_repeat,
    refusal,
)
from gantline.runtime import monotonic, new_uuid
from gantline.stores.memory.entry import Entry, Group, Lane, Lease, group_state
from gantline.stores.memory.limits import Allowance, Gates
from gantline.stores.memory.records import Records
from gantline.stores.memory.turns import PLAIN, Heaps, Turns, Waiting
from gantline.stores.ranks import RANKS, SUSPECT_CRASHES, ranks_before

CAPABILITIES: Final = Capabilities(
    durability="none",
    ack_lost_on="the end of the process",
    caller_transaction=False,
    clock="host",
    writers="process",
    event_lag=timedelta(0),
    count_staleness=timedelta(0),
    max_payload_bytes=DEFAULT_PAYLOAD_LIMIT,
    turns=True,
    limits=True,
)

KeyIdentity = tuple[str, str, str, str]


@dataclass(slots=True)
class _HeldKey:
    job_id: UUID
    fingerprint: bytes
    until: datetime | None


_LAST_ID: Final = 1 << 128


def _before(heap: list[Waiting], position: tuple[datetime, int]) -> Iterator[Waiting]:
    """Give what a heap has before a position, without looking at much else."""
    indexes = [0]
    while indexes:
        index = indexes.pop()
        if index < len(heap) and heap[index] < position:
            yield heap[index]
            indexes += (2 * index + 1, 2 * index + 2)


class MemoryStore:
    """Keep jobs in dictionaries. Callable from several event loops of one process."""

    def __init__(self, *, clock: Clock, tokens: Callable[[], UUID] = new_uuid) -> None:
        self._clock = clock
        self._tokens = tokens
        self._lock = RLock()
        self._reset()

    def _reset(self) -> None:
        self._jobs: dict[UUID, Entry] = {}
        self._plain: dict[tuple[str, int], Heaps] = defaultdict(dict)
        """What waits without a group, by queue and rank."""
        self._turns: dict[tuple[str, int], Turns] = {}
        """Where groups wait too."""
        self._gates = Gates()
        self._expiring: dict[UUID, datetime] = {}
        """When jobs expire; those that have begun stay until the next look."""
        self._running: dict[UUID, Entry] = {}
        self._keys: dict[KeyIdentity, _HeldKey] = {}
        self._records = Records()
        self._events: list[LoggedEvent] = []
        self._last_sequence = 0

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    @property
    def channel(self) -> None:
        return None

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close; the jobs stay for others who have this object."""

    async def ping(self) -> datetime:
        return self._clock.now()

    # -- insert -----------------------------------------------------------------------------------

    async def insert(self, jobs: Sequence[NewJob]) -> list[InsertResult]:
        with self._lock:
            now = self._clock.now()
            return [self._insert(new, now) for new in jobs]

    async def insert_in(self, connection: Any, jobs: Sequence[NewJob]) -> list[InsertResult]:
        raise StoreMisconfigured(
            "A memory store has no transactions to join.",
            next_step="Submit without `connection`, or use a SQL store.",
        )

    def transaction(self) -> AbstractAsyncContextManager[StoreTransaction]:
        raise StoreMisconfigured(
            "A memory store has no transactions.", next_step="Use a SQL store."
        )

    def _insert(self, new: NewJob, now: datetime) -> InsertResult:
        refused = self._refuse_insert(new, now)
        if refused is None:
            self._store(new, now)
            return Applied(version=1)
        return refused

    def _refuse_insert(self, new: NewJob, now: datetime) -> Duplicate | Conflict | None:
        job = new.job
        if known := self._jobs.get(job.job_id):
            same = _content(NewJob(known.job, known.fingerprint)) == _content(new)
            return Duplicate(job.job_id) if same else Conflict()
        if job.external_id and (known := self._visible(job.external_id, job.tenant_id)):
            same = _content(NewJob(known.job, known.fingerprint)) == _content(new)
            return Duplicate(job.external_id, by=KeyKind.ID) if same else Conflict(by=KeyKind.ID)
        for key in new.keys:
            if held := self._held(key.identity, now):
                if held.fingerprint != key.fingerprint:
                    return Conflict(by=key.kind)
                return Duplicate(held.job_id, by=key.kind)
        return None

    def _store(self, new: NewJob, now: datetime) -> None:
        job = new.job
        run_at = max(now, job.scheduled_at) if job.scheduled_at else later(now, new.delay)
        if new.delay and not job.scheduled_at:
            job = msgspec.structs.replace(job, scheduled_at=run_at)
        entry = Entry(
            job, new.fingerprint, JobStatus.QUEUED, job.attempts_used, job.priority, run_at
        )
        self._jobs[job.job_id] = entry
        self._enqueue(entry, run_at)
        if job.expires_at is not None:
            self._expiring[job.job_id] = job.expires_at
        for key in new.keys:
            self._take(key, job.job_id, now)
        if new.logged:
            self._log(entry, entry.event_entry(Event.SUBMITTED, Reason.SUBMITTED, now))

    # -- keys -------------------------------------------------------------------------------------

    async def held(self, keys: Sequence[DedupeKey]) -> list[UUID | None]:
        with self._lock:
            now = self._clock.now()
            found = [self._held(key.identity, now) for key in keys]
            return [held.job_id if held else None for held in found]

    async def request_keys(self, job_ids: Sequence[UUID]) -> list[DedupeKey | None]:
        with self._lock:
            now = self._clock.now()
            found: dict[UUID, DedupeKey] = {}
            for kind, tenant, scope, key in self._keys:
                held = self._held((kind, tenant, scope, key), now)
                if held and kind == KeyKind.REQUEST:
                    found[held.job_id] = DedupeKey(
                        KeyKind.REQUEST, tenant, scope, key, held.fingerprint
                    )
            return [found.get(job_id) for job_id in job_ids]

    def _held(self, identity: KeyIdentity, now: datetime) -> _HeldKey | None:
        held = self._keys.get(identity)
        return held if held and (held.until is None or held.until > now) else None

    def _take(self, key: DedupeKey, job_id: UUID, now: datetime) -> None:
        until = None if key.hold is None else later(now, key.hold)
        self._keys[key.identity] = _HeldKey(job_id, key.fingerprint, until)

    # -- claim and lease --------------------------------------------------------------------------

    async def claim(
        self, session: str, claim_id: UUID, requests: Sequence[LaneRequest], *, lease: timedelta
    ) -> list[Run]:
        with self._lock:
            before = [
                entry.run(entry.lease)
                for entry in self._running.values()
                if entry.lease and entry.lease.claim_id == claim_id
            ]
            if before:
                return before
            now = self._clock.now()
            if self._records.current(SESSIONS, session, now) is None:
                raise SessionNotRegistered(session)
            runs = []
            for request in requests:
                for entry in self._take_due(request, now):
                    runs.append(self._start(entry, session, claim_id, now, lease))
                    if entry.job.job_type in request.logged:
                        self._log(entry, entry.event_entry(Event.STARTED, Reason.STARTED, now))
            return runs

    def _take_due(self, request: LaneRequest, now: datetime) -> list[Entry]:
        if not request.suspects:
            return self._take_crashed(request, 0, request.limit, now)
        for crashes in reversed(SUSPECT_CRASHES):
            limit = request.most_suspects(crashes)
            if taken := self._take_crashed(request, crashes, limit, now):
                return taken
        return []

    def _take_crashed(
        self, request: LaneRequest, crashes: int, limit: int, now: datetime
    ) -> list[Entry]:
        """Take due jobs that were in so many crashes."""
        taken: list[Entry] = []
        allowance = self._allowance(request, now)
        for rank in RANKS[crashes]:
            name = (request.queue, rank)
            if len(taken) < limit and (name in self._turns or self._plain.get(name)):
                draw = self._draw(request.queue, rank, allowance, now)
                taken += islice(draw, limit - len(taken))
                self._forget_turns(request.queue, rank)
        return taken

    def _allowance(self, request: LaneRequest, now: datetime) -> Allowance:
        return Allowance(request, self._running.values(), self._gates, now)

    def _forget_turns(self, queue: str, rank: int) -> None:
        """Where no group waits any more, plain jobs need no turns."""
        turns = self._turns.get((queue, rank))
        if turns and rank not in RANKS[0]:
            turns.remove_empty()  # they are not dealt, which would do that
        if turns and turns.only_plain:
            del self._turns[queue, rank]

    def _draw(self, queue: str, rank: int, allowance: Allowance, now: datetime) -> Iterator[Entry]:
        """Take what is due and allowed: groups in turns, suspects by time due and id."""
        turns = self._turns.get((queue, rank))
        if turns is None:
            plain = (PLAIN, self._plain[queue, rank])
            return self._draw_of((plain,), rank, allowance, now)
        if rank in RANKS[0]:
            return turns.deal(lambda *group: self._draw_of((group,), rank, allowance, now))
        return self._draw_of(turns, rank, allowance, now)

    def _draw_of(
        self, groups: Iterable[tuple[Group, Heaps]], rank: int, allowance: Allowance, now: datetime
    ) -> Iterator[Entry]:
        """Take what is due and allowed of these groups, by time due and id."""
        waiting: list[list[Waiting]] | None = None
        while True:
            if waiting is None or allowance.is_bounded:
                waiting = [
                    heaps[kind]
                    for group, heaps in groups
                    for kind in allowance.types(group)
                    if kind in heaps
                ]
            entry = self._pop_first_due(waiting, rank, now)
            if entry is None:
                return
            allowance.use(entry)
            yield entry

    def _pop_first_due(self, heaps: list[list[Waiting]], rank: int, now: datetime) -> Entry | None:
        for heap in heaps:
            while heap and not self._is_current(heap[0], rank):
                heapq.heappop(heap)
        due = [heap for heap in heaps if heap and heap[0][0] <= now]
        if not due:
            return None
        *_, job_id = heapq.heappop(min(due, key=lambda heap: heap[0]))
        return self._jobs[job_id]

    def _is_current(self, waiting: Waiting, rank: int) -> bool:
        run_at, _, version, job_id = waiting
        entry = self._jobs.get(job_id)
        return (
            entry is not None
            and entry.status is JobStatus.QUEUED
            and (entry.run_at, entry.version, entry.rank) == (run_at, version, rank)
        )

    def _enqueue(self, entry: Entry, run_at: datetime) -> None:
        entry.run_at = run_at
        job = entry.job
        heap = self._heaps_of(job.queue, entry.rank, entry.group).setdefault(job.job_type, [])
        heapq.heappush(heap, (run_at, job.job_id.int, entry.version, job.job_id))

    def _heaps_of(self, queue: str, rank: int, group: Group) -> Heaps:
        plain = self._plain[queue, rank]
        if group == PLAIN:
            return plain
        if (queue, rank) not in self._turns:
            self._turns[queue, rank] = Turns(plain)
        return self._turns[queue, rank].heaps(group)

    def _start(
        self, entry: Entry, session: str, claim_id: UUID, now: datetime, lease: timedelta
    ) -> Run:
        waited = (now - entry.run_at).total_seconds() if entry.run_at else None
        entry.status = JobStatus.RUNNING
        entry.run_at = None
        entry.version += 1
        entry.attempt += 1
        entry.fence += 1
        entry.lease = Lease(
            self._tokens(),
            claim_id,
            session,
            started_at=now,
            until=later(now, lease),
            length=lease,
            waited_seconds=waited,
        )
        self._running[entry.job.job_id] = entry
        return entry.run(entry.lease)

    def _lease_of(self, run: RunRef) -> Lease | None:
        """The lease of a run, if the run is still current."""
        entry = self._running.get(run.job_id)
        lease = entry.lease if entry else None
        return lease if lease and lease.token == run.token else None

    async def renew(self, session: str, runs: Sequence[RunRef], *, lease: timedelta) -> Renewal:
        with self._lock:
            until = later(self._clock.now(), lease)
            lost, stopping = set(), set()
            for run in runs:
                held = self._lease_of(run)
                if held is None or held.session != session:
                    lost.add(run.token)
                    continue
                held.until, held.length = until, lease
                if held.cancel_requested:
                    stopping.add(run.token)
            return Renewal(frozenset(lost), frozenset(stopping))

    async def progress(self, updates: Sequence[Progress]) -> list[ProgressResult]:
        with self._lock:
            return [self._progress(update) for update in updates]

    def _progress(self, update: Progress) -> ProgressResult:
        entry = self._jobs.get(update.run.job_id)
        if entry is None:
            return NotFound()
        lease = self._lease_of(update.run)
        if lease is None:
            return Stale()
        is_new = (lease.percent, lease.phase) != (update.percent, update.phase)
        lease.percent, lease.phase = update.percent, update.phase
        entry.version += 1
        if update.logged and is_new:
            now = self._clock.now()
            self._log(entry, entry.event_entry(Event.PROGRESSED, Reason.PROGRESSED, now))
        return Applied(entry.version)

    async def expired(self, *, limit: int, after: UUID | None = None) -> list[Run]:
        with self._lock:
            now = self._clock.now()
            self._shorten_leases(now)
            late = [
                entry.run(entry.lease)
                for job_id, entry in sorted(self._running.items())
                if entry.lease and entry.lease.until <= now and (after is None or job_id > after)
            ]
            return late[: at_most(limit)]

    async def past_expiry(self, *, limit: int) -> list[UUID]:
        with self._lock:
            now = self._clock.now()
            self._expiring = {
                job_id: at for job_id, at in self._expiring.items() if self._is_new(job_id)
            }
            late = sorted((at, job_id) for job_id, at in self._expiring.items() if at <= now)
            return [job_id for _, job_id in late[: at_most(limit)]]

    def _is_new(self, job_id: UUID) -> bool:
        entry = self._jobs.get(job_id)
        if entry is None:
            return False
        return entry.status is JobStatus.QUEUED and entry.version == NEW_VERSION

    def _shorten_leases(self, now: datetime) -> None:
        for entry in self._running.values():
            if lease := entry.lease:
                lease.until = min(lease.until, later(now, lease.length))

    async def expire_session(self, session: str) -> int:
        with self._lock:
            now = self._clock.now()
            leases = [entry.lease for entry in self._running.values() if entry.lease]
            held = [lease for lease in leases if lease.session == session]
            for lease in held:
                lease.until = now
            return len(held)

    # -- apply ------------------------------------------------------------------------------------

    async def apply(self, transitions: Sequence[Transition]) -> list[ApplyResult]:
        with self._lock:
            now = self._clock.now()
            return [self._apply(transition, now) for transition in transitions]

    def _apply(self, transition: Transition, now: datetime) -> ApplyResult:
        entry = self._jobs.get(transition.job_id)
        if entry is None:
            return NotFound()
        refused = self._refuse_guard(transition.guard, entry, now)
        if may_be_repeat(transition.guard, refused) and entry.has_applied(transition):
            return Applied(entry.version)
        if refused:
            return refused
        if conflict := self._refuse_attachments(transition, entry, now):
            return conflict
        self._write(transition, entry, now)
        return Applied(entry.version)

    def _refuse_guard(self, guard: Guard, entry: Entry, now: datetime) -> Refusal | None:
        lease = entry.lease
        return refusal(
            guard,
            tenant_id=entry.job.tenant_id,
            status=entry.status,
            version=entry.version,
            token=lease.token if lease else None,
            has_expired=lease is not None and lease.until <= now,
            cancel_requested=lease is not None and lease.cancel_requested,
        )

    def _refuse_attachments(
        self, transition: Transition, entry: Entry, now: datetime
    ) -> Conflict | None:
        """Check all that a transition carries before any of it is written."""
        if transition.event is Event.REDRIVEN and (key := entry.key):
            held = self._held(key.identity, now)
            if held and held.job_id != entry.job.job_id:
                return Conflict(by=KeyKind.JOB)
        for write in transition.records:
            if not self._records.allows(write, now):
                return Conflict(by=f"{write.namespace}/{write.key}")
        return self._refuse_follow_ups(transition.follow_ups, now)

    def _refuse_follow_ups(self, jobs: Sequence[NewJob], now: datetime) -> Conflict | None:
        """Check follow-ups for conflicts with what is stored, and with each other."""
        names: dict[UUID | KeyIdentity, object] = {}
        for new in jobs:
            refused = self._refuse_insert(new, now)
            if isinstance(refused, Conflict):
                return refused
            if names.setdefault(new.job.job_id, _content(new)) != _content(new):
                return Conflict()
            for key in new.keys if refused is None else ():
                if names.setdefault(key.identity, key.fingerprint) != key.fingerprint:
                    return Conflict(by=key.kind)
        return None

    def _write(self, transition: Transition, entry: Entry, now: datetime) -> None:
        entry.version += 1
        if transition.sets_counters:
            entry.attempt, entry.crashes = transition.attempt, transition.crashes
            entry.snoozes, entry.priority = transition.snoozes, transition.priority
        entry.last = entry.log_entry(transition, now)
        self._log(entry, entry.last, transition.change_id)
        if transition.event is Event.CANCEL_REQUESTED and entry.lease:
            entry.lease.cancel_requested = True
            return
        for new in transition.follow_ups:
            self._insert(new, now)
        self._move(transition, entry, now)
        for key in transition.once:
            self._take(key, entry.job.job_id, now)
        for write in transition.records:
            self._records.write(write, now)
        if transition.closes:
            self._gates.close(transition.closes, later(now, transition.delay))

    def _move(self, transition: Transition, entry: Entry, now: datetime) -> None:
        entry.status = transition.to
        entry.lease = None
        self._running.pop(entry.job.job_id, None)
        if entry.status is JobStatus.QUEUED:
            self._enqueue(entry, later(now, transition.delay))
        else:
            entry.run_at = None
        if key := entry.key:
            self._keep_or_free(key, transition, now)

    def _keep_or_free(self, key: DedupeKey, transition: Transition, now: datetime) -> None:
        held = self._keys.get(key.identity)
        if transition.event is Event.REDRIVEN:
            self._take(key, transition.job_id, now)
        elif held and held.job_id == transition.job_id:
            if transition.to is JobStatus.COMPLETED:
                held.until = later(now, transition.hold_key)
            elif transition.to.is_terminal:
                del self._keys[key.identity]

    def _log(self, entry: Entry, row: LogEntry, change_id: UUID | None = None) -> None:
        self._last_sequence += 1
        entry.log.append(StoredEntry(self._last_sequence, change_id, row))
        job = entry.job
        self._events.append(LoggedEvent(self._last_sequence, job.tenant_id, job.job_type, row))

    # -- reading ----------------------------------------------------------------------------------

    async def get(
        self, job_ids: Sequence[UUID], *, tenant_id: str | None
    ) -> list[JobSnapshot | None]:
        with self._lock:
            entries = [self._visible(job_id, tenant_id) for job_id in job_ids]
            return [entry.snapshot() if entry else None for entry in entries]

    def _visible(self, job_id: UUID, tenant_id: str | None) -> Entry | None:
        entry = self._jobs.get(job_id)
        return entry if entry and tenant_id in (None, entry.job.tenant_id) else None

    async def find(self, job_filter: JobFilter, *, limit: int, after: Cursor | None = None) -> Page:
        limit = at_most(limit)
        with self._lock:
            now = self._clock.now()
            before = (after.created_at, after.job_id) if after else None
            found = [
                entry
                for entry in self._jobs.values()
                if (before is None or entry.position < before) and entry.matches(job_filter, now)
            ]
            found = heapq.nlargest(limit + 1, found, key=lambda entry: entry.position)
            items = tuple(entry.snapshot() for entry in found[:limit])
            return Page(
                items, Cursor(*found[limit - 1].position) if len(found) > limit > 0 else None
            )

    async def counts(self, *, tenant_id: str | None) -> list[LaneCounts]:
        with self._lock:
            now = self._clock.now()
            lanes: dict[Lane, LaneCounts] = {}
            for entry in self._jobs.values():
                if tenant_id not in (None, entry.job.tenant_id):
                    continue
                queue, kind = entry.lane
                counts = lanes.setdefault(entry.lane, LaneCounts(queue=queue, job_type=kind))
                name = entry.status.value.lower()
                setattr(counts, name, getattr(counts, name) + 1)
                if entry.run_at and entry.run_at > now:
                    counts.scheduled += 1
                elif entry.run_at:
                    counts.oldest_due_at = min(entry.run_at, counts.oldest_due_at or entry.run_at)
            return [lanes[lane] for lane in sorted(lanes)]

    async def ahead(
        self, job_id: UUID, job_types: Collection[str], *, tenant_id: str | None, limit: int
    ) -> dict[int, int] | None:
        with self._lock:
            entry = self._visible(job_id, tenant_id)
            if entry is None or entry.run_at is None:
                return None
            before = self._waiting_before(entry, entry.run_at, frozenset(job_types))
            looked_at = [self._jobs[one] for one in islice(before, at_most(limit))]
            return Counter(
                one.priority for one in looked_at if tenant_id in (None, one.job.tenant_id)
            )

    def _waiting_before(
        self, entry: Entry, run_at: datetime, job_types: Collection[str]
    ) -> Iterator[UUID]:
        queue, own_rank = entry.job.queue, entry.rank
        everything_due = (self._clock.now(), _LAST_ID)
        for rank in ranks_before(own_rank):
            for _, heaps in self._groups_in(queue, rank):
                yield from self._before(heaps, rank, job_types, everything_due)
        position = min((run_at, entry.job.job_id.int), everything_due)
        groups = dict(self._groups_in(queue, own_rank))
        if own_rank not in RANKS[0]:  # suspects take no turns
            for heaps in groups.values():
                yield from self._before(heaps, own_rank, job_types, position)
            return
        own = 0
        for job_id in self._before(groups.pop(entry.group), own_rank, job_types, position):
            own += 1
            yield job_id
        for heaps in groups.values():
            yield from islice(self._before(heaps, own_rank, job_types, everything_due), own)

    def _groups_in(self, queue: str, rank: int) -> Iterable[tuple[Group, Heaps]]:
        return self._turns.get((queue, rank)) or ((PLAIN, self._plain[queue, rank]),)

    def _before(
        self, heaps: Heaps, rank: int, job_types: Collection[str], position: tuple[datetime, int]
    ) -> Iterator[UUID]:
        for kind in job_types:
            for waiting in _before(heaps.get(kind, []), position):
                if self._is_current(waiting, rank):
                    yield waiting[-1]

    async def groups(
        self, queue: str, job_type: str, *, tenant_id: str | None, limit: int, after: str = ""
    ) -> GroupPage:
        limit = at_most(limit)
        with self._lock:
            now = self._clock.now()
            begun = _read_group(after) if after else ("", "")
            found: dict[Group, list[Entry]] = defaultdict(list)
            for entry in self._active(queue, job_type):
                if tenant_id in (None, entry.job.tenant_id) and entry.group > begun:
                    found[entry.group].append(entry)
            page = sorted(found)[:limit]
            items = tuple(group_state(found[group], now) for group in page)
            more = msgspec.json.encode(page[-1]).decode() if 0 < limit < len(found) else ""
            return GroupPage(items, more)

    def _active(self, queue: str, job_type: str) -> Iterator[Entry]:
        """The Queued and Running jobs of a lane."""
        for entry in self._jobs.values():
            if entry.lane == (queue, job_type) and not entry.status.is_terminal:
                yield entry

    async def waiting(
        self, queue: str, job_type: str, *, tenant_id: str, group: str, at_most: int
    ) -> int:
        with self._lock:
            found = (
                entry
                for entry in self._active(queue, job_type)
                if entry.group == (tenant_id, group) and entry.status is JobStatus.QUEUED
            )
            return sum(1 for _ in islice(found, max(0, at_most)))

    async def gates(self, names: Sequence[str]) -> list[GateState]:
        with self._lock:
            return [self._gates.state(name) for name in names]

    async def dead_counts(self, *, tenant_id: str | None) -> list[DeadCount]:
        with self._lock:
            ends: dict[tuple[str, JobStatus, str], list[datetime]] = defaultdict(list)
            for entry in self._jobs.values():
                if entry.status in DEAD and tenant_id in (None, entry.job.tenant_id):
                    name = (entry.job.job_type, entry.status, entry.last_reason)
                    ends[name].append(entry.ended_at)
            return [
                DeadCount(
                    job_type=kind, status=status, reason=reason, jobs=len(at), newest_at=max(at)
                )
                for (kind, status, reason), at in sorted(ends.items())
            ]

    async def history(self, job_id: UUID, *, tenant_id: str | None) -> list[LogEntry]:
        with self._lock:
            entry = self._visible(job_id, tenant_id)
            return [row.entry for row in entry.log] if entry else []

    async def events(self, *, after: int, limit: int) -> list[LoggedEvent]:
        with self._lock:
            start = bisect.bisect_right(self._events, after, key=lambda event: event.sequence)
            return self._events[start : start + at_most(limit)]

    async def last_event(self) -> int:
        return self._last_sequence

    async def sequence(self, *, limit: int) -> int:
        return 0  # rows are numbered when they are written, under the lock

    # -- removing ---------------------------------------------------------------------------------

    async def delete(self, jobs: Sequence[tuple[UUID, StateGuard]]) -> list[DeleteResult]:
        with self._lock:
            return [self._delete(job_id, guard) for job_id, guard in jobs]

    def _delete(self, job_id: UUID, guard: StateGuard) -> DeleteResult:
        entry = self._visible(job_id, guard.tenant_id)
        if entry is None:
            return NotFound()
        if not entry.status.is_terminal or self._refuse_guard(guard, entry, self._clock.now()):
            return Stale()
        if key := entry.key:
            held = self._keys.get(key.identity)
            if held and held.job_id == job_id:
                del self._keys[key.identity]
        self._remove({job_id})
        return Applied(entry.version)

    def _remove(self, job_ids: set[UUID]) -> None:
        for job_id in job_ids:
            if key := self._jobs.pop(job_id).external_key:
                self._keys.pop(key.identity, None)
        self._events = [event for event in self._events if event.entry.job_id not in job_ids]

    async def prune(
        self, rules: Sequence[PruneRule], *, limit: int, keep_events_after: int | None = None
    ) -> Pruned:
        limit = at_most(limit)
        with self._lock:
            start, now = monotonic(), self._clock.now()
            unread = {
                event.entry.job_id
                for event in self._events
                if keep_events_after is not None and event.sequence > keep_events_after
            }
            old: list[UUID] = []
            for rule in rules:
                ended = [
                    (entry.ended_at, entry.job.job_id)
                    for entry in self._jobs.values()
                    if entry.status is rule.status
                    and entry.status.is_terminal
                    and entry.ended_at < rule.ended_before
                    and entry.job.job_id not in unread
                ]
                old += [job_id for _, job_id in sorted(ended)][: max(0, limit - len(old))]
            self._remove(set(old))
            keys = [key for key, held in self._keys.items() if held.until and held.until <= now]
            for key in keys[:limit]:
                del self._keys[key]
            records = self._records.prune(limit, now)
            self._gates.prune(now)
            overdue, busy = self._overdue(rules), monotonic() - start
            return Pruned(len(old), len(keys[:limit]), records, overdue, busy)

    def _overdue(self, rules: Sequence[PruneRule]) -> timedelta:
        late = [
            rule.ended_before - entry.ended_at
            for rule in rules
            for entry in self._jobs.values()
            if entry.status is rule.status and entry.status.is_terminal
        ]
        return max([timedelta(0), *late])

    # -- leadership and records -------------------------------------------------------------------

    async def lead(self, role: str, owner: str, *, lease: timedelta) -> Leadership | None:
        with self._lock:
            return self._records.lead(role, owner, lease, self._clock.now())

    async def resign(self, role: str, owner: str, term: int) -> None:
        with self._lock:
            self._records.resign(role, owner, term, self._clock.now())

    async def read_records(
        self, namespace: str, *, prefix: str = "", after: str = "", limit: int = 1000
    ) -> list[Record]:
        with self._lock:
            found = self._records.read(namespace, prefix, after, self._clock.now())
            return found[: at_most(limit)]

    async def write_records(self, writes: Sequence[RecordWrite]) -> list[Applied | Conflict]:
        with self._lock:
            return self._records.write_checked(writes, self._clock.now())

    # -- moving to another store ------------------------------------------------------------------

    async def dump(self, part: Part, *, after: str = "", limit: int) -> Dumped:
        with self._lock:
            # A position is the number of items so far: nobody writes meanwhile.
            items, start = self._stored(part), int(after or 0)
            page = tuple(items[start : start + limit])
            end = start + len(page)
            return Dumped(page, str(end) if end < len(items) else "")

    def _stored(self, part: Part) -> Sequence[Stored]:
        match part:
            case Part.JOBS:
                return [entry.stored() for _, entry in sorted(self._jobs.items())]
            case Part.KEYS:
                return [_stored_key(*item) for item in self._keys.items()]
            case Part.RECORDS:
                return [StoredRecord(record) for record in self._records.records.values()]
            case Part.TERMS:
                leaders = self._records.leaders.items()
                return [StoredTerm(role, held.term) for role, (_, held) in leaders]
            case Part.MARKS:
                return [Marks(self._last_sequence, self._records.last_version)]
            case _:
                assert_never(part)

    async def load(self, items: Sequence[Stored]) -> None:
        refuse_running(items)
        with self._lock:
            for item in items:
                self._load(item)
            self._events.sort(key=lambda event: event.sequence)

    def _load(self, item: Stored) -> None:
        side = self._records
        match item:
            case StoredJob():
                if item.job.job_id not in self._jobs:
                    self._load_job(item)
            case StoredKey():
                name = (item.kind, item.tenant_id, item.scope, item.key)
                held = _HeldKey(item.job_id, item.fingerprint, item.until)
                self._keys.setdefault(name, held)
            case StoredRecord(record):
                side.records.setdefault((record.namespace, record.key), record)
            case StoredTerm(role, term):
                side.leaders.setdefault(role, ("", Leadership(term, self._clock.now())))
            case Marks(last_event, last_record):
                self._last_sequence = max(self._last_sequence, last_event)
                side.last_version = max(side.last_version, last_record)
            case _:
                assert_never(item)

    def _load_job(self, stored: StoredJob) -> None:
        entry, job = Entry.from_stored(stored), stored.job
        self._jobs[job.job_id] = entry
        if entry.run_at is not None:
            self._enqueue(entry, entry.run_at)
        if job.expires_at is not None:
            self._expiring[job.job_id] = job.expires_at
        self._events += [
            LoggedEvent(row.sequence, job.tenant_id, job.job_type, row.entry) for row in stored.log
        ]

    async def clear(self) -> None:
        with self._lock:
            self._reset()


def _read_group(position: str) -> Group:
    try:
        tenant_id, group = msgspec.json.decode(position, type=Group)
    except (msgspec.DecodeError, ValueError):
        raise no_such_position() from None
    return tenant_id, group


def _stored_key(name: KeyIdentity, held: _HeldKey) -> StoredKey:
    kind, tenant_id, scope, key = name
    return StoredKey(
        kind=KeyKind(kind),
        tenant_id=tenant_id,
        scope=scope,
        key=key,
        job_id=held.job_id,
        fingerprint=held.fingerprint,
        until=held.until,
    )


def _content(new: NewJob) -> tuple[str, str, bytes]:
    """What makes two jobs with one id the same job."""
    return (new.job.tenant_id, new.job.job_type, new.fingerprint)

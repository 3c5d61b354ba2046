"""Stores that break one promise each. The conformance suite must catch every one of them.

Each is the memory store with one thing taken out; its docstring says what goes wrong in the field.
"""

import asyncio
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from uuid import UUID, uuid4

import msgspec

from gantline.contract.query import Cursor, JobFilter, LaneRequest, Page, Pruned, PruneRule
from gantline.contract.records import SESSIONS, RecordWrite
from gantline.contract.results import (
    Applied,
    ApplyResult,
    Conflict,
    DeleteResult,
    Duplicate,
    Leadership,
    ProgressResult,
    Renewal,
)
from gantline.contract.snapshot import LogEntry, Progress, Run, RunRef
from gantline.contract.status import Event, JobStatus, State
from gantline.contract.stored import Dumped, Marks, Part, Stored, StoredEntry, StoredJob, StoredKey
from gantline.contract.submission import DedupeKey, NewJob
from gantline.contract.transition import Guard, Refusal, RunGuard, StateGuard, Transition
from gantline.stores.memory import MemoryStore
from gantline.stores.memory.entry import Entry, Lease
from tests.broken_flow import BROKEN_FLOW


class FenceDropped(MemoryStore):
    """A stale worker ends a run that is no longer its own."""

    def _refuse_guard(self, guard: Guard, entry: Entry, now: datetime) -> Refusal | None:
        if isinstance(guard, RunGuard) and entry.lease:
            guard = msgspec.structs.replace(guard, token=entry.lease.token)
        return super()._refuse_guard(guard, entry, now)


class StateRecheckDropped(MemoryStore):
    """An operator's write lands whatever has become of the job since it was read."""

    def _refuse_guard(self, guard: Guard, entry: Entry, now: datetime) -> Refusal | None:
        return super()._refuse_guard(guard, entry, now) if isinstance(guard, RunGuard) else None


class VersionRecheckDropped(MemoryStore):
    """A job that left its status and came back is taken for the one that was read."""

    def _refuse_guard(self, guard: Guard, entry: Entry, now: datetime) -> Refusal | None:
        if isinstance(guard, StateGuard):
            guard = msgspec.structs.replace(guard, version=None)
        return super()._refuse_guard(guard, entry, now)


class TenantRecheckDropped(MemoryStore):
    """An operator's write lands on another tenant's job that has taken the id meanwhile."""

    def _refuse_guard(self, guard: Guard, entry: Entry, now: datetime) -> Refusal | None:
        if isinstance(guard, StateGuard):
            guard = msgspec.structs.replace(guard, tenant_id=entry.job.tenant_id)
        return super()._refuse_guard(guard, entry, now)


class DeletesByIdAlone(MemoryStore):
    """An operator deletes another tenant's job that has taken the id meanwhile."""

    def _delete(self, job_id: UUID, guard: StateGuard) -> DeleteResult:
        if entry := self._jobs.get(job_id):
            guard = msgspec.structs.replace(guard, tenant_id=entry.job.tenant_id)
        return super()._delete(job_id, guard)


class VersionsReused(MemoryStore):
    """A record that is made anew looks like the one that was deleted."""

    async def write_records(self, writes: Sequence[RecordWrite]) -> list[Applied | Conflict]:
        versions = [record.version for record in self._records.records.values()]
        self._records.last_version = max(versions, default=0)
        return await super().write_records(writes)


class ExpiryRecheckDropped(MemoryStore):
    """The reaper takes a run away though its worker renewed it meanwhile."""

    def _refuse_guard(self, guard: Guard, entry: Entry, now: datetime) -> Refusal | None:
        if isinstance(guard, RunGuard):
            guard = msgspec.structs.replace(guard, only_expired=False)
        return super()._refuse_guard(guard, entry, now)


class CancelRecheckDropped(MemoryStore):
    """A cancel that arrives just before a retry is forgotten."""

    def _refuse_guard(self, guard: Guard, entry: Entry, now: datetime) -> Refusal | None:
        if isinstance(guard, RunGuard):
            guard = msgspec.structs.replace(guard, unless_cancelled=False)
        return super()._refuse_guard(guard, entry, now)


class LeaseUnfenced(MemoryStore):
    """A zombie renews and reports progress on its successor's run."""

    def _lease_of(self, run: RunRef) -> Lease | None:
        entry = self._running.get(run.job_id)
        return entry.lease if entry else None


class RenewsByTokenAlone(MemoryStore):
    """A renewal by a session that does not own the run is accepted."""

    async def renew(self, session: str, runs: Sequence[RunRef], *, lease: timedelta) -> Renewal:
        owners = {run.token: held.session for run in runs if (held := self._lease_of(run))}
        session = next(iter(owners.values()), session)
        return await super().renew(session, runs, lease=lease)


class ClaimForgetsItsId(MemoryStore):
    """A claim whose answer was lost is made again: the first runs wait for their lease to end."""

    async def claim(
        self, session: str, claim_id: UUID, requests: Sequence[LaneRequest], *, lease: timedelta
    ) -> list[Run]:
        return await super().claim(session, uuid4(), requests, lease=lease)


class ClaimsForAnybody(MemoryStore):
    """It is not asked whether the session is registered."""

    async def claim(
        self, session: str, claim_id: UUID, requests: Sequence[LaneRequest], *, lease: timedelta
    ) -> list[Run]:
        await self.write_records([RecordWrite(SESSIONS, session, b"{}")])
        return await super().claim(session, claim_id, requests, lease=lease)


class ClaimNotAtomic(MemoryStore):
    """Two workers look, then both take the same job."""

    async def claim(
        self, session: str, claim_id: UUID, requests: Sequence[LaneRequest], *, lease: timedelta
    ) -> list[Run]:
        now = self._clock.now()
        due = [entry for request in requests for entry in self._take_due(request, now)]
        for entry in due:
            self._enqueue(entry, entry.run_at or now)  # put back: only looked at
        await asyncio.sleep(0)
        return [self._start(entry, session, claim_id, now, lease) for entry in due]


class ClaimsTheFuture(MemoryStore):
    """Jobs run before they are due."""

    def _take_due(self, request: LaneRequest, now: datetime) -> list[Entry]:
        return super()._take_due(request, now + timedelta(days=1))


class PriorityIgnored(MemoryStore):
    """First come, first served, whatever was asked."""

    def _enqueue(self, entry: Entry, run_at: datetime) -> None:
        entry.priority = 2
        super()._enqueue(entry, run_at)


class TypeLimitsIgnored(MemoryStore):
    """More is claimed of a type than runs, so the rest waits under a lease that runs out."""

    def _take_due(self, request: LaneRequest, now: datetime) -> list[Entry]:
        return super()._take_due(msgspec.structs.replace(request, at_most=()), now)


class TypeLimitsPerPriority(MemoryStore):
    """A limit of a type is counted for each priority alone."""

    def _take_due(self, request: LaneRequest, now: datetime) -> list[Entry]:
        if request.suspects:
            return super()._take_due(request, now)
        taken: list[Entry] = []
        for priority in range(4):
            left = msgspec.structs.replace(request, limit=request.limit - len(taken))
            found = super()._take_due(left, now)
            taken += [entry for entry in found if entry.priority == priority]
            for entry in found:
                if entry.priority != priority:
                    self._enqueue(entry, entry.run_at or now)
        return taken


class SuspectsLeftInLine(MemoryStore):
    """A job that kills its worker is claimed beside innocent ones, again and again."""

    def _take_due(self, request: LaneRequest, now: datetime) -> list[Entry]:
        if request.suspects:
            return super()._take_due(request, now)
        suspects = super()._take_due(msgspec.structs.replace(request, suspects=(1000,)), now)
        left = msgspec.structs.replace(request, limit=request.limit - len(suspects))
        return suspects + super()._take_due(left, now)


class SuspectsOfAllCrashesMixed(MemoryStore):
    """A killer found by halves is put back among those that were in fewer crashes."""

    def _take_due(self, request: LaneRequest, now: datetime) -> list[Entry]:
        taken = super()._take_due(request, now)
        while request.suspects and len(taken) < request.limit:
            left = msgspec.structs.replace(request, limit=request.limit - len(taken))
            more = super()._take_due(left, now)
            if not more:
                break
            taken += more
        return taken


class SuspectsOfFewestCrashesFirst(MemoryStore):
    """The killer is looked for among the wrong jobs first."""

    def _take_due(self, request: LaneRequest, now: datetime) -> list[Entry]:
        for crashes in range(2, 10):
            limit = request.most_suspects(crashes) if request.suspects else 0
            if taken := self._take_crashed(request, crashes, limit, now):
                return taken
        return [] if request.suspects else super()._take_due(request, now)


class SuspectsShownByRank(MemoryStore):
    """Where a suspect stands in its lane is taken for its priority."""

    def _start(
        self, entry: Entry, session: str, claim_id: UUID, now: datetime, lease: timedelta
    ) -> Run:
        entry.priority = entry.rank
        return super()._start(entry, session, claim_id, now, lease)


class FenceFollowsAttempt(MemoryStore):
    """The fence goes down with the attempt, so an old one is handed out again."""

    def _start(
        self, entry: Entry, session: str, claim_id: UUID, now: datetime, lease: timedelta
    ) -> Run:
        entry.fence = entry.attempt
        return super()._start(entry, session, claim_id, now, lease)


class TokensReused(MemoryStore):
    """A run token that follows from job and session: the next run has the same."""

    def _start(
        self, entry: Entry, session: str, claim_id: UUID, now: datetime, lease: timedelta
    ) -> Run:
        run = super()._start(entry, session, claim_id, now, lease)
        assert entry.lease is not None
        entry.lease.token = UUID(int=(entry.job.job_id.int ^ hash(session)) % 2**128)
        return msgspec.structs.replace(run, token=entry.lease.token)


class ApplyForgetsItsToken(MemoryStore):
    """A completion whose answer was lost looks like a lost run."""

    def _write(self, transition: Transition, entry: Entry, now: datetime) -> None:
        super()._write(transition, entry, now)
        entry.log = [StoredEntry(row.sequence, None, row.entry) for row in entry.log]


class ApplyTrustsTheToken(MemoryStore):
    """Any write of an ended run is told that it succeeded."""

    def _apply(self, transition: Transition, now: datetime) -> ApplyResult:
        entry = self._jobs.get(transition.job_id)
        if entry and any(row.change_id == transition.change_id for row in entry.log):
            return Applied(entry.version)
        return super()._apply(transition, now)


class CountersKept(MemoryStore):
    """A snooze, a shutdown or a crash costs an attempt."""

    def _write(self, transition: Transition, entry: Entry, now: datetime) -> None:
        attempt = max(entry.attempt, transition.attempt)
        super()._write(msgspec.structs.replace(transition, attempt=attempt), entry, now)


class FollowUpsFirst(MemoryStore):
    """Follow-ups are written before it is known whether the completion is."""

    def _apply(self, transition: Transition, now: datetime) -> ApplyResult:
        for new in transition.follow_ups:
            self._insert(new, now)
        return super()._apply(transition, now)


class FollowUpsForgotten(MemoryStore):
    """The job completes, and what should come after it is lost."""

    def _write(self, transition: Transition, entry: Entry, now: datetime) -> None:
        super()._write(msgspec.structs.replace(transition, follow_ups=()), entry, now)


class EmittedForgotten(MemoryStore):
    """The job completes, and what it has emitted is lost."""

    def _write(self, transition: Transition, entry: Entry, now: datetime) -> None:
        super()._write(msgspec.structs.replace(transition, emitted=None), entry, now)


class KeyFreedByAnyone(MemoryStore):
    """Removing an old job frees the key of the newer one that has it now."""

    def _delete(self, job_id: UUID, guard: StateGuard) -> DeleteResult:
        entry = self._jobs.get(job_id)
        if entry and (key := entry.key):
            self._keys.pop(key.identity, None)
        return super()._delete(job_id, guard)


class KeyNeverFreed(MemoryStore):
    """A failed job blocks its key for ever."""

    def _keep_or_free(self, key: DedupeKey, transition: Transition, now: datetime) -> None:
        if transition.to not in (JobStatus.FAILED, JobStatus.POISONED, JobStatus.CANCELLED):
            super()._keep_or_free(key, transition, now)


class KeyDiesWithItsJob(MemoryStore):
    """The same request right after the completion runs the work again."""

    def _keep_or_free(self, key: DedupeKey, transition: Transition, now: datetime) -> None:
        transition = msgspec.structs.replace(transition, hold_key=timedelta(0))
        super()._keep_or_free(key, transition, now)


class KeyNotRetaken(MemoryStore):
    """A redriven job runs beside a newer one of the same key."""

    def _keep_or_free(self, key: DedupeKey, transition: Transition, now: datetime) -> None:
        if transition.event is not Event.REDRIVEN:
            super()._keep_or_free(key, transition, now)


class FingerprintIgnored(MemoryStore):
    """Another payload under a used key is silently taken for a repeat."""

    def _refuse_insert(self, new: NewJob, now: datetime) -> Duplicate | Conflict | None:
        refused = super()._refuse_insert(new, now)
        if isinstance(refused, Conflict) and (key := new.job_key):
            held = self._held(key.identity, now)
            return Duplicate(held.job_id, by=key.kind) if held else refused
        return refused


class TenantForgotten(MemoryStore):
    """Whoever knows an id can read the job."""

    def _visible(self, job_id: UUID, tenant_id: str | None) -> Entry | None:
        return self._jobs.get(job_id)


class ListsWhatIsHidden(MemoryStore):
    """Lists show jobs of others, and those of nobody."""

    async def find(self, job_filter: JobFilter, *, limit: int, after: Cursor | None = None) -> Page:
        job_filter = msgspec.structs.replace(job_filter, visible_to=None)
        return await super().find(job_filter, limit=limit, after=after)


class NarrowsAfterPaging(MemoryStore):
    """A page is cut first and narrowed after: pages come up short, and tell what was taken out."""

    async def find(self, job_filter: JobFilter, *, limit: int, after: Cursor | None = None) -> Page:
        seen, job_filter = (
            job_filter.visible_to,
            msgspec.structs.replace(job_filter, visible_to=None),
        )
        page = await super().find(job_filter, limit=limit, after=after)
        items = tuple(job for job in page.items if seen is None or seen.admits(job.job))
        return Page(items, page.next)


class PagesByTimeAlone(MemoryStore):
    """Jobs of the same instant are lost between two pages."""

    async def find(self, job_filter: JobFilter, *, limit: int, after: Cursor | None = None) -> Page:
        if after:
            after = Cursor(after.created_at, UUID(int=0))
        return await super().find(job_filter, limit=limit, after=after)


class StatesAreStatuses(MemoryStore):
    """A list of Scheduled jobs has all that are Queued."""

    async def find(self, job_filter: JobFilter, *, limit: int, after: Cursor | None = None) -> Page:
        stored = frozenset[State](job_filter.stored_statuses)
        job_filter = msgspec.structs.replace(job_filter, statuses=stored)
        return await super().find(job_filter, limit=limit, after=after)


class DueForgotten(MemoryStore):
    """A list of what is due before an instant has all that are Queued."""

    async def find(self, job_filter: JobFilter, *, limit: int, after: Cursor | None = None) -> Page:
        queued = job_filter.narrowed()
        if queued is not None and queued.due_before:
            job_filter = msgspec.structs.replace(queued, due_before=None)
        return await super().find(job_filter, limit=limit, after=after)


class LeaderWithoutOwner(MemoryStore):
    """A renewal by role alone: two leaders."""

    async def lead(self, role: str, owner: str, *, lease: timedelta) -> Leadership | None:
        return await super().lead(role, "anyone", lease=lease)


class ResignsForOthers(MemoryStore):
    """A leader of an older term ends the lead of its successor."""

    async def resign(self, role: str, owner: str, term: int) -> None:
        leader, held = self._records.leaders.get(role, ("", Leadership(0, self._clock.now())))
        await super().resign(role, leader, held.term)


class NumbersReused(MemoryStore):
    """After pruning, new events get numbers that a consumer has already passed."""

    def _log(self, entry: Entry, row: LogEntry, change_id: UUID | None = None) -> None:
        self._last_sequence = self._events[-1].sequence if self._events else 0
        super()._log(entry, row, change_id)


class LastNumberForgotten(MemoryStore):
    """After pruning, the end of the log lies before what a consumer has read already."""

    async def last_event(self) -> int:
        return self._events[-1].sequence if self._events else 0


class NumbersSkipped(MemoryStore):
    """A consumer cannot tell whether a number that is missing was an event."""

    def _log(self, entry: Entry, row: LogEntry, change_id: UUID | None = None) -> None:
        self._last_sequence += 1
        super()._log(entry, row, change_id)


class WayTakenForOutcome(MemoryStore):
    """A job that failed and started again looks as if nothing had gone wrong."""

    def _log(self, entry: Entry, row: LogEntry, change_id: UUID | None = None) -> None:
        entry.last = row
        super()._log(entry, row, change_id)


class RepeatedProgressLogged(MemoryStore):
    """An answer that was lost makes consumers hear of the same progress twice."""

    def _progress(self, update: Progress) -> ProgressResult:
        if update.logged and (lease := self._lease_of(update.run)):
            lease.phase = "another"
        return super()._progress(update)


class StartsUnasked(MemoryStore):
    """Types that did not ask for it pay for a row with every start."""

    async def claim(
        self, session: str, claim_id: UUID, requests: Sequence[LaneRequest], *, lease: timedelta
    ) -> list[Run]:
        requests = [msgspec.structs.replace(one, logged=one.job_types) for one in requests]
        return await super().claim(session, claim_id, requests, lease=lease)


class SubmissionsUnlogged(MemoryStore):
    """Consumers never hear of a job that follows another."""

    def _store(self, new: NewJob, now: datetime) -> None:
        super()._store(msgspec.structs.replace(new, logged=False), now)


class NumberedBeforeCommit(MemoryStore):
    """An event gets its number first and becomes visible later: a reader in between skips it."""

    async def apply(self, transitions: Sequence[Transition]) -> list[ApplyResult]:
        answers = await super().apply(transitions)
        if len(self._events) % 3 == 1:
            hidden = self._events.pop()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            self._events.append(hidden)
            self._events.sort(key=lambda event: event.sequence)
        return answers


class PrunesTheUnread(MemoryStore):
    """Retention removes events that a consumer has yet to read."""

    async def prune(
        self, rules: Sequence[PruneRule], *, limit: int, keep_events_after: int | None = None
    ) -> Pruned:
        return await super().prune(rules, limit=limit)


class OverdueHidden(MemoryStore):
    """Nobody learns that retention does not keep up."""

    async def prune(
        self, rules: Sequence[PruneRule], *, limit: int, keep_events_after: int | None = None
    ) -> Pruned:
        pruned = await super().prune(rules, limit=limit, keep_events_after=keep_events_after)
        return msgspec.structs.replace(pruned, overdue=timedelta(0))


class SweepsOnePage(MemoryStore):
    """What is behind the first page of expired leases is never rescued."""

    async def expired(self, *, limit: int, after: UUID | None = None) -> list[Run]:
        return [] if after else await super().expired(limit=limit)


class NeverExpires(MemoryStore):
    """What nobody needs any more is run all the same, hours later."""

    async def past_expiry(self, *, limit: int) -> list[UUID]:
        return []


class ExpiresWhatIsDue(MemoryStore):
    """Only what could be claimed expires: not what waits for its time."""

    async def past_expiry(self, *, limit: int) -> list[UUID]:
        late = await super().past_expiry(limit=limit)
        now = self._clock.now()
        return [job_id for job_id in late if (self._jobs[job_id].run_at or now) <= now]


class ExpiresWhatHasBegun(MemoryStore):
    """A retry is taken from a job whose time to start is long over."""

    def _is_new(self, job_id: UUID) -> bool:
        entry = self._jobs.get(job_id)
        return entry is not None and entry.status is JobStatus.QUEUED


class ExpiresWhatWasRedriven(MemoryStore):
    """An operator asks for a run, and the job is cancelled once more."""

    def _is_new(self, job_id: UUID) -> bool:
        entry = self._jobs.get(job_id)
        return entry is not None and entry.status is JobStatus.QUEUED and entry.fence == 0


class ExpiresAnyFirst(MemoryStore):
    """A bounded step may look at the newest for ever."""

    async def past_expiry(self, *, limit: int) -> list[UUID]:
        late = await super().past_expiry(limit=len(self._jobs))
        return late[::-1][: max(0, limit)]


class ExpiresTooSoon(MemoryStore):
    """A job is cancelled that could still have started."""

    async def past_expiry(self, *, limit: int) -> list[UUID]:
        late = await super().past_expiry(limit=limit)
        soon = [job_id for job_id, at in self._expiring.items() if at <= self._soon()]
        return (late + [one for one in soon if one not in late])[:limit]

    def _soon(self) -> datetime:
        return self._clock.now() + timedelta(seconds=1)


class ExpiryNotMoved(MemoryStore):
    """After a move to another store nothing expires any more."""

    def _load_job(self, stored: StoredJob) -> None:
        super()._load_job(stored)
        self._expiring.pop(stored.job.job_id, None)


class FollowUpsNeverExpire(MemoryStore):
    """What a job submits with its end waits for ever."""

    async def apply(self, transitions: Sequence[Transition]) -> list[ApplyResult]:
        before = dict(self._expiring)
        results = await super().apply(transitions)
        self._expiring = before
        return results


class ExpiryRounded(MemoryStore):
    """A job expires up to a second before its time."""

    def _store(self, new: NewJob, now: datetime) -> None:
        if (at := new.job.expires_at) is not None:
            job = msgspec.structs.replace(new.job, expires_at=at.replace(microsecond=0))
            new = msgspec.structs.replace(new, job=job)
        super()._store(new, now)


class EndsOtherSessions(MemoryStore):
    """The end of one worker takes the runs of all others away."""

    async def expire_session(self, session: str) -> int:
        others = {entry.lease.session for entry in self._running.values() if entry.lease}
        return sum([await super(EndsOtherSessions, self).expire_session(one) for one in others])


class SessionsNeverEnd(MemoryStore):
    """The jobs of a worker that is known to be dead wait for their leases all the same."""

    async def expire_session(self, session: str) -> int:
        leases = [entry.lease for entry in self._running.values() if entry.lease]
        return sum(lease.session == session for lease in leases)


class LeasesOutliveTheClock(MemoryStore):
    """After the clock was set back, a dead worker keeps its jobs until it has caught up."""

    def _shorten_leases(self, now: datetime) -> None:
        """Leave them."""


class LeaseLengthNotRenewed(MemoryStore):
    """A lease that was renewed for longer is cut to the length of its claim."""

    async def renew(self, session: str, runs: Sequence[RunRef], *, lease: timedelta) -> Renewal:
        lengths = {run: held.length for run in runs if (held := self._lease_of(run))}
        renewal = await super().renew(session, runs, lease=lease)
        for run, length in lengths.items():
            if held := self._lease_of(run):
                held.length = length
        return renewal


class NumbersThroughFloat(MemoryStore):
    """Large integers of a payload come back as others."""

    def _store(self, new: NewJob, now: datetime) -> None:
        data = msgspec.json.decode(new.job.payload)
        if isinstance(data, list):
            data = [float(value) if isinstance(value, int) else value for value in data]
        payload = msgspec.Raw(msgspec.json.encode(data))
        job = msgspec.structs.replace(new.job, payload=payload)
        super()._store(msgspec.structs.replace(new, job=job), now)


class RoundsToMilliseconds(MemoryStore):
    """Instants lose their microseconds."""

    def _enqueue(self, entry: Entry, run_at: datetime) -> None:
        super()._enqueue(entry, run_at.replace(microsecond=run_at.microsecond // 1000 * 1000))


class LoadNumbersAnew(MemoryStore):
    """After a move a consumer's cursor points at other events."""

    def _load_job(self, stored: StoredJob) -> None:
        rows = []
        for row in stored.log:
            self._last_sequence += 1
            rows.append(msgspec.structs.replace(row, sequence=self._last_sequence))
        super()._load_job(msgspec.structs.replace(stored, log=tuple(rows)))


class LoadForgetsChanges(MemoryStore):
    """After a move a completion whose answer was lost looks like a lost run."""

    def _load_job(self, stored: StoredJob) -> None:
        rows = tuple(msgspec.structs.replace(row, change_id=None) for row in stored.log)
        super()._load_job(msgspec.structs.replace(stored, log=rows))


class LoadForgetsEmitted(MemoryStore):
    """After a move a consumer that has still to read a completion misses what it emitted."""

    def _load_job(self, stored: StoredJob) -> None:
        def without(row: StoredEntry) -> StoredEntry:
            entry = msgspec.structs.replace(row.entry, emitted=None)
            return msgspec.structs.replace(row, entry=entry)

        rows = tuple(map(without, stored.log))
        super()._load_job(msgspec.structs.replace(stored, log=rows))


class LoadOverwrites(MemoryStore):
    """A page that comes again takes a job back from the worker that has it."""

    def _load(self, item: Stored) -> None:
        if isinstance(item, StoredJob) and item.job.job_id in self._jobs:
            del self._jobs[item.job.job_id]
            self._running.pop(item.job.job_id, None)
        super()._load(item)


class LoadTakesRunning(MemoryStore):
    """A job is taken in as Running, and nobody runs it."""

    async def load(self, items: Sequence[Stored]) -> None:
        for item in items:
            self._load(item)


class LoadHoldsKeysForEver(MemoryStore):
    """After a move a key is held for ever, whatever was promised."""

    def _load(self, item: Stored) -> None:
        if isinstance(item, StoredKey):
            item = msgspec.structs.replace(item, until=None)
        super()._load(item)


class LoadForgetsMarks(MemoryStore):
    """After a move numbers are handed out for the second time."""

    def _load(self, item: Stored) -> None:
        if not isinstance(item, Marks):
            super()._load(item)


class DumpSkipsAtPages(MemoryStore):
    """A job on the edge of two pages stays behind."""

    async def dump(self, part: Part, *, after: str = "", limit: int) -> Dumped:
        page = await super().dump(part, after=after, limit=limit)
        is_edge = bool(page.next) and part is Part.JOBS
        return Dumped(page.items[:-1], page.next) if is_edge else page


class ClearKeepsKeys(MemoryStore):
    """What was removed is still there for who submits it again."""

    async def clear(self) -> None:
        kept = self._keys
        await super().clear()
        self._keys = kept


class AheadInAnyPriority(MemoryStore):
    """An operator is told that jobs are before his which come after it."""

    def _waiting_before(
        self, entry: Entry, run_at: datetime, job_types: Collection[str]
    ) -> Iterator[UUID]:
        for other in self._jobs.values():
            if other.run_at and other.lane[0] == entry.lane[0] and other.position < entry.position:
                yield other.job.job_id


class AheadCountsTheFuture(MemoryStore):
    """An operator waits for jobs that are due next week."""

    def _waiting_before(
        self, entry: Entry, run_at: datetime, job_types: Collection[str]
    ) -> Iterator[UUID]:
        yield from super()._waiting_before(entry, run_at, job_types)
        for other in self._jobs.values():
            if other.run_at and other.run_at > self._clock.now() and other.rank < entry.rank:
                yield other.job.job_id


class AheadOfAnyType(MemoryStore):
    """A backlog of a paused type is taken for the reason why others wait."""

    async def ahead(
        self, job_id: UUID, job_types: Collection[str], *, tenant_id: str | None, limit: int
    ) -> dict[int, int] | None:
        every = {entry.job.job_type for entry in self._jobs.values()}
        return await super().ahead(job_id, every, tenant_id=tenant_id, limit=limit)


class AheadByTimeAlone(MemoryStore):
    """Of many that were submitted at once none is before another."""

    def _waiting_before(
        self, entry: Entry, run_at: datetime, job_types: Collection[str]
    ) -> Iterator[UUID]:
        before = super()._waiting_before(entry, run_at, job_types)
        return (one for one in before if self._jobs[one].run_at != run_at)


class AheadTellsOfOthers(MemoryStore):
    """A tenant sees how much another one submits."""

    async def ahead(
        self, job_id: UUID, job_types: Collection[str], *, tenant_id: str | None, limit: int
    ) -> dict[int, int] | None:
        return await super().ahead(job_id, job_types, tenant_id=None, limit=limit)


class AheadWithoutLimit(MemoryStore):
    """One question reads a million jobs."""

    async def ahead(
        self, job_id: UUID, job_types: Collection[str], *, tenant_id: str | None, limit: int
    ) -> dict[int, int] | None:
        return await super().ahead(job_id, job_types, tenant_id=tenant_id, limit=10**6)


class AheadMixesSuspects(MemoryStore):
    """What crashes workers is said to hold up all others."""

    def _waiting_before(
        self, entry: Entry, run_at: datetime, job_types: Collection[str]
    ) -> Iterator[UUID]:
        for other in self._jobs.values():
            if other.run_at and (other.priority, other.run_at) < (entry.priority, run_at):
                yield other.job.job_id


class AheadRemembers(MemoryStore):
    """A job that was claimed or cancelled still counts."""

    def _is_current(self, waiting: tuple[datetime, int, int, UUID], rank: int) -> bool:
        return waiting[-1] in self._jobs


class AheadOfWhatRuns(MemoryStore):
    """A job that runs is said to wait."""

    async def ahead(
        self, job_id: UUID, job_types: Collection[str], *, tenant_id: str | None, limit: int
    ) -> dict[int, int] | None:
        found = await super().ahead(job_id, job_types, tenant_id=tenant_id, limit=limit)
        return found or {}


# Each broken store, and one rule that must be among those that catch it.
BROKEN: dict[type[MemoryStore], str] = {
    FenceDropped: "fencing.a_run_that_is_over_cannot_end_the_job",
    StateRecheckDropped: "states.a_verb_works_in_its_statuses_only",
    VersionRecheckDropped: "applying.an_operator_who_read_an_older_version_is_refused",
    TenantRecheckDropped: "states.an_operator_s_write_stays_in_its_tenant",
    DeletesByIdAlone: "states.a_deletion_stays_in_its_tenant",
    VersionsReused: "records.a_version_never_comes_again",
    ExpiryRecheckDropped: "leases.a_run_renewed_at_the_last_moment_is_not_taken_away",
    CancelRecheckDropped: "applying.a_cancel_that_arrives_before_the_retry_wins",
    LeaseUnfenced: "fencing.a_run_that_is_over_cannot_be_renewed_or_progress",
    RenewsByTokenAlone: "leases.a_run_of_another_session_is_reported_lost",
    ClaimForgetsItsId: "answers.a_claim_is_not_done_twice",
    ClaimsForAnybody: "claiming.only_a_registered_session_claims",
    ClaimNotAtomic: "races.of_two_claims_each_job_goes_to_one",
    ClaimsTheFuture: "claiming.what_is_not_due_is_not_claimed",
    PriorityIgnored: "claiming.the_order_is_priority_then_time_due_then_id",
    TypeLimitsIgnored: "claiming.of_a_limited_type_no_more_is_claimed_than_it_may",
    TypeLimitsPerPriority: "claiming.a_limit_of_a_type_holds_over_all_priorities",
    SuspectsLeftInLine: "suspects.the_second_crash_makes_a_suspect_that_no_ordinary_claim_takes",
    SuspectsOfAllCrashesMixed: "suspects.those_that_were_in_the_most_crashes_come_first_and_alone",
    SuspectsOfFewestCrashesFirst: (
        "suspects.those_that_were_in_the_most_crashes_come_first_and_alone"
    ),
    SuspectsShownByRank: "suspects.a_suspect_is_shown_and_counted_like_any_job",
    AheadInAnyPriority: "waiting.ahead_is_what_is_claimed_first",
    AheadCountsTheFuture: "waiting.what_is_not_due_is_ahead_of_nothing",
    AheadOfAnyType: "waiting.only_the_types_that_are_named_count",
    AheadByTimeAlone: "waiting.ids_decide_between_types_at_one_instant",
    AheadTellsOfOthers: "waiting.of_one_tenant_only_its_own_jobs_are_ahead",
    AheadWithoutLimit: "waiting.no_more_are_looked_at_than_the_limit",
    AheadMixesSuspects: "waiting.suspects_wait_behind_suspects_alone",
    AheadRemembers: "waiting.what_was_claimed_cancelled_or_put_off_is_ahead_no_more",
    AheadOfWhatRuns: "waiting.nothing_is_ahead_of_a_job_that_does_not_wait",
    FenceFollowsAttempt: "fencing.the_fence_only_grows",
    TokensReused: "fencing.a_run_that_is_over_cannot_end_the_job",
    ApplyForgetsItsToken: "answers.a_whole_life_is_the_same_with_every_answer_lost_once",
    ApplyTrustsTheToken: "applying.another_end_of_the_same_run_is_stale",
    CountersKept: "applying.a_snooze_gives_the_attempt_back",
    FollowUpsFirst: "applying.a_clashing_follow_up_stops_the_whole_transition",
    EmittedForgotten: "emitting.what_a_run_emits_comes_with_its_end",
    FollowUpsForgotten: "crashes.whatever_was_accepted_ends_once",
    KeyFreedByAnyone: "keys.an_old_job_cannot_free_the_key_of_a_newer_one",
    KeyNeverFreed: "keys.a_job_that_did_not_complete_frees_its_key",
    KeyDiesWithItsJob: "keys.a_completed_job_holds_its_key_for_seven_days",
    KeyNotRetaken: "keys.a_redrive_takes_the_key_again",
    FingerprintIgnored: "keys.the_same_key_with_another_payload_is_a_conflict",
    TenantForgotten: "reading.one_tenant_does_not_see_another",
    ListsWhatIsHidden: "visibility.a_list_holds_just_what_is_visible",
    NarrowsAfterPaging: "visibility.a_list_holds_just_what_is_visible",
    PagesByTimeAlone: "reading.pages_lose_no_job_of_the_same_instant",
    StatesAreStatuses: "reading.a_list_by_a_derived_state_has_just_the_jobs_that_show_it",
    DueForgotten: "reading.jobs_are_found_that_are_due_before_an_instant",
    LeaderWithoutOwner: "records.there_is_one_leader_at_a_time",
    ResignsForOthers: "records.only_the_leader_of_the_term_can_resign",
    NumbersReused: "events.a_number_is_never_handed_out_again",
    LastNumberForgotten: "events.the_last_number_is_known_and_never_goes_back",
    NumbersSkipped: "events.several_may_number_at_once",
    WayTakenForOutcome: "on_request.they_do_not_change_how_a_job_stands",
    RepeatedProgressLogged: "on_request.they_are_not_logged_twice_where_an_answer_is_lost",
    StartsUnasked: "on_request.what_is_not_asked_for_is_not_logged",
    SubmissionsUnlogged: "on_request.submit_start_and_progress_are_logged_on_request",
    NumberedBeforeCommit: "events.a_reader_beside_many_writers_misses_nothing",
    PrunesTheUnread: "events.what_a_consumer_has_not_read_is_not_pruned",
    OverdueHidden: "maintenance.how_long_the_oldest_job_should_have_been_gone_is_known",
    SweepsOnePage: "maintenance.the_sweep_goes_on_until_nothing_is_left",
    NeverExpires: "expiry.a_job_has_expired_from_that_very_instant_on",
    ExpiresWhatIsDue: "expiry.what_has_expired_is_found_wherever_it_waits",
    ExpiresWhatHasBegun: "expiry.what_has_begun_does_not_expire",
    ExpiresWhatWasRedriven: "expiry.a_redrive_asks_for_a_run_however_late",
    ExpiresAnyFirst: "expiry.what_expired_first_is_found_first",
    ExpiresTooSoon: "expiry.a_job_has_expired_from_that_very_instant_on",
    ExpiryNotMoved: "expiry.a_move_keeps_what_expires_and_what_does_not_any_more",
    FollowUpsNeverExpire: "expiry.a_follow_up_expires_like_any_job",
    ExpiryRounded: "expiry.when_a_job_expires_is_read_as_it_was_stored",
    EndsOtherSessions: "leases.the_leases_of_a_session_that_has_ended_run_out_at_once",
    SessionsNeverEnd: "leases.the_leases_of_a_session_that_has_ended_run_out_at_once",
    LeasesOutliveTheClock: "clocks.a_jump_backward_costs_a_dead_worker_s_job_one_lease_at_most",
    LeaseLengthNotRenewed: "clocks.a_lease_is_cut_to_the_length_it_was_renewed_for",
    NumbersThroughFloat: "torture.sound_data_survives_as_payload_and_result",
    RoundsToMilliseconds: "inserting.microseconds_survive",
    LoadNumbersAnew: "moving.what_is_read_out_and_taken_in_again_is_the_same",
    LoadForgetsEmitted: "moving.",
    LoadForgetsChanges: "moving.a_change_made_before_is_known_afterwards",
    LoadOverwrites: "moving.what_is_there_stays_when_a_page_comes_again",
    LoadTakesRunning: "moving.a_running_job_is_not_taken_in",
    LoadHoldsKeysForEver: "moving.keys_are_held_as_long_as_before",
    LoadForgetsMarks: "moving.numbers_go_on_after_those_taken_in",
    DumpSkipsAtPages: "moving.pages_give_each_item_once",
    ClearKeepsKeys: "moving.a_cleared_store_is_as_new",
} | BROKEN_FLOW

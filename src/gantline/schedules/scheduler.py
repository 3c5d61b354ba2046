"""The scheduler: makes the runs of schedules when they are due, wherever it leads.

The lead only saves work. What keeps a run from being made twice is the job's id and key, which are
its instant's; what keeps one from being forgotten is the order of the writes: jobs first, then the
entry of the next instant, then the definition, and the old entry goes last. A leader that dies at
any of these steps leaves an entry that is still due, and the next one does the same again.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from gantline.contract.errors import GantlineError, SubmitConflict
from gantline.contract.records import Record, RecordWrite
from gantline.contract.results import Applied
from gantline.contract.status import JobStatus
from gantline.contract.store import JobStore
from gantline.contract.text import LABEL_LIMIT, storable
from gantline.manager.manager import JobManager, Submitted
from gantline.manager.observer import Observer, notify
from gantline.runtime import monotonic
from gantline.schedules.firing import Due, Plan, plan, submission_of, with_fires
from gantline.schedules.schedule import Fire, ScheduleRecord
from gantline.schedules.schedules import (
    DUE,
    SCHEDULES,
    StoredSchedule,
    definition_of,
    entry_of,
    read_due,
    read_schedules,
)
from gantline.schedules.upkeep import ScheduleUpkeep

_log = logging.getLogger("gantline.scheduler")

ROLE: Final = "scheduler"
SCHEDULER_LEASE: Final = timedelta(seconds=10)

_PAGE: Final = 200
_BATCH: Final = 500
_UPKEEP_EVERY: Final = timedelta(seconds=60)
_STALE_AFTER: Final = timedelta(minutes=10)


class Look(NamedTuple):
    """What a look at the schedules has shown."""

    leads: bool
    """False where another process fires."""
    is_empty: bool = False
    """There are no schedules at all."""
    wait: timedelta | None = None
    """How long until the next run is due; None where none is known."""


class _Firing(NamedTuple):
    """A schedule that is due, and what is to be done about it."""

    key: str
    stored: StoredSchedule
    plan: Plan


class Scheduler:
    """Fire what is due, a look at a time."""

    def __init__(
        self,
        store: JobStore,
        manager: JobManager,
        owner: str,
        *,
        observer: Observer | None = None,
        lease: timedelta = SCHEDULER_LEASE,
        upkeep_every: timedelta = _UPKEEP_EVERY,
    ) -> None:
        self._store = store
        self._manager = manager
        self._owner = owner
        self._observer = observer or Observer()
        self._lease = lease
        self._switches = manager.switches
        self._upkeep = ScheduleUpkeep(store)
        self._upkeep_every = upkeep_every.total_seconds()
        self._upkept_at: float | None = None
        self._term: int | None = None
        self._extended_at = 0.0
        self._complained: set[UUID] = set()

    async def run_once(self) -> Look:
        """Take or keep the lead, and fire all that is due. Raises what the store raises."""
        if not await self._there_are_any():
            await self.resign()
            return Look(leads=True, is_empty=True)
        await self._switches.refresh()
        if self._switches.closed:  # they are being copied, and fire where they go
            await self.resign()
            return Look(leads=False)
        if not await self._leads():
            return Look(leads=False)
        if self._upkept_at is None or monotonic() - self._upkept_at >= self._upkeep_every:
            await self._upkeep.run_once()
            self._upkept_at = monotonic()
        return Look(leads=True, wait=await self._fire_all())

    async def resign(self) -> None:
        """Let another process fire at once instead of after the lease."""
        term, self._term, self._upkept_at = self._term, None, None
        if term is not None:
            await self._store.resign(ROLE, self._owner, term)

    async def _there_are_any(self) -> bool:
        for namespace in (DUE, SCHEDULES):
            if await self._store.read_records(namespace, limit=1):
                return True
        return False

    async def _leads(self) -> bool:
        now = monotonic()
        if self._term is not None and now - self._extended_at < self._lease.total_seconds() / 3:
            return True
        leadership = await self._store.lead(ROLE, self._owner, lease=self._lease)
        term = leadership.term if leadership else None
        if term != self._term:
            self._upkept_at = None  # the last leader may have left something undone
        self._term, self._extended_at = term, now
        return term is not None

    # -- firing -----------------------------------------------------------------------------------

    async def _fire_all(self) -> timedelta | None:
        """Fire page by page. What cannot be moved now stays in the index, and is gone past."""
        now, after = await self._store.ping(), ""
        while page := await self._store.read_records(DUE, after=after, limit=_PAGE):
            due = [record for record in page if read_due(record).at <= now]
            if due:
                await self._fire(due, now)
                after = due[-1].key
                now = await self._store.ping()
            if len(due) < len(page):
                return max(timedelta(0), read_due(page[len(due)]).at - now)
            if not await self._leads():
                return timedelta(0)
        return None

    async def _fire(self, entries: Sequence[Record], now: datetime) -> None:
        named = await read_schedules(self._store, {read_due(entry).key for entry in entries})
        due: dict[str, StoredSchedule] = {}
        stale: list[Record] = []
        for entry in entries:
            at, key = read_due(entry)
            found = named.get(key)
            if found is not None and found.record.due_at == at:
                due[key] = found
            else:
                stale.append(entry)
        await self._forget_stale(stale, now)
        statuses = await self._last_statuses(list(due.values()))
        firings: list[_Firing] = []
        for key, stored in due.items():
            if (planned := self._planned(stored.record, now, statuses)) is not None:
                firings.append(_Firing(key, stored, planned))
            await asyncio.sleep(0)  # after a long downtime there is a lot to reckon
        if firings:
            await self._move(firings, await self._submit(firings, now))

    async def _forget_stale(self, entries: Sequence[Record], now: datetime) -> None:
        """Delete what no definition names; but not while one may be about to."""
        old = [entry for entry in entries if now - read_due(entry).at > _STALE_AFTER]
        if old:
            await self._store.write_records(
                [RecordWrite(DUE, entry.key, None, entry.version) for entry in old]
            )

    async def _last_statuses(self, schedules: Sequence[StoredSchedule]) -> dict[UUID, JobStatus]:
        """How the jobs that were fired last stand, of schedules that care."""
        ids = [
            record.last_job_id
            for record, _ in schedules
            if record.last_job_id is not None and record.schedule.overlap != "allow"
        ]
        found = await self._store.get(ids, tenant_id=None) if ids else []
        return {job.job.job_id: job.status for job in found if job is not None}

    def _planned(
        self, record: ScheduleRecord, now: datetime, statuses: Mapping[UUID, JobStatus]
    ) -> Plan | None:
        """What is to be done about one; None where that is not known, which harms no other."""
        last = None if record.last_job_id is None else statuses.get(record.last_job_id)
        try:
            return plan(record, now, last)
        except Exception as error:
            if record.id not in self._complained:
                self._complained.add(record.id)
                name, tenant = record.schedule.name, record.schedule.tenant_id
                _log.error("the schedule %s of %s cannot be fired: %s", name, tenant, error)
            return None

    async def _submit(self, firings: Sequence[_Firing], now: datetime) -> list[list[Fire]]:
        """Submit the jobs of all that is due, and return what was done for each instant."""
        due_runs = [(firing, due) for firing in firings for due in firing.plan.runs]
        made = [submission_of(firing.stored.record, due.at, now) for firing, due in due_runs]
        answers = await self._manager.submit(made)
        then = await self._store.ping() if due_runs else now
        fires = {firing.key: list(firing.plan.skipped) for firing in firings}
        lateness: list[tuple[str, float]] = []
        for (firing, due), one, answer in zip(due_runs, made, answers, strict=True):
            late = (then - firing.stored.record.when_due(due.at)).total_seconds()
            fires[firing.key].append(_fire_of(due, one.job.job_id, answer, late))
            if isinstance(answer, Submitted) and not answer.duplicate:
                lateness.append((one.job.job_type, late))
        if lateness:
            notify(self._observer.fired, lateness)
        return [fires[firing.key] for firing in firings]

    async def _move(self, firings: Sequence[_Firing], fires: Sequence[Sequence[Fire]]) -> None:
        """Write what was done for instants, and what is due next; in the order that is safe."""
        moved = [
            msgspec.structs.replace(
                with_fires(firing.stored.record, fired), next_run=firing.plan.next_run
            )
            for firing, fired in zip(firings, fires, strict=True)
        ]
        entries = [
            entry_of(firing.key, record) for firing, record in zip(firings, moved, strict=True)
        ]
        if new := [entry for entry in entries if entry is not None]:
            await self._store.write_records(new)
        answers = await self._store.write_records(
            [
                definition_of(firing.key, record, expected=firing.stored.version)
                for firing, record in zip(firings, moved, strict=True)
            ]
        )
        old = [
            entry
            for firing, answer in zip(firings, answers, strict=True)
            if isinstance(answer, Applied)
            and (entry := entry_of(firing.key, firing.stored.record)) is not None
        ]
        if old:
            await self._store.write_records([RecordWrite(DUE, entry.key, None) for entry in old])


def _fire_of(
    due: Due, job_id: UUID, answer: Submitted | GantlineError, lateness_seconds: float
) -> Fire:
    """What was done for an instant. A clash means that it was fired before, as it then was."""
    fire = Fire(at=due.at, lateness_seconds=round(lateness_seconds, 3), since=due.since)
    if isinstance(answer, Submitted | SubmitConflict):
        return msgspec.structs.replace(fire, job_id=job_id)
    return msgspec.structs.replace(fire, reason=storable(answer.cause, LABEL_LIMIT))

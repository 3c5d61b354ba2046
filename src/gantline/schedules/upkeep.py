"""Upkeep of schedules: repairs what crashes left unfinished, removes what code has dropped."""

import hashlib
import logging
from collections.abc import Sequence

import msgspec

from gantline.contract.records import RecordWrite
from gantline.contract.store import JobStore
from gantline.manager.records import all_records
from gantline.manager.sessions import Session, live_sessions
from gantline.schedules.schedule import Schedule
from gantline.schedules.schedules import (
    DUE,
    Schedules,
    StoredSchedule,
    all_schedules,
    entry_of,
    key_of,
    read_schedules,
    remove,
    synchronise,
)

_log = logging.getLogger("gantline.scheduler")


class UpkeepReport(msgspec.Struct, frozen=True):
    """What a round has done."""

    rejoined: int = 0
    removed: int = 0


class ScheduleUpkeep:
    """Looks through all definitions; done when the lead is taken, and then about once a minute."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._complained: set[str] = set()

    async def run_once(self) -> UpkeepReport:
        # Entries first: one that is written meanwhile is written once more, which does no harm.
        entries = {record.key for record in await all_records(self._store, DUE)}
        sessions = await live_sessions(self._store)
        missing: list[RecordWrite] = []
        removed = 0
        async for stored in all_schedules(self._store, unreadable=self._complain):
            if is_dropped(stored, sessions):
                removed += await self._remove(stored)
                continue
            entry = entry_of(stored.key, stored.record)
            if entry is not None and entry.key not in entries:
                missing.append(entry)
        if missing:
            await self._store.write_records(missing)
        return UpkeepReport(len(missing), removed)

    def _complain(self, key: str) -> None:
        if key not in self._complained:
            self._complained.add(key)
            _log.warning("the schedule %s cannot be read; is there a newer Gantline?", key)

    async def _remove(self, stored: StoredSchedule) -> bool:
        name, tenant = stored.record.schedule.name, stored.record.schedule.tenant_id
        is_removed = await remove(self._store, stored)
        if is_removed:
            _log.info("no code declares the schedule %s of %s any more: removed", name, tenant)
        return is_removed


async def settle(schedules: Schedules, store: JobStore, declared: Sequence[Schedule]) -> None:
    """Store what code declares once more, where all workers that declare any of it agree.

    In a rolling deploy the last to start may be a worker of the old code, which then stops.
    """
    by_key = {key_of(one.tenant_id, one.name): one for one in declared}
    mark = mark_of(declared)
    for session in await live_sessions(store):
        if by_key.keys() & set(session.schedules) and session.schedules_mark != mark:
            return
    found = await read_schedules(store, by_key)
    changed = [
        schedule
        for key, schedule in by_key.items()
        if (stored := found.get(key)) is None
        or (stored.record.origin == "code" and stored.record.schedule != schedule)
    ]
    if changed:
        await synchronise(schedules, store, changed)


def mark_of(declared: Sequence[Schedule]) -> str:
    """The same for the same schedules, in whatever order."""
    bodies = sorted(msgspec.json.encode(one) for one in declared)
    return hashlib.sha256(b"\n".join(bodies)).hexdigest()[:16]


def is_dropped(stored: StoredSchedule, sessions: Sequence[Session]) -> bool:
    """Whether code declared it once, and does no more: workers that have its job do not have it.

    While workers of the old code live, it stays. And while none has the job at all, nothing is
    known: a fleet that is down has dropped nothing.
    """
    if stored.record.origin != "code":
        return False
    having_the_job = [one for one in sessions if stored.record.schedule.job_type in one.job_types]
    return bool(having_the_job) and all(stored.key not in one.schedules for one in having_the_job)

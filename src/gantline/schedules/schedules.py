"""Schedules as records: the definitions, and the index of what is due next.

A definition says what is due next, and the index has an entry for it that sorts by that instant.
They are two records, so they can differ. These rules keep them consistent:

- A new entry is written before the definition that needs it; the old one is deleted after it. So
  a process that dies in between leaves an entry too many, never one too few.
- An entry that its definition does not name is left alone for a while, since its definition may be
  about to be written, and is then deleted by the leader.
- The leader looks through all definitions now and then, and writes the entries that are missing.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from gantline.contract.clock import from_micros, to_micros
from gantline.contract.errors import (
    GantlineError,
    InvalidInput,
    NotThere,
    ScheduleConflict,
    StoreClosed,
    VersionMismatch,
)
from gantline.contract.records import Record, RecordWrite
from gantline.contract.results import Applied
from gantline.contract.store import JobStore
from gantline.contract.text import is_storable
from gantline.manager.manager import JobManager, Submitted
from gantline.manager.sessions import live_sessions
from gantline.manager.submitter import Submission
from gantline.runtime import new_uuid
from gantline.schedules.firing import job_of, with_fires
from gantline.schedules.schedule import (
    Fire,
    Origin,
    Schedule,
    ScheduleRecord,
    check_schedule,
    is_name,
)

_log = logging.getLogger("gantline.scheduler")

SCHEDULES: Final = "schedules"
DUE: Final = "schedule-due"

_END: Final = "!"
_ROUNDS: Final = 20
_PAGE: Final = 1000


class StoredSchedule(NamedTuple):
    """A schedule with the version under which it may be written."""

    record: ScheduleRecord
    version: int

    @property
    def key(self) -> str:
        return key_of(self.record.schedule.tenant_id, self.record.schedule.name)


class DueEntry(NamedTuple):
    """An entry of the index: this schedule is due then."""

    at: datetime
    key: str


def key_of(tenant_id: str, name: str) -> str:
    """The key of a definition. It ends with what sorts before all that a name may hold, so that no
    key begins with another one, and nothing is between a key and what is before its end."""
    return f"{tenant_prefix(tenant_id)}{name}{_END}"


def tenant_prefix(tenant_id: str) -> str:
    """How the keys of a tenant begin, and no other's."""
    return tenant_id.replace("%", "%25").replace("/", "%2F") + "/"


def due_key(at: datetime, key: str) -> str:
    return f"{to_micros(at):020d}/{key}"


def read_due(record: Record) -> DueEntry:
    micros, _, key = record.key.partition("/")
    return DueEntry(from_micros(int(micros)), key)


def entry_of(key: str, record: ScheduleRecord) -> RecordWrite | None:
    """The entry that a definition needs; None where it needs none."""
    at = record.due_at
    return None if at is None else RecordWrite(DUE, due_key(at, key), b"true")


def definition_of(key: str, record: ScheduleRecord, *, expected: int) -> RecordWrite:
    return RecordWrite(SCHEDULES, key, msgspec.json.encode(record), expected)


def read_stored(record: Record) -> StoredSchedule | None:
    """None where it cannot be read: a newer Gantline has written it, which fires it too."""
    try:
        found = msgspec.json.decode(record.value, type=ScheduleRecord)
    except msgspec.DecodeError:
        return None
    return StoredSchedule(found, record.version)


async def read_schedules(store: JobStore, keys: Iterable[str]) -> dict[str, StoredSchedule]:
    """Read definitions by their keys; those that are not there, or not readable, are left out.

    Reads on in the order of the keys, more at a time where many of those read were asked for: so a
    thousand that are due at once are a few reads, and one among thousands is one.
    """
    ordered = sorted(set(keys))
    found: dict[str, StoredSchedule] = {}
    index, limit = 0, 1
    while index < len(ordered):
        after = ordered[index].removesuffix(_END)
        page = await store.read_records(SCHEDULES, after=after, limit=limit)
        here = {record.key: record for record in page}
        last = page[-1].key if len(page) == limit else None
        before = index
        while index < len(ordered) and (last is None or ordered[index] <= last):
            record = here.get(ordered[index])
            if record is not None and (stored := read_stored(record)) is not None:
                found[record.key] = stored
            index += 1
        limit = min(4 * limit, _PAGE) if index - before > limit / 4 else max(1, limit // 4)
    return found


async def all_schedules(
    store: JobStore,
    *,
    prefix: str = "",
    after: str = "",
    page: int = _PAGE,
    unreadable: Callable[[str], None] = lambda key: None,
) -> AsyncGenerator[StoredSchedule, None]:
    """Every definition after `after`, a page at a time; `unreadable` gets the other keys."""
    while records := await store.read_records(SCHEDULES, prefix=prefix, after=after, limit=page):
        for record in records:
            if (stored := read_stored(record)) is None:
                unreadable(record.key)
            else:
                yield stored
        if len(records) < page:
            return
        after = records[-1].key


class Schedules:
    """Make, change, remove and run schedules. All times are the store's.

    Whatever changes something raises StoreClosed while nothing may change.
    """

    def __init__(
        self,
        store: JobStore,
        manager: JobManager,
        *,
        changed: Callable[[], None] = lambda: None,
        most: int | None = None,
    ) -> None:
        """`changed` is called when one was changed here, to notify the leader, which fires.

        `most` is how many a tenant may have. It is not exact: of those who make one at the same
        time, each may see room for one more.
        """
        self._store = store
        self._manager = manager
        self._changed = changed
        self._most = most

    async def get(self, tenant_id: str, name: str) -> StoredSchedule:
        """Read one; raise NotThere."""
        key = key_of(tenant_id, name)
        found = None
        if is_name(name) and is_storable(tenant_id):
            found = (await read_schedules(self._store, [key])).get(key)
        if found is None:
            raise NotThere(
                f"There is no schedule {name[:64]!r}.",
                next_step="`gantline schedule list` shows those that there are.",
            )
        return found

    async def page(self, tenant_id: str, *, after: str, limit: int) -> list[StoredSchedule]:
        """Read the schedules of a tenant whose names are after `after`, by name."""
        if not is_storable(tenant_id + after):
            return []
        prefix = tenant_prefix(tenant_id)
        first = key_of(tenant_id, after) if after else ""
        found: list[StoredSchedule] = []
        async with aclosing(
            all_schedules(self._store, prefix=prefix, after=first, page=limit)
        ) as schedules:
            async for stored in schedules:
                found.append(stored)
                if len(found) == limit:
                    break
        return found

    async def create(self, schedule: Schedule, *, origin: Origin) -> StoredSchedule:
        """Store a new schedule; raise InvalidInput, or ScheduleConflict where there is one.

        What code declares counts, and is never too much: half of it would be worse.
        """
        now = await self._store.ping()
        check_schedule(schedule, now)
        if self._most is not None and origin != "code":
            await self._refuse_too_many(schedule.tenant_id, self._most)
        record = ScheduleRecord(
            id=new_uuid(),
            schedule=schedule,
            origin=origin,
            created_at=now,
            changed_at=now,
            next_run=schedule.first_after(now),
        )
        if record.next_run is None and origin != "code":
            raise InvalidInput(
                f"The schedule {schedule.name!r} has no run any more.",
                next_step="Look at its start and its end.",
            )
        key = key_of(schedule.tenant_id, schedule.name)
        stored = await self._write(key, record, None)
        if stored is None:
            raise ScheduleConflict(f"There is a schedule {schedule.name!r} already.")
        return stored

    async def _refuse_too_many(self, tenant_id: str, most: int) -> None:
        there_are, after = 0, ""
        prefix = tenant_prefix(tenant_id)
        while page := await self._store.read_records(
            SCHEDULES, prefix=prefix, after=after, limit=_PAGE
        ):
            there_are, after = there_are + len(page), page[-1].key
        if there_are >= most:
            raise InvalidInput(
                f"The tenant has {there_are} schedules, and may have {most}.",
                next_step="Delete one that is not used, or raise the setting schedules_per_tenant.",
            )

    async def replace(
        self, schedule: Schedule, *, origin: Origin, version: int | None = None
    ) -> StoredSchedule:
        """Change a schedule; its pause is kept, and its next instant too unless its times change.

        Raise InvalidInput, NotThere, ScheduleConflict, or VersionMismatch where it is not `version`
        any more.
        """
        now = await self._store.ping()
        check_schedule(schedule, now)

        def changed(record: ScheduleRecord) -> ScheduleRecord:
            if record.schedule == schedule:
                return record
            is_kept = record.paused or record.schedule.is_same_time(schedule)
            return msgspec.structs.replace(
                record,
                schedule=schedule,
                changed_at=now,
                next_run=record.next_run if is_kept else schedule.first_after(now),
            )

        return await self._change(
            schedule.tenant_id, schedule.name, changed, origin=origin, version=version
        )

    async def pause(
        self, tenant_id: str, name: str, *, paused: bool = True, version: int | None = None
    ) -> StoredSchedule:
        """Stop making runs, or go on with the first instant from now; those between are no miss."""
        now = await self._store.ping()

        def switched(record: ScheduleRecord) -> ScheduleRecord:
            if record.paused is paused:
                return record
            next_run = None if paused else record.schedule.first_after(now)
            return msgspec.structs.replace(record, paused=paused, changed_at=now, next_run=next_run)

        return await self._change(tenant_id, name, switched, version=version)

    async def delete(
        self, tenant_id: str, name: str, *, origin: Origin, version: int | None = None
    ) -> None:
        """Remove a schedule; the jobs that it has submitted stay.

        What code has declared only where no live worker declares it: where it was dropped together
        with its job, say, which the upkeep cannot distinguish from a fleet that is down.
        """
        await self._manager.switches.refuse_if_closed()
        for _ in range(_ROUNDS):
            found = await self.get(tenant_id, name)
            if any(found.key in one.schedules for one in await live_sessions(self._store)):
                _refuse_other_origin(found.record, origin)
            _refuse_other_version(found, version)
            if await remove(self._store, found):
                self._changed()
                return
        raise _kept_changing(name)

    async def run(self, tenant_id: str, name: str, *, owner: str) -> Submitted:
        """Submit a job of a schedule now, in the name of the caller; its own instants stay.

        What the run is for, its handler reads as of any other: here it is now.
        """
        found = await self.get(tenant_id, name)
        now = await self._store.ping()
        job = msgspec.structs.replace(job_of(found.record, now), created_by=owner, scheduled_at=now)
        (answer,) = await self._manager.submit([Submission(job)])
        if isinstance(answer, GantlineError):
            raise answer
        fire = Fire(at=now, job_id=answer.job_id, by=owner)
        await self._change(tenant_id, name, lambda record: with_fires(record, [fire]))
        return answer

    async def _change(
        self,
        tenant_id: str,
        name: str,
        change: Callable[[ScheduleRecord], ScheduleRecord],
        *,
        origin: Origin | None = None,
        version: int | None = None,
    ) -> StoredSchedule:
        """Change what is stored; again where another process was quicker."""
        for _ in range(_ROUNDS):
            found = await self.get(tenant_id, name)
            if origin is not None:
                _refuse_other_origin(found.record, origin)
            _refuse_other_version(found, version)
            record = change(found.record)
            if record == found.record:
                return found
            if (stored := await self._write(found.key, record, found)) is not None:
                return stored
        raise _kept_changing(name)

    async def _write(
        self, key: str, record: ScheduleRecord, before: StoredSchedule | None
    ) -> StoredSchedule | None:
        """Write the entry, then the definition, then delete the old entry."""
        await self._manager.switches.refuse_if_closed()
        entry = entry_of(key, record)
        if entry is not None:
            await self._store.write_records([entry])
        write = definition_of(key, record, expected=before.version if before else 0)
        (answer,) = await self._store.write_records([write])
        if not isinstance(answer, Applied):
            return None
        old = entry_of(key, before.record) if before else None
        if old is not None and (entry is None or old.key != entry.key):
            await self._store.write_records([RecordWrite(DUE, old.key, None)])
        self._changed()
        return StoredSchedule(record, answer.version)


async def synchronise(schedules: Schedules, store: JobStore, declared: Sequence[Schedule]) -> None:
    """Make what is stored what code declares; a pause at run time is kept.

    What code has ceased to declare is removed by the upkeep, when no worker has it any more.
    """
    found = await read_schedules(store, (key_of(one.tenant_id, one.name) for one in declared))
    for schedule in declared:
        stored = found.get(key_of(schedule.tenant_id, schedule.name))
        if stored is not None and stored.record.schedule == schedule:
            continue
        try:
            await _put(schedules, schedule, is_new=stored is None)
        except (ScheduleConflict, NotThere) as error:
            _log.warning("the schedule %s is not as code declares it: %s", schedule.name, error)
        except StoreClosed:
            return  # when it is opened, they are settled


async def _put(schedules: Schedules, schedule: Schedule, *, is_new: bool) -> None:
    if is_new:
        try:
            await schedules.create(schedule, origin="code")
        except ScheduleConflict:
            pass  # another worker was quicker; its code may be another
        else:
            return
    await schedules.replace(schedule, origin="code")


async def remove(store: JobStore, stored: StoredSchedule) -> bool:
    """Delete a definition as it was read, and its entry; False where it has changed."""
    (answer,) = await store.write_records(
        [RecordWrite(SCHEDULES, stored.key, None, stored.version)]
    )
    if not isinstance(answer, Applied):
        return False
    entry = entry_of(stored.key, stored.record)
    if entry is not None:
        await store.write_records([RecordWrite(DUE, entry.key, None)])
    return True


def _refuse_other_origin(record: ScheduleRecord, origin: Origin) -> None:
    name = record.schedule.name
    if record.origin == "code" and origin != "code":
        raise ScheduleConflict(
            f"The schedule {name!r} is declared in code.",
            next_step="Change it there, or pause it.",
        )
    if record.origin != "code" and origin == "code":
        raise ScheduleConflict(
            f"The schedule {name!r} was made by hand, and is also declared in code.",
            next_step="Give one of them another name, or delete the one made by hand.",
        )


def _refuse_other_version(found: StoredSchedule, version: int | None) -> None:
    if version is not None and found.version != version:
        raise VersionMismatch(
            "The schedule has changed since it was read.", next_step="Read it again."
        )


def _kept_changing(name: str) -> GantlineError:
    return VersionMismatch(f"The schedule {name!r} kept changing.", next_step="Try again.")

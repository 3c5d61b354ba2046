"""A bench for schedulers: a store with a clock that tests move, schedules, and what they fired."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

import msgspec

from gantline.contract.query import Cursor, JobFilter
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.store import JobStore
from gantline.manager.manager import JobManager
from gantline.manager.records import all_records
from gantline.schedules.recurrence import Every, Recurrence
from gantline.schedules.schedule import Schedule, correlation_of
from gantline.schedules.scheduler import Look, Scheduler
from gantline.schedules.schedules import DUE, Schedules, StoredSchedule, all_schedules, entry_of
from gantline.testing.clock import FakeClock

MINUTE = timedelta(minutes=1)
LEASE = timedelta(seconds=10)


class Harness(Protocol):
    clock: FakeClock

    async def open(self) -> JobStore: ...


class Bench:
    """One store and all that is done to it."""

    def __init__(self, harness: Harness, store: JobStore) -> None:
        self.harness = harness
        self.clock = harness.clock
        self.store = store
        self.schedules = Schedules(store, JobManager(store))
        self._leaders: list[Scheduler] = []

    def scheduler(self, store: JobStore | None = None, **options: Any) -> Scheduler:
        """Another leader; each has a name of its own."""
        store = store or self.store
        options = {"lease": LEASE, **options}
        owner = f"leader-{len(self._leaders)}"
        self._leaders.append(Scheduler(store, JobManager(store), owner, **options))
        return self._leaders[-1]

    async def fire(self) -> Look:
        """Let a new leader take over from whoever led, and fire all that is due."""
        await self.clear_the_lead()
        scheduler = self.scheduler()
        look = await scheduler.run_once()
        assert look.leads
        await scheduler.resign()
        return look

    async def clear_the_lead(self) -> None:
        """As if the lease had lapsed, without waiting for it."""
        for leader in self._leaders:
            leader._store = self.store
            await leader.resign()

    async def add(
        self, name: str = "s", recurrence: Recurrence | None = None, **options: Any
    ) -> StoredSchedule:
        schedule = Schedule(
            name=name,
            recurrence=recurrence or Every(60),
            **{"job_type": "work", "misfire": "catch_up", "catch_up_limit": 1000, **options},
        )
        return await self.schedules.create(schedule, origin="api")

    async def stored(self, name: str = "s") -> StoredSchedule:
        return await self.schedules.get("default", name)

    async def jobs(self, name: str = "s") -> list[JobSnapshot]:
        """What a schedule has submitted, oldest first."""
        job_filter = JobFilter(tenant_id=None, correlation_id=correlation_of(name))
        found: list[JobSnapshot] = []
        after: Cursor | None = None
        while True:
            page = await self.store.find(job_filter, limit=1000, after=after)
            found += page.items
            if page.next is None:
                return sorted(found, key=lambda one: one.job.scheduled_at or one.job.created_at)
            after = page.next

    async def instants(self, name: str = "s") -> list[datetime]:
        return [job.job.scheduled_at for job in await self.jobs(name) if job.job.scheduled_at]

    async def check_index(self) -> None:
        """Every definition that is due some time has its entry."""
        entries = {record.key for record in await all_records(self.store, DUE)}
        async for stored in all_schedules(self.store):
            entry = entry_of(stored.key, stored.record)
            assert entry is None or entry.key in entries, stored


async def check_none_doubled_none_missed(bench: Bench, made: Sequence[StoredSchedule]) -> int:
    """Every instant from the creation to the one that is next has one job; count them."""
    total = 0
    for before in made:
        now = await bench.stored(before.record.schedule.name)
        fired = await bench.instants(before.record.schedule.name)
        assert not [at for at, times in Counter(fired).items() if times > 1]
        expected, at = [], before.record.next_run
        while at is not None and at != now.record.next_run:
            expected.append(at)
            at = now.record.schedule.first_after(at)
        assert fired == expected
        total += len(fired)
    await bench.check_index()
    return total


def edited(stored: StoredSchedule, **changes: Any) -> Schedule:
    changed: Schedule = msgspec.structs.replace(stored.record.schedule, **changes)
    return changed

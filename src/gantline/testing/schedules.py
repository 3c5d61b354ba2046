"""Schedules in a test: those of the code are stored, and fired when the test says."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from gantline.app.gantline import Gantline
from gantline.manager.observer import Observer
from gantline.schedules.scheduler import Scheduler
from gantline.schedules.schedules import DUE, due_key, read_due, synchronise

_OWNER: Final = "jobs-test"
_MOMENT: Final = timedelta(microseconds=1)


class DueSchedules:
    """Does what a worker does about schedules, a step at a time."""

    def __init__(self, app: Gantline) -> None:
        self._app = app

    async def store_declared(self) -> None:
        app = self._app
        await synchronise(app.schedules, app.store, app.declared_schedules)

    async def fire(self) -> int:
        """Submit what is due; count the jobs. A new leader each time, which has nothing cached."""
        store, counted = self._app.store, _Counted()
        scheduler = Scheduler(store, self._app.manager, _OWNER, observer=counted)
        await scheduler.run_once()
        return counted.jobs

    async def next_due(self, now: datetime) -> datetime | None:
        """When something is due that is not due yet."""
        after = due_key(now + _MOMENT, "")
        page = await self._app.store.read_records(DUE, after=after, limit=1)
        return read_due(page[0]).at if page else None


class _Counted(Observer):
    """Counts the jobs that were fired."""

    jobs = 0

    def fired(self, lateness: Sequence[tuple[str, float]]) -> None:
        self.jobs += len(lateness)

"""Who keeps the schedules: a store, or a server before one. It speaks the API's documents."""

from typing import Protocol
from uuid import UUID

from gantline.api.schedule_documents import NewSchedule, RunsToCome, ScheduleDocument


class ScheduleKeeper(Protocol):
    """Whoever keeps the schedules of the tenant. Each method raises GantlineError."""

    async def all(self) -> list[ScheduleDocument]: ...

    async def get(self, name: str) -> ScheduleDocument: ...

    async def add(self, new: NewSchedule) -> ScheduleDocument: ...

    async def pause(self, name: str, *, paused: bool) -> ScheduleDocument: ...

    async def run(self, name: str) -> UUID:
        """Submit a job of it now; return its id."""
        ...

    async def delete(self, name: str) -> None: ...

    async def next_runs(self, name: str, count: int) -> RunsToCome: ...

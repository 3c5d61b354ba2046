"""A server as the keeper of the schedules."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from gantline.api.schedule_documents import NewSchedule, RunsToCome, ScheduleDocument
from gantline.client import AsyncClient

Told = Callable[[Awaitable[Any]], Awaitable[Any]]
"""Waits for an answer, but not in silence."""


class ServerSchedules:
    """Asks; what is allowed, the server says."""

    def __init__(self, client: AsyncClient, told: Told) -> None:
        self._client = client
        self._told = told

    async def all(self) -> list[ScheduleDocument]:
        async def listed() -> list[ScheduleDocument]:
            return [one async for one in self._client.schedules()]

        found: list[ScheduleDocument] = await self._told(listed())
        return found

    async def get(self, name: str) -> ScheduleDocument:
        found: ScheduleDocument = await self._told(self._client.schedule(name))
        return found

    async def add(self, new: NewSchedule) -> ScheduleDocument:
        made: ScheduleDocument = await self._told(self._client.add_schedule(new))
        return made

    async def pause(self, name: str, *, paused: bool) -> ScheduleDocument:
        switch = self._client.pause_schedule if paused else self._client.resume_schedule
        switched: ScheduleDocument = await self._told(switch(name))
        return switched

    async def run(self, name: str) -> UUID:
        job_id: UUID = (await self._told(self._client.run_schedule(name))).job_id
        return job_id

    async def delete(self, name: str) -> None:
        await self._told(self._client.delete_schedule(name))

    async def next_runs(self, name: str, count: int) -> RunsToCome:
        told: RunsToCome = await self._told(self._client.next_runs(name, count))
        return told

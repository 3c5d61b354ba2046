"""The verbs about schedules."""

from collections.abc import Mapping
from urllib.parse import quote

from gantline.api.documents import AcceptedDocument
from gantline.api.schedule_documents import (
    NewSchedule,
    RunsToCome,
    ScheduleDocument,
    ScheduleSent,
    SchedulesPage,
)
from gantline.client.asking import Asking, Items
from gantline.client.http import Request
from gantline.client.submission import encoded
from gantline.contract.errors import InvalidInput


class ScheduleVerbs(Asking):
    """What can be asked of a server about schedules."""

    def schedules(self) -> Items[ScheduleDocument]:
        """List the schedules of the tenant by name, a page at a time."""
        return self._list("/api/schedules", {}, None, page_of=SchedulesPage)

    async def schedule(self, name: str) -> ScheduleDocument:
        """Show a schedule, its last and its next runs."""
        return await self._ask(self._about("GET", name), ScheduleDocument)

    async def next_runs(self, name: str, count: int = 5) -> RunsToCome:
        """List the next runs of a schedule, in UTC and as clocks in its zone show them."""
        return await self._ask(self._about("GET", name, "/next", count=count), RunsToCome)

    async def add_schedule(self, schedule: NewSchedule) -> ScheduleDocument:
        """Make a schedule; its jobs are submitted in the caller's name."""
        body = encoded(self._for_tenant(schedule))
        return await self._call("POST", "/api/schedules", ScheduleDocument, body=body)

    async def replace_schedule(self, name: str, schedule: ScheduleSent) -> ScheduleDocument:
        """Change a schedule; its pause stays, and its next run unless its times change."""
        return await self._ask(self._about("PUT", name, body=encoded(schedule)), ScheduleDocument)

    async def pause_schedule(self, name: str) -> ScheduleDocument:
        """Submit nothing more until it is resumed."""
        return await self._ask(self._about("POST", name, "/pause"), ScheduleDocument)

    async def resume_schedule(self, name: str) -> ScheduleDocument:
        """Go on with the first run from now."""
        return await self._ask(self._about("POST", name, "/resume"), ScheduleDocument)

    async def run_schedule(self, name: str) -> AcceptedDocument:
        """Submit a job of a schedule now; its own runs stay."""
        return await self._ask(self._about("POST", name, "/run"), AcceptedDocument)

    async def delete_schedule(self, name: str) -> None:
        """Remove a schedule; the jobs that it has submitted stay."""
        await self._reply_to(self._about("DELETE", name))

    def _about(
        self, method: str, name: str, part: str = "", *, body: bytes | None = None, **values: int
    ) -> Request:
        if not name:
            raise InvalidInput("The name is empty.")
        path = f"/api/schedules/{quote(name, safe='')}{part}"
        asked: Mapping[str, object] = {**self._of_tenant, **values}
        return self._request(method, path, values=asked, body=body)

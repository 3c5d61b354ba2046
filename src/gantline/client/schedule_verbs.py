"""The verbs of schedules as flows."""

from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import quote

import msgspec

from gantline.api.documents import AcceptedDocument
from gantline.api.schedule_documents import (
    NewSchedule,
    RunsToCome,
    ScheduleDocument,
    ScheduleSent,
    SchedulesPage,
)
from gantline.client.asking import Asking
from gantline.client.steps import Feed, Flow, Give, Request
from gantline.client.submission import encoded
from gantline.contract.errors import InvalidInput

D = TypeVar("D")


class ScheduleVerbs(Asking):
    """What can be asked of a server about schedules."""

    def schedules(self) -> Feed[ScheduleDocument, None]:
        """List the schedules of the tenant by name, a page at a time."""
        cursor: str | None = None
        while True:
            asked = {**self.of_tenant, "cursor": cursor}
            page = yield from self.read("/api/schedules", SchedulesPage, asked)
            for item in page.items:
                yield Give(item)
            cursor = page.next_cursor
            if cursor is None:
                return

    def schedule(self, name: str) -> Flow[ScheduleDocument]:
        """Show a schedule, its last and its next runs."""
        return self.ask(self._about("GET", name), ScheduleDocument)

    def next_runs(self, name: str, count: int = 5) -> Flow[RunsToCome]:
        """Tell the next runs of a schedule, in UTC and as clocks in its zone show them."""
        return self.ask(self._about("GET", name, "/next", count=count), RunsToCome)

    def add_schedule(self, schedule: NewSchedule) -> Flow[ScheduleDocument]:
        """Make a schedule; its jobs are submitted in the name of who makes it."""
        if self.tenant is not None and schedule.tenant_id is None:
            schedule = msgspec.structs.replace(schedule, tenant_id=self.tenant)
        request = self.request("POST", "/api/schedules", body=encoded(schedule))
        return self.ask(request, ScheduleDocument)

    def replace_schedule(self, name: str, schedule: ScheduleSent) -> Flow[ScheduleDocument]:
        """Change a schedule; its pause stays, and its place unless its times change."""
        return self.ask(self._about("PUT", name, body=encoded(schedule)), ScheduleDocument)

    def pause_schedule(self, name: str) -> Flow[ScheduleDocument]:
        """Submit nothing more until it is resumed."""
        return self.ask(self._about("POST", name, "/pause"), ScheduleDocument)

    def resume_schedule(self, name: str) -> Flow[ScheduleDocument]:
        """Go on with the first run from now."""
        return self.ask(self._about("POST", name, "/resume"), ScheduleDocument)

    def run_schedule(self, name: str) -> Flow[AcceptedDocument]:
        """Submit a job of a schedule now; its own runs stay."""
        return self.ask(self._about("POST", name, "/run"), AcceptedDocument)

    def delete_schedule(self, name: str) -> Flow[None]:
        """Remove a schedule; the jobs that it has submitted stay."""
        yield from self.reply_to(self._about("DELETE", name))

    def _about(
        self, method: str, name: str, part: str = "", *, body: bytes | None = None, **values: int
    ) -> Request:
        if not name:
            raise InvalidInput("The name is empty.")
        path = f"/api/schedules/{quote(name, safe='')}{part}"
        asked: Mapping[str, object] = {**self.of_tenant, **values}
        return self.request(method, path, values=asked, body=body)

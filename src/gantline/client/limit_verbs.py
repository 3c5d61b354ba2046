"""The verbs about limits, gates and groups."""

from urllib.parse import quote

import msgspec
from msgspec import UNSET, UnsetType

from gantline.api.limit_documents import (
    GateDocument,
    GatesDocument,
    GroupDocument,
    GroupsPage,
    LimitDocument,
    LimitsDocument,
    LimitsToSet,
)
from gantline.client.asking import Asking, Items
from gantline.contract.errors import InvalidInput


class LimitVerbs(Asking):
    """What can be asked of a server about limits."""

    async def limits(self) -> list[LimitDocument]:
        """List the limits of all types that have some."""
        return (await self._call("GET", "/api/limits", LimitsDocument)).items

    async def limits_of(self, job_type: str) -> LimitDocument:
        """Show the limits of a type, and where they come from."""
        return await self._call("GET", _path(job_type), LimitDocument)

    async def set_limits(
        self,
        job_type: str,
        *,
        running: int | UnsetType | None = UNSET,
        running_in_all: int | UnsetType | None = UNSET,
        rate: str | UnsetType | None = UNSET,
        burst: int | UnsetType = UNSET,
        gate: str | UnsetType = UNSET,
    ) -> LimitDocument:
        """Set limits over those that code declares, for all tenants; None: no such limit.

        What is not given stays as it is. `running` is of each group.
        """
        asked = LimitsToSet(
            running=running, running_in_all=running_in_all, rate=rate, burst=burst, gate=gate
        )
        body = msgspec.json.encode(asked)
        return await self._call("PUT", _path(job_type), LimitDocument, body=body)

    async def clear_limits(self, job_type: str, *, declared: bool = False) -> LimitDocument:
        """Let the limits that code declares hold again; with `declared` forget those too, until a
        worker that declares them starts."""
        values = {"declared": "true" if declared else None}
        return await self._call("DELETE", _path(job_type), LimitDocument, values=values)

    async def gates(self) -> list[GateDocument]:
        """List the gates of all rates, and which of them are closed."""
        return (await self._call("GET", "/api/gates", GatesDocument)).items

    def groups(self, job_type: str, *, queue: str | None = None) -> Items[GroupDocument]:
        """List the groups of which jobs of a type wait or run, in the type's queue or in this."""
        return self._list(f"{_path(job_type)}/groups", {"queue": queue}, None, page_of=GroupsPage)


def _path(job_type: str) -> str:
    if not job_type:
        raise InvalidInput("The name is empty.")
    return f"/api/limits/{quote(job_type, safe='')}"

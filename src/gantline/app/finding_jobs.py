"""Finding: handles and snapshots of jobs that were submitted before, from anywhere."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final, Unpack, cast
from uuid import UUID

from gantline.app.handle import Handle, SyncHandle
from gantline.contract.bounds import held_as
from gantline.contract.codec import codec_for
from gantline.contract.snapshot import JobSnapshot

if TYPE_CHECKING:
    from gantline.api.searching import FindOptions
    from gantline.app.gantline import Gantline

_JSON: Final = codec_for(Any)


class Finding:
    """The part of an application that finds jobs again."""

    @property
    def _app(self) -> "Gantline":
        return cast("Gantline", self)

    def handle(self, job_id: UUID | str, *, tenant: str | None = None) -> Handle[Any]:
        """Make a handle of any job; its result is JSON data. That of a job type is typed."""
        tenant_id = self._app.default_tenant if tenant is None else tenant
        return Handle(self._app, held_as("job_id", job_id, UUID), tenant_id, codec=_JSON)

    def handle_sync(self, job_id: UUID | str, *, tenant: str | None = None) -> SyncHandle[Any]:
        """As `handle`, for code that is not async."""
        return SyncHandle(self.handle(job_id, tenant=tenant))

    async def get(self, job_id: UUID | str, *, tenant: str | None = None) -> JobSnapshot:
        """Read a job as it stands; raise JobNotFound."""
        return await self.handle(job_id, tenant=tenant).status()

    def get_sync(self, job_id: UUID | str, *, tenant: str | None = None) -> JobSnapshot:
        """As `get`, for code that is not async."""
        return self.handle_sync(job_id, tenant=tenant).status()

    async def find(
        self, *, limit: int | None = None, **options: "Unpack[FindOptions]"
    ) -> AsyncIterator[JobSnapshot]:
        """Read the jobs that match, newest first, a page at a time; all, or the first `limit`."""
        from gantline.api.searching import find_each, make_filter  # slow to import

        await self._app.ready()
        job_filter = make_filter(options, self._app.default_tenant, self._app.clock.now())
        async for job in find_each(self._app.store, job_filter, limit):
            yield job

    def find_sync(
        self, *, limit: int | None = None, **options: "Unpack[FindOptions]"
    ) -> list[JobSnapshot]:
        """As `find`, for code that is not async: all at once."""

        async def listed() -> list[JobSnapshot]:
            return [job async for job in self.find(limit=limit, **options)]

        return self._app.run_sync(listed)

"""A server as the backend: the client, and what commands ask for that is more than one request."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Unpack
from uuid import UUID

from gantline.api.documents import (
    DeadSummary,
    LaneDocument,
    ListedJob,
    QueuesDocument,
    StatusDocument,
    WorkerDocument,
)
from gantline.api.searching import FindOptions
from gantline.audit.chain import EVERYTHING, AuditEvent, AuditFilter, FaultyEntry
from gantline.cli.backend import Found, Kind, Known, LoggedEntry, SeenEvent, TypeSeen
from gantline.cli.talk import notice_when_slow, say
from gantline.client import RedriveByFilter
from gantline.client.async_client import AsyncClient
from gantline.client.exchange import Retries
from gantline.client.http import Reply, Request
from gantline.contract.errors import (
    Forbidden,
    GantlineError,
    InvalidInput,
    NotAuthenticated,
    ServerError,
)
from gantline.contract.status import JobStatus
from gantline.manager.manager import Acted

_TIMEOUT_SECONDS: Final = 15.0
# Where a server asks for a longer pause, the user gets the error at once.
_RETRIES: Final = Retries(attempts=3, longest_pause_seconds=2)
_PATIENCE: Final = timedelta(seconds=_TIMEOUT_SECONDS)
_LOOK_AGAIN_SECONDS: Final = 1.0
_MOST_IDS: Final = 1000
# How many a server shows one by one at most.
_MOST_COUNTED: Final = 1000


class ServerBackend(AsyncClient):
    """Asks a server. What its answers do not have is not known.

    The API key comes from the environment, where no process list and no history shows it.
    """

    look_again_seconds = _LOOK_AGAIN_SECONDS
    unseen = " A key without a role sees only its own jobs, and those of its subjects."

    def __init__(self, url: str, *, tenant: str | None, all_tenants: bool = False) -> None:
        super().__init__(url, tenant=tenant, timeout_seconds=_TIMEOUT_SECONDS, retries=_RETRIES)
        self._all_tenants = all_tenants
        self._label = url

    async def _reply_to(self, request: Request) -> Reply:
        """Wait for an answer, but not in silence."""
        with notice_when_slow(self._label, _PATIENCE):
            return await super()._reply_to(request)

    @property
    def whose(self) -> str:
        if self._all_tenants:
            return "all tenants"
        return f"the tenant {self._tenant!r}" if self._tenant else "the tenant of the API key"

    # -- jobs -------------------------------------------------------------------------------------

    async def log(self, job_id: UUID) -> list[LoggedEntry]:
        return [LoggedEntry(entry) for entry in await self.history(job_id)]

    async def find(self, limit: int, **options: Unpack[FindOptions]) -> Found:
        options = {**options, "all_tenants": self._all_tenants}
        return await _found(self.jobs(limit=limit + 1, **options), limit)

    async def find_dead(
        self, limit: int, reason: Sequence[str] = (), **options: Unpack[FindOptions]
    ) -> Found:
        options = {**options, "all_tenants": self._all_tenants}
        return await _found(self.dead_letters(reason=reason, limit=limit + 1, **options), limit)

    async def dead_summary(self) -> DeadSummary:
        self._refuse_all_tenants()
        return await super().dead_summary()

    async def events(
        self, last: int, *, follow: bool, is_chosen: Callable[[str], bool]
    ) -> AsyncIterator[SeenEvent]:
        self._refuse_all_tenants()
        if not follow:
            raise InvalidInput(
                "A server shows only new events, not earlier ones.",
                next_step="Give --follow, or name the store by --store.",
            )
        async for event in self.follow_jobs():
            if (emitted := event.emitted) is not None:
                if is_chosen(emitted.job_type):
                    yield SeenEvent(
                        at=emitted.occurred_at,
                        event=emitted.event_type,
                        job_id=emitted.job_id,
                        job_type=emitted.job_type,
                        status=JobStatus.COMPLETED,
                        reason=f"{emitted.aggregate_type}:{emitted.aggregate_id}",
                        attempt=None,
                    )
                continue
            if (job := event.status) is None:
                say("Some events were missed: the server does not know them any more.")
                continue
            if not is_chosen(job.job_type):
                continue
            yield SeenEvent(
                at=job.updated_at,
                event=event.event,
                job_id=job.job_id,
                job_type=job.job_type,
                status=job.status,
                reason=job.reason,
                attempt=job.attempt,
                error_code=job.error_code,
                error_message=job.error_message,
            )

    def _refuse_all_tenants(self) -> None:
        if self._all_tenants:
            raise InvalidInput(
                "A server shows this of one tenant at a time.",
                next_step="Name it by --tenant, or name the store by --store.",
            )

    async def cancel_each(self, job_ids: Sequence[UUID]) -> list[Acted | GantlineError]:
        return await self._each(job_ids, self.cancel)

    async def redrive_each(self, job_ids: Sequence[UUID]) -> list[Acted | GantlineError]:
        return await self._each(job_ids, self.redrive)

    async def _each(
        self, job_ids: Sequence[UUID], act: Callable[[UUID], Awaitable[StatusDocument]]
    ) -> list[Acted | GantlineError]:
        """One after the other; where the server itself fails, the rest is not tried."""
        answers: list[Acted | GantlineError] = []
        for job_id in job_ids:
            try:
                before = await self._state(job_id)
                after = await act(job_id)
            except GantlineError as error:
                answers.append(error)
                if isinstance(error, ServerError | NotAuthenticated):
                    break
            else:
                is_changed = after.state != before
                answers.append(Acted(job_id, after.status, after.version, is_changed))
        return answers

    async def _state(self, job_id: UUID) -> str | None:
        """What is shown now; a caller who may act need not be allowed to read."""
        try:
            return (await self.status(job_id)).state
        except Forbidden:
            return None

    async def redrive_dead(self, job_ids: Sequence[UUID], chosen_by: Mapping[str, Any]) -> int:
        redriven = 0
        for start in range(0, len(job_ids), _MOST_IDS):
            chosen = RedriveByFilter(job_ids=list(job_ids[start : start + _MOST_IDS]))
            redriven += (await self.redrive_dead_letters(chosen)).redriven
        return redriven

    async def delete_each(self, job_ids: Sequence[UUID]) -> list[UUID | GantlineError]:
        answers: list[UUID | GantlineError] = []
        for job_id in job_ids:
            try:
                await self.delete(job_id)
            except (ServerError, NotAuthenticated):
                raise
            except GantlineError as error:
                answers.append(error)
            else:
                answers.append(job_id)
        return answers

    # -- queues, workers and types ----------------------------------------------------------------

    async def sessions(self) -> list[WorkerDocument]:
        return [one async for one in self.workers()]

    async def queues(
        self, *, queue: Sequence[str] = (), limit: int = _MOST_COUNTED
    ) -> QueuesDocument:
        self._refuse_all_tenants()
        return await super().queues(queue=queue, limit=limit)

    async def types(self) -> list[TypeSeen]:
        queued: Counter[str] = Counter()
        running: Counter[str] = Counter()
        for lane in await self.lanes():
            queued[lane.job_type] += lane.queued
            running[lane.job_type] += lane.running
        declared = {one.job_type: one for one in await self.job_types()}
        return [
            TypeSeen(
                name,
                queued[name],
                running[name],
                workers=None,
                paused=name in declared and declared[name].paused,
                disabled=name in declared and declared[name].disabled,
            )
            for name in sorted(set(queued) | set(declared))
        ]

    async def waiting(self, job_type: str) -> int:
        return (await self.statistics(job_type=[job_type])).queued

    async def known(self, kind: Kind) -> Known:
        lanes = await self.lanes()
        names = (lane.queue if kind == "queue" else lane.job_type for lane in lanes)
        return Known(frozenset(names), served=None)

    async def lanes(self) -> list[LaneDocument]:
        self._refuse_all_tenants()
        counted = await self.statistics(limit=_MOST_COUNTED)
        if omitted := counted.lanes_omitted:
            say(f"There are {omitted} more pairs of queue and type; these are the fullest.")
        return counted.lanes

    # -- audit ------------------------------------------------------------------------------------

    async def audited_tenants(self, *, everywhere: bool) -> list[str]:
        """A server shows one tenant; the first event says which."""
        if everywhere:
            raise InvalidInput(
                "A server shows one tenant at a time.",
                next_step="Name it by --tenant, or name the store by --store.",
            )
        if self._tenant is not None:
            return [self._tenant]
        return [event.tenant_id async for event in self.audit_events(limit=1)]

    def audit_trail(
        self, tenant_id: str, audit_filter: AuditFilter = EVERYTHING
    ) -> AsyncIterator[AuditEvent | FaultyEntry]:
        return self.audit_events(
            aggregate=audit_filter.aggregate,
            actor=audit_filter.actor,
            action=audit_filter.action,
            since=audit_filter.since,
        )


async def _found(listed: AsyncIterator[ListedJob], limit: int) -> Found:
    """One more than asked for shows whether there are more."""
    jobs = [job async for job in listed]
    return Found(jobs[:limit], len(jobs) > limit)

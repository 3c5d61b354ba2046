"""A server as the keeper of the jobs: the same verbs over HTTP, by an API key."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec

from gantline.api.documents import (
    JobTypeState,
    LaneDocument,
    ListedJob,
    QueueDocument,
    QueueState,
    StatusDocument,
)
from gantline.audit.chain import EVERYTHING, AuditEvent, AuditFilter, UnreadableEntry
from gantline.cli.keeper import (
    Acted,
    Found,
    Happened,
    NewJob,
    Submitted,
    TypeSeen,
    Whole,
)
from gantline.cli.names import Kind, Known
from gantline.cli.output import say
from gantline.cli.server_schedules import ServerSchedules
from gantline.cli.server_webhooks import ServerWebhooks
from gantline.cli.waiting import told_when_slow
from gantline.client import AsyncClient, JobOptions, RedriveByFilter, Retries
from gantline.contract.errors import (
    Forbidden,
    GantlineError,
    InvalidInput,
    NotAuthenticated,
    ServerError,
)
from gantline.contract.query import JobFilter
from gantline.contract.status import DEAD

R = TypeVar("R")

_TIMEOUT_SECONDS: Final = 15.0
# Who types a command is told at once to come again in a few seconds.
_RETRIES: Final = Retries(attempts=3, longest_pause_seconds=2)
_PATIENCE: Final = timedelta(seconds=_RETRIES.attempts * _TIMEOUT_SECONDS)
_LOOK_AGAIN_SECONDS: Final = 1.0
_MOST_IDS: Final = 1000
# What a server tells one by one at most.
_MOST_COUNTED: Final = 1000


class ServerKeeper:
    """Asks a server. What its answers do not tell, is not known."""

    look_again_seconds = _LOOK_AGAIN_SECONDS

    def __init__(self, client: AsyncClient, *, url: str, tenant: str | None) -> None:
        self._client = client
        self._url = url
        self.schedules = ServerSchedules(client, self._told)
        self._tenant = tenant

    @property
    def whose(self) -> str:
        return f"the tenant {self._tenant!r}" if self._tenant else "the tenant of the API key"

    # -- jobs -------------------------------------------------------------------------------------

    async def submit(self, new: NewJob) -> Submitted:
        options: JobOptions = {}
        if new.delay:
            options["delay"] = new.delay
        if new.queue is not None:
            options["queue"] = new.queue
        if new.priority is not None:
            options["priority"] = new.priority
        if new.idempotency_key is not None:
            options["idempotency_key"] = new.idempotency_key
        if new.subject_id is not None:
            options["subject"] = new.subject_id
        if new.max_attempts is not None:
            options["max_attempts"] = new.max_attempts
        payload = msgspec.Raw(new.payload)
        accepted = await self._told(self._client.submit(new.job_type, payload, **options))
        return Submitted(accepted.job_id, accepted.duplicate)

    async def job(self, job_id: UUID) -> Whole:
        job = await self._told(self._client.job(job_id))
        history = await self._told(self._client.history(job_id))
        return Whole(job, [Happened(entry) for entry in history])

    async def status(self, job_id: UUID) -> StatusDocument:
        return await self._told(self._client.status(job_id))

    async def find(self, wanted: JobFilter, limit: int) -> Found:
        """One more than asked for tells whether there are more."""
        if wanted.statuses == DEAD:  # a list of its own there, which knows reasons
            found = self._client.dead_letters(
                job_type=sorted(wanted.job_types),
                queue=sorted(wanted.queues),
                subject=wanted.subject_id,
                reason=sorted(wanted.reasons),
                limit=limit + 1,
            )
        else:
            found = self._client.jobs(
                job_type=sorted(wanted.job_types),
                queue=sorted(wanted.queues),
                subject=wanted.subject_id,
                status=sorted(wanted.statuses),
                limit=limit + 1,
            )
        jobs = await self._told(_all(found))
        return Found(jobs[:limit], len(jobs) > limit)

    async def cancel(self, job_ids: Sequence[UUID]) -> list[Acted | GantlineError]:
        return await self._each(job_ids, lambda job_id: self._client.cancel(job_id))

    async def redrive(self, job_ids: Sequence[UUID]) -> list[Acted | GantlineError]:
        return await self._each(job_ids, lambda job_id: self._client.redrive(job_id))

    async def _each(
        self, job_ids: Sequence[UUID], act: Callable[[UUID], Awaitable[StatusDocument]]
    ) -> list[Acted | GantlineError]:
        """One after the other; where the server itself fails, the rest is not tried."""
        answers: list[Acted | GantlineError] = []
        for job_id in job_ids:
            try:
                before = await self._state(job_id)
                after = await self._told(act(job_id))
            except GantlineError as error:
                answers.append(error)
                if isinstance(error, ServerError | NotAuthenticated):
                    break
            else:
                answers.append(Acted(job_id, after.status, changed=after.state != before))
        return answers

    async def _state(self, job_id: UUID) -> str | None:
        """What is shown now; who may act need not be allowed to look."""
        try:
            return (await self._told(self._client.status(job_id))).state
        except Forbidden:
            return None

    async def redrive_dead(self, job_ids: Sequence[UUID], chosen_by: Mapping[str, Any]) -> int:
        redriven = 0
        for start in range(0, len(job_ids), _MOST_IDS):
            chosen = RedriveByFilter(job_ids=list(job_ids[start : start + _MOST_IDS]))
            report = await self._told(self._client.redrive_dead_letters(chosen))
            redriven += report.redriven
        return redriven

    async def delete(self, job_ids: Sequence[UUID]) -> int:
        deleted = 0
        for job_id in job_ids:
            try:
                await self._told(self._client.delete(job_id))
            except (ServerError, NotAuthenticated):
                raise
            except GantlineError:
                continue
            deleted += 1
        return deleted

    @property
    def webhooks(self) -> ServerWebhooks:
        return ServerWebhooks(self._client, self._url, _PATIENCE)

    # -- queues and types -------------------------------------------------------------------------

    async def queues(self) -> list[QueueDocument]:
        told = await self._told(self._client.queues(limit=_MOST_COUNTED))
        _say_omitted(told.omitted, "queues")
        return told.items

    async def pause_queue(self, queue: str, *, paused: bool) -> QueueState:
        switch = self._client.pause_queue if paused else self._client.resume_queue
        return await self._told(switch(queue))

    async def types(self) -> list[TypeSeen]:
        queued: Counter[str] = Counter()
        running: Counter[str] = Counter()
        for lane in await self.lanes():
            queued[lane.job_type] += lane.queued
            running[lane.job_type] += lane.running
        declared = {one.job_type: one for one in await self._told(self._client.job_types())}
        return [
            TypeSeen(
                name,
                queued[name],
                running[name],
                name in declared and declared[name].paused,
                name in declared and declared[name].disabled,
            )
            for name in sorted(set(queued) | set(declared))
        ]

    async def pause_type(self, job_type: str, *, paused: bool) -> JobTypeState:
        switch = self._client.pause_type if paused else self._client.resume_type
        return await self._told(switch(job_type))

    async def disable_type(self, job_type: str, *, disabled: bool) -> JobTypeState:
        switch = self._client.disable_type if disabled else self._client.enable_type
        return await self._told(switch(job_type))

    async def waiting(self, job_type: str) -> int:
        return (await self._told(self._client.statistics(job_type=[job_type]))).queued

    async def known(self, kind: Kind) -> Known:
        lanes = await self.lanes()
        names = (lane.queue if kind == "queue" else lane.job_type for lane in lanes)
        return Known(frozenset(names), served=None)

    async def audited_tenants(self, *, everywhere: bool) -> list[str]:
        """A server tells of one tenant; whose it is, it says with the first event."""
        if everywhere:
            raise InvalidInput(
                "A server tells of one tenant at a time.",
                next_step="Name it by --tenant, or name the store by --store.",
            )
        if self._tenant is not None:
            return [self._tenant]
        newest = self._client.audit_events(limit=1)
        return [event.tenant_id async for event in newest]

    def audit_events(
        self, tenant_id: str, wanted: AuditFilter = EVERYTHING
    ) -> AsyncIterator[AuditEvent | UnreadableEntry]:
        return self._client.audit_events(
            aggregate=wanted.aggregate,
            actor=wanted.actor,
            action=wanted.action,
            since=wanted.since,
        )

    async def lanes(self) -> list[LaneDocument]:
        told = await self._told(self._client.statistics(limit=_MOST_COUNTED))
        _say_omitted(told.lanes_omitted, "pairs of queue and type")
        return told.lanes

    async def _told(self, asked: Awaitable[R]) -> R:
        """Wait for an answer, but not in silence."""
        with told_when_slow(self._url, _PATIENCE):
            return await asked


def _say_omitted(omitted: int, what: str) -> None:
    if omitted:
        say(f"There are {omitted} more {what}; these are the fullest.")


async def _all(found: AsyncIterator[ListedJob]) -> list[ListedJob]:
    return [job async for job in found]


@asynccontextmanager
async def server_keeper(url: str, *, tenant: str | None) -> AsyncIterator[ServerKeeper]:
    """The API key comes from the environment, where no process list and no history shows it."""
    async with AsyncClient(
        url, tenant=tenant, timeout_seconds=_TIMEOUT_SECONDS, retries=_RETRIES
    ) as client:
        yield ServerKeeper(client, url=url, tenant=tenant)

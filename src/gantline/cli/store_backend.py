"""The store as the backend, for users who can reach it: jobs, queues, types, audit."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Unpack
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from gantline.api.documents import (
    AcceptedDocument,
    AttemptDocument,
    DeadSummary,
    ErrorDetail,
    JobDocument,
    JobTypeState,
    LaneDocument,
    QueuesDocument,
    QueueState,
    StatusDocument,
    WhyDocument,
    WorkerDocument,
)
from gantline.api.envelopes import read_envelope
from gantline.api.requests import DepthCap
from gantline.api.searching import FindOptions, find_each, make_filter
from gantline.api.tallies import lane_document, queue_document, queue_state, type_state
from gantline.api.views import (
    accepted_document,
    attempts_of,
    dead_summary,
    history_entry,
    job_document,
    listed_job,
    status_document,
    why_document,
)
from gantline.audit.chain import EVERYTHING, AuditChains, AuditEvent, AuditFilter, FaultyEntry
from gantline.auth.action import Action
from gantline.cli.backend import MOST_EVENTS, Found, Kind, Known, LoggedEntry, SeenEvent, TypeSeen
from gantline.cli.prepare import prepare, prepare_said
from gantline.cli.store_limits import StoreLimits
from gantline.cli.store_schedules import StoreSchedules
from gantline.cli.store_webhooks import StoreWebhooks
from gantline.cli.talk import notice_when_slow
from gantline.contract.domain_event import read_emitted
from gantline.contract.errors import GantlineError, JobNotFound, KeyTaken
from gantline.contract.query import JobFilter, LaneCounts
from gantline.contract.snapshot import JobSnapshot, LogEntry, LoggedEvent
from gantline.contract.status import DEAD
from gantline.contract.store import JobStore
from gantline.contract.wakeup import Hint
from gantline.manager.admission import DepthCaps
from gantline.manager.manager import Acted, JobManager, Submitted
from gantline.manager.sessions import live_sessions
from gantline.manager.submitter import Submission
from gantline.why.explain import explain

if TYPE_CHECKING:
    from gantline.cli.session import Cli

_LOOK_AGAIN_SECONDS: Final = 0.2
_PAGE: Final = 1000


class StoreBackend(StoreSchedules, StoreWebhooks, StoreLimits):
    """Reads and decides here; acts as the user of this host."""

    look_again_seconds = _LOOK_AGAIN_SECONDS
    """How often to look at a job that is watched."""
    unseen = ""
    """What to know where nothing is found: a sentence with a blank before it, or nothing."""

    def __init__(self, cli: "Cli", store: JobStore, *, label: str) -> None:
        self._cli = cli
        self._label = label
        self._store = store
        self._manager = JobManager(store, caps_of=self._caps_of)
        self._switches = self._manager.switches
        self._audit = cli.audit(store)

    @property
    def whose(self) -> str:
        """Whose jobs are meant, for people to read."""
        scope = self._cli.scope
        return "all tenants" if scope is None else f"the tenant {scope!r}"

    @property
    def _now(self) -> datetime:
        return self._cli.clock.now()

    def _caps_of(self, job_type: str, tenant_id: str) -> DepthCaps:
        """Only what submits asks for it: the application is not imported for anything else."""
        has_app = self._cli.settings["app"]
        return self._cli.app().caps_of(job_type, tenant_id) if has_app else DepthCaps()

    # -- jobs -------------------------------------------------------------------------------------

    async def submit(self, job_type: str, payload: msgspec.Raw, **options: Any) -> Submitted:
        """The payload is JSON text that is not checked yet."""
        return await self._submit(prepare(self._cli, job_type, payload, **options))

    async def submit_envelope(self, envelope: bytes) -> AcceptedDocument:
        said, ignored = read_envelope(envelope)
        submission = prepare_said(self._cli, said)
        done, subject = await self._submit(submission), submission.job.subject_id
        document = accepted_document("", done.job_id, subject, None, duplicate=done.duplicate)
        warnings = [ErrorDetail(pointer=pointer, detail=detail) for pointer, detail in ignored]
        return replace(document, warnings=warnings)

    async def _submit(self, submission: Submission) -> Submitted:
        (answer,) = await self._manager.submit([submission])
        if isinstance(answer, GantlineError):
            raise answer
        await self._cli.hint(self._store)
        return answer

    async def job(self, job_id: UUID) -> JobDocument:
        found, now = await self._get(job_id), self._cli.clock.now()
        return job_document(found, now, with_payload=True, with_error_type=True)

    async def log(self, job_id: UUID) -> list[LoggedEntry]:
        job = (await self._get(job_id)).job
        history = await self._store.history(job.job_id, tenant_id=job.tenant_id)
        return [_logged(row) for row in history]

    async def why(self, job_id: UUID) -> WhyDocument:
        return why_document(await explain(self._store, await self._get(job_id)))

    async def attempts(self, job_id: UUID) -> list[AttemptDocument]:
        job = await self._get(job_id)
        history = await self._store.history(job.job.job_id, tenant_id=job.job.tenant_id)
        return attempts_of(job, history, with_session=True, with_error_type=True)

    async def status(self, job_id: UUID) -> StatusDocument:
        with notice_when_slow(self._label, self._store.capabilities.patience):
            return status_document(await self._get(job_id), self._cli.clock.now())

    async def _get(self, job_id: UUID) -> JobSnapshot:
        (found,) = await self._manager.get([job_id], tenant_id=self._cli.scope)
        if found is None:
            raise JobNotFound(job_id)
        return found

    async def find(self, limit: int, **options: Unpack[FindOptions]) -> Found:
        """The newest jobs that match. Whose they are, the backend knows."""
        return await self._find(limit, make_filter(options, self._cli.tenant, self._now))

    async def find_dead(
        self, limit: int, reason: Sequence[str] = (), **options: Unpack[FindOptions]
    ) -> Found:
        """The newest dead letters that match."""
        dead: FindOptions = {**options, "status": DEAD}
        job_filter = make_filter(dead, self._cli.tenant, self._now)
        return await self._find(limit, replace(job_filter, reasons=frozenset(reason)))

    async def _find(self, limit: int, job_filter: JobFilter) -> Found:
        """One more than asked for shows whether there are more."""
        if self._cli.all_tenants:
            job_filter = replace(job_filter, tenant_id=None)
        now = self._now
        jobs = [
            listed_job(job, now, with_error_type=True)
            async for job in find_each(self._store, job_filter, limit + 1)
        ]
        return Found(jobs[:limit], len(jobs) > limit)

    async def dead_summary(self) -> DeadSummary:
        """How many dead letters there are, by type and reason."""
        return dead_summary(await self._store.dead_counts(tenant_id=self._cli.scope))

    async def events(
        self, last: int, *, follow: bool, is_chosen: Callable[[str], bool]
    ) -> AsyncIterator[SeenEvent]:
        """What happened to jobs of the chosen types: the last so many events, as far as they are
        among the newest MOST_EVENTS; then all that come, if followed."""

        def matching(page: Sequence[LoggedEvent]) -> list[LoggedEvent]:
            of_tenant = (one for one in page if self._cli.scope in (None, one.tenant_id))
            return [one for one in of_tenant if is_chosen(one.job_type)]

        position = await self._store.last_event()
        for event in await self._last_events(last, position, matching):
            for seen in _seen(event):
                yield seen
        while follow:
            page = await self._store.events(after=position, limit=_PAGE)
            for event in matching(page):
                for seen in _seen(event):
                    yield seen
            if page:
                position = page[-1].sequence
            else:
                await asyncio.sleep(self.look_again_seconds)

    async def _last_events(
        self, last: int, end: int, matching: Callable[[Sequence[LoggedEvent]], list[LoggedEvent]]
    ) -> list[LoggedEvent]:
        """Page back from the end, for the newest are often another tenant's."""
        found: list[LoggedEvent] = []
        start, least = end, max(0, end - MOST_EVENTS)
        while start > least and len(found) < last:
            before, start = start, max(least, start - _PAGE)
            page = await self._store.events(after=start, limit=before - start)
            found = matching([one for one in page if one.sequence <= before]) + found
        return found[-last:]

    async def cancel_each(self, job_ids: Sequence[UUID]) -> list[Acted | GantlineError]:
        await self._audit.jobs("cancelJob", Action.CANCEL, job_ids)
        answers = await self._manager.cancel(
            job_ids, tenant_id=self._cli.tenant, actor=self._cli.actor
        )
        await self._cli.hint(self._store, Hint.CANCEL)
        return answers

    async def redrive_each(self, job_ids: Sequence[UUID]) -> list[Acted | GantlineError]:
        await self._audit.jobs("redriveJob", Action.REDRIVE, job_ids)
        return await self._redriven(job_ids)

    async def _redriven(self, job_ids: Sequence[UUID]) -> list[Acted | GantlineError]:
        answers = await self._manager.redrive(
            job_ids, tenant_id=self._cli.tenant, actor=self._cli.actor
        )
        await self._cli.hint(self._store)
        return [
            KeyTaken(one.holder, is_shown=True) if isinstance(one, KeyTaken) else one
            for one in answers
        ]

    async def redrive_dead(self, job_ids: Sequence[UUID], chosen_by: Mapping[str, Any]) -> int:
        """Queue dead letters again; return how many could be. `chosen_by` is for the audit."""
        details = {"filter": chosen_by, "matching": len(job_ids)}
        operation = "redriveDeadLetters"
        await self._audit.done(operation, Action.REDRIVE, "dead-letters", details)
        await self._audit.jobs(operation, Action.REDRIVE, job_ids)
        return sum(isinstance(answer, Acted) for answer in await self._redriven(job_ids))

    async def delete_each(self, job_ids: Sequence[UUID]) -> list[UUID | GantlineError]:
        """Remove jobs that have ended, and all that is known of them."""
        await self._audit.jobs("deleteJob", Action.DELETE, job_ids)
        answers = await self._manager.delete(job_ids, tenant_id=self._cli.tenant)
        return [
            answer if isinstance(answer, GantlineError) else job_id
            for job_id, answer in zip(job_ids, answers, strict=True)
        ]

    # -- queues and types -------------------------------------------------------------------------

    async def queues(self) -> QueuesDocument:
        await self._switches.refresh()
        lanes: dict[str, list[LaneCounts]] = {}
        for lane in await self._store.counts(tenant_id=self._cli.scope):
            lanes.setdefault(lane.queue, []).append(lane)
        for queue in sorted(self._switches.paused_queues | self._switches.capped_queues):
            lanes.setdefault(queue, [])
        now = await self._store.ping()
        items = [
            queue_document(queue, counted, self._switches, now) for queue, counted in lanes.items()
        ]
        return QueuesDocument(items=items, omitted=0)

    async def pause_queue(self, queue: str) -> QueueState:
        await self._audit.done("pauseQueue", Action.MANAGE_QUEUES, f"queue:{queue}")
        await self._switches.pause_queue(queue, paused=True)
        return await self._queue_state(queue)

    async def resume_queue(self, queue: str) -> QueueState:
        await self._audit.done("resumeQueue", Action.MANAGE_QUEUES, f"queue:{queue}")
        await self._switches.pause_queue(queue, paused=False)
        return await self._queue_state(queue)

    async def cap_queue(
        self, queue: str, max_depth: int | None, *, per_tenant: int | UnsetType | None = UNSET
    ) -> QueueState:
        cap = DepthCap(max_depth=max_depth, max_depth_per_tenant=per_tenant)
        details = msgspec.to_builtins(cap)
        await self._audit.done("capQueue", Action.MANAGE_QUEUES, f"queue:{queue}", details)
        await self._switches.cap_queue(queue, max_depth, per_tenant=per_tenant)
        return await self._queue_state(queue)

    async def _queue_state(self, queue: str) -> QueueState:
        await self._cli.hint(self._store, Hint.SWITCHED)
        return queue_state(queue, self._switches)

    async def sessions(self) -> list[WorkerDocument]:
        found = await live_sessions(self._store)
        return msgspec.convert(found, list[WorkerDocument], from_attributes=True)

    async def types(self) -> list[TypeSeen]:
        await self._switches.refresh()
        queued: Counter[str] = Counter()
        running: Counter[str] = Counter()
        for lane in await self._store.counts(tenant_id=self._cli.scope):
            queued[lane.job_type] += lane.queued
            running[lane.job_type] += lane.running
        sessions = await live_sessions(self._store)
        workers = Counter(kind for session in sessions for kind in session.job_types)
        paused, disabled = self._switches.paused_types, self._switches.disabled_types
        return [
            TypeSeen(
                name, queued[name], running[name], workers[name], name in paused, name in disabled
            )
            for name in sorted(set(queued) | set(workers) | paused | disabled)
        ]

    async def pause_type(self, job_type: str) -> JobTypeState:
        await self._audit.done("pauseJobType", Action.MANAGE_TYPES, f"type:{job_type}")
        await self._switches.pause_type(job_type, paused=True)
        return await self._type_state(job_type)

    async def resume_type(self, job_type: str) -> JobTypeState:
        await self._audit.done("resumeJobType", Action.MANAGE_TYPES, f"type:{job_type}")
        await self._switches.pause_type(job_type, paused=False)
        return await self._type_state(job_type)

    async def disable_type(self, job_type: str) -> JobTypeState:
        await self._audit.done("disableJobType", Action.MANAGE_TYPES, f"type:{job_type}")
        await self._switches.disable_type(job_type, disabled=True)
        return await self._type_state(job_type)

    async def enable_type(self, job_type: str) -> JobTypeState:
        await self._audit.done("enableJobType", Action.MANAGE_TYPES, f"type:{job_type}")
        await self._switches.disable_type(job_type, disabled=False)
        return await self._type_state(job_type)

    async def _type_state(self, job_type: str) -> JobTypeState:
        await self._cli.hint(self._store, Hint.SWITCHED)
        return type_state(job_type, self._switches)

    async def waiting(self, job_type: str) -> int:
        """How many jobs of a type would fail if it were disabled, as far as can be seen."""
        lanes = await self._store.counts(tenant_id=None)
        return sum(lane.queued for lane in lanes if lane.job_type == job_type)

    async def known(self, kind: Kind) -> Known:
        lanes = await self._store.counts(tenant_id=None)
        sessions = await live_sessions(self._store)
        if kind == "queue":
            return Known(
                frozenset(lane.queue for lane in lanes),
                frozenset(name for session in sessions for name in session.queues),
            )
        return Known(
            frozenset(lane.job_type for lane in lanes),
            frozenset(name for session in sessions for name in session.job_types),
            self._cli.declared_types(),
        )

    # -- audit ------------------------------------------------------------------------------------

    async def audited_tenants(self, *, everywhere: bool) -> list[str]:
        """Whose audit chains can be read: that of the tenant, or all that there are."""
        return await AuditChains(self._store).tenants() if everywhere else [self._cli.tenant]

    def audit_trail(
        self, tenant_id: str, audit_filter: AuditFilter = EVERYTHING
    ) -> AsyncIterator[AuditEvent | FaultyEntry]:
        """The audit chain of a tenant, newest first; it may hold more than was asked for."""
        return AuditChains(self._store).events(tenant_id)

    # -- numbers ----------------------------------------------------------------------------------

    async def lanes(self) -> list[LaneDocument]:
        now = await self._store.ping()
        lanes = await self._store.counts(tenant_id=self._cli.scope)
        return [lane_document(lane, now) for lane in lanes]


def _logged(row: LogEntry) -> LoggedEntry:
    detail = row.error.detail if row.error else None
    return LoggedEntry(history_entry(row, with_session=True, with_error_type=True), detail)


def _seen(event: LoggedEvent) -> Iterator[SeenEvent]:
    """What a row of the log says: what was emitted with it, then what happened to its job."""
    entry = event.entry
    own = SeenEvent(
        at=entry.at,
        event=entry.event.value,
        job_id=entry.job_id,
        job_type=event.job_type,
        status=entry.status,
        reason=entry.reason,
        attempt=entry.attempt,
        error_code=entry.error.code if entry.error else None,
        error_message=entry.error.message if entry.error else None,
        tenant_id=event.tenant_id,
    )
    for one in read_emitted(entry.emitted):
        if not one.is_audit:
            about = f"{one.aggregate}:{one.aggregate_id}"
            yield own._replace(event=one.type, reason=about, attempt=None)
    yield own

"""The store as the keeper of the jobs, for who can reach it."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
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
from gantline.api.tallies import summed
from gantline.api.views import history_entry, job_document, listed_job, status_document
from gantline.app.job_type import JobType
from gantline.audit.chain import EVERYTHING, AuditChains, AuditEvent, AuditFilter, UnreadableEntry
from gantline.auth.action import Action
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
from gantline.cli.store_schedules import StoreSchedules
from gantline.cli.store_webhooks import StoreWebhooks
from gantline.cli.waiting import told_when_slow
from gantline.contract.errors import GantlineError, InvalidInput, JobNotFound
from gantline.contract.job import Job
from gantline.contract.query import Cursor, JobFilter, LaneCounts
from gantline.contract.snapshot import JobSnapshot, LogEntry
from gantline.contract.store import JobStore
from gantline.contract.wakeup import Hint
from gantline.manager.manager import Acted as ManagerActed
from gantline.manager.manager import JobManager
from gantline.manager.sessions import live_sessions
from gantline.manager.submitter import Submission

if TYPE_CHECKING:
    from gantline.cli.session import Cli

_LOOK_AGAIN_SECONDS: Final = 0.2
_PAGE: Final = 1000


class StoreKeeper:
    """Reads and decides here; acts as the user of this host."""

    look_again_seconds = _LOOK_AGAIN_SECONDS

    def __init__(self, cli: "Cli", store: JobStore, *, place: str) -> None:
        self._cli = cli
        self._place = place
        self._store = store
        self._manager = JobManager(store, max_depth_of=self._max_depth_of)
        self._switches = self._manager.switches
        self._audit = cli.audit(store)
        self.schedules = StoreSchedules(cli, store, self._manager, self._audit)

    @property
    def whose(self) -> str:
        return f"the tenant {self._cli.tenant!r}"

    def _max_depth_of(self, job_type: str) -> int | None:
        """Only what submits asks for it: the application is not imported for anything else."""
        return self._cli.app().max_depth_of(job_type) if self._cli.settings["app"] else None

    # -- jobs -------------------------------------------------------------------------------------

    async def submit(self, new: NewJob) -> Submitted:
        if self._cli.settings["app"]:
            submission = self._declared(new)
        else:
            say("No application is named (--app), so the payload is not checked.")
            submission = self._undeclared(new)
        (answer,) = await self._manager.submit([submission])
        if isinstance(answer, GantlineError):
            raise answer
        await self._cli.hint(self._store)
        return Submitted(answer.job_id, answer.duplicate)

    def _declared(self, new: NewJob) -> Submission:
        """The job as its declaration makes it: checked, with its subject, key and queue."""
        known = {one.name: one for one in self._cli.app().job_types}
        if new.job_type not in known:
            raise InvalidInput(
                f"The application declares no job {new.job_type!r}.",
                next_step=f"It declares {', '.join(sorted(known)) or 'none'}.",
            )
        declared = known[new.job_type]
        made = declared.prepare(
            _decoded(declared, new.payload),
            tenant=self._cli.tenant,
            delay=new.delay,
            subject=new.subject_id,
            **_asked(new, "queue", "priority", "idempotency_key", "max_attempts"),
        )
        return Submission(made.job, made.delay)

    def _undeclared(self, new: NewJob) -> Submission:
        job = Job(
            job_type=new.job_type,
            payload=msgspec.Raw(new.payload),
            tenant_id=self._cli.tenant,
            created_at=self._cli.clock.now(),
            **_asked(new, "queue", "priority", "idempotency_key", "subject_id", "max_attempts"),
        )
        return Submission(job, new.delay)

    async def job(self, job_id: UUID) -> Whole:
        found = await self._get(job_id)
        history = await self._manager.history(job_id, tenant_id=self._cli.tenant)
        now = self._cli.clock.now()
        document = job_document(found, now, with_payload=True, with_error_type=True)
        return Whole(document, [_happened(row) for row in history])

    async def status(self, job_id: UUID) -> StatusDocument:
        with told_when_slow(self._place, self._store.capabilities.patience):
            return status_document(await self._get(job_id), self._cli.clock.now())

    async def _get(self, job_id: UUID) -> JobSnapshot:
        (found,) = await self._manager.get([job_id], tenant_id=self._cli.tenant)
        if found is None:
            raise JobNotFound(job_id)
        return found

    async def find(self, wanted: JobFilter, limit: int) -> Found:
        wanted = msgspec.structs.replace(wanted, tenant_id=self._cli.tenant)
        now = self._cli.clock.now()
        jobs: list[ListedJob] = []
        after: Cursor | None = None
        while len(jobs) < limit:
            size = min(_PAGE, limit - len(jobs))
            page = await self._manager.find(wanted, limit=size, after=after)
            jobs += [listed_job(job, now, with_error_type=True) for job in page.items]
            after = page.next
            if after is None:
                break
        return Found(jobs, after is not None)

    async def cancel(self, job_ids: Sequence[UUID]) -> list[Acted | GantlineError]:
        await self._audit.jobs("cancelJob", Action.CANCEL, job_ids)
        answers = await self._manager.cancel(
            job_ids, tenant_id=self._cli.tenant, actor=self._cli.actor
        )
        await self._cli.hint(self._store, Hint.CANCEL)
        return [_acted(answer) for answer in answers]

    async def redrive(self, job_ids: Sequence[UUID]) -> list[Acted | GantlineError]:
        await self._audit.jobs("redriveJob", Action.REDRIVE, job_ids)
        return await self._redriven(job_ids)

    async def _redriven(self, job_ids: Sequence[UUID]) -> list[Acted | GantlineError]:
        answers = await self._manager.redrive(
            job_ids, tenant_id=self._cli.tenant, actor=self._cli.actor
        )
        await self._cli.hint(self._store)
        return [_acted(answer) for answer in answers]

    async def redrive_dead(self, job_ids: Sequence[UUID], chosen_by: Mapping[str, Any]) -> int:
        details = {"filter": chosen_by, "matching": len(job_ids)}
        operation = "redriveDeadLetters"
        await self._audit.done(operation, Action.REDRIVE, "dead-letters", details)
        await self._audit.jobs(operation, Action.REDRIVE, job_ids)
        return sum(isinstance(answer, Acted) for answer in await self._redriven(job_ids))

    async def delete(self, job_ids: Sequence[UUID]) -> int:
        await self._audit.jobs("deleteJob", Action.DELETE, job_ids)
        answers = await self._manager.delete(job_ids, tenant_id=self._cli.tenant)
        return sum(not isinstance(answer, GantlineError) for answer in answers)

    @property
    def webhooks(self) -> StoreWebhooks:
        return StoreWebhooks(self._cli, self._store)

    # -- queues and types -------------------------------------------------------------------------

    async def queues(self) -> list[QueueDocument]:
        await self._switches.refresh()
        lanes: dict[str, list[LaneCounts]] = {}
        for lane in await self._store.counts(tenant_id=self._cli.tenant):
            lanes.setdefault(lane.queue, []).append(lane)
        for queue in sorted(self._switches.paused_queues):
            lanes.setdefault(queue, [])
        now = await self._store.ping()
        return [
            QueueDocument(
                queue=queue,
                paused=queue in self._switches.paused_queues,
                max_depth=self._switches.depth_caps.get(queue),
                **summed(counted, now),
            )
            for queue, counted in lanes.items()
        ]

    async def pause_queue(self, queue: str, *, paused: bool) -> QueueState:
        operation = "pauseQueue" if paused else "resumeQueue"
        await self._audit.done(operation, Action.MANAGE_QUEUES, f"queue:{queue}")
        await self._switches.pause_queue(queue, paused=paused)
        await self._cli.hint(self._store, Hint.SWITCHED)
        caps = self._switches.depth_caps
        return QueueState(queue=queue, paused=paused, max_depth=caps.get(queue))

    async def types(self) -> list[TypeSeen]:
        await self._switches.refresh()
        queued: Counter[str] = Counter()
        running: Counter[str] = Counter()
        for lane in await self._store.counts(tenant_id=self._cli.tenant):
            queued[lane.job_type] += lane.queued
            running[lane.job_type] += lane.running
        sessions = await live_sessions(self._store)
        workers = Counter(kind for session in sessions for kind in session.job_types)
        paused, disabled = self._switches.paused_types, self._switches.disabled_types
        return [
            TypeSeen(
                name, queued[name], running[name], name in paused, name in disabled, workers[name]
            )
            for name in sorted(set(queued) | set(workers) | paused | disabled)
        ]

    async def pause_type(self, job_type: str, *, paused: bool) -> JobTypeState:
        operation = "pauseJobType" if paused else "resumeJobType"
        await self._audit.done(operation, Action.MANAGE_TYPES, f"type:{job_type}")
        await self._switches.pause_type(job_type, paused=paused)
        return await self._switched(job_type)

    async def disable_type(self, job_type: str, *, disabled: bool) -> JobTypeState:
        operation = "disableJobType" if disabled else "enableJobType"
        await self._audit.done(operation, Action.MANAGE_TYPES, f"type:{job_type}")
        await self._switches.disable_type(job_type, disabled=disabled)
        return await self._switched(job_type)

    async def _switched(self, job_type: str) -> JobTypeState:
        await self._cli.hint(self._store, Hint.SWITCHED)
        return JobTypeState(
            job_type=job_type,
            disabled=job_type in self._switches.disabled_types,
            paused=job_type in self._switches.paused_types,
        )

    async def waiting(self, job_type: str) -> int:
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
        )

    # -- audit ------------------------------------------------------------------------------------

    async def audited_tenants(self, *, everywhere: bool) -> list[str]:
        return await AuditChains(self._store).tenants() if everywhere else [self._cli.tenant]

    def audit_events(
        self, tenant_id: str, wanted: AuditFilter = EVERYTHING
    ) -> AsyncIterator[AuditEvent | UnreadableEntry]:
        return AuditChains(self._store).events(tenant_id)

    # -- numbers ----------------------------------------------------------------------------------

    async def lanes(self) -> list[LaneDocument]:
        now = await self._store.ping()
        return [
            LaneDocument(queue=lane.queue, job_type=lane.job_type, **summed([lane], now))
            for lane in await self._store.counts(tenant_id=self._cli.tenant)
        ]


def _decoded(declared: JobType[Any, Any], body: bytes) -> Any:
    codec = declared.handler.codec
    try:
        return codec.decode(body)
    except InvalidInput as error:
        fields = ", ".join(_fields_of(codec.schema()))
        next_step = f"It has the fields {fields}." if fields else ""
        raise InvalidInput(error.cause, next_step=next_step) from None


def _fields_of(schema: dict[str, Any]) -> list[str]:
    """The fields as they are called in JSON, in their order; none where it is no object."""
    name = schema.get("$ref", "").rpartition("/")[2]
    return list(schema.get("$defs", {}).get(name, schema).get("properties", {}))


def _asked(new: NewJob, *names: str) -> dict[str, Any]:
    """What was said; the rest has its default."""
    return {name: value for name in names if (value := getattr(new, name)) is not None}


def _acted(answer: ManagerActed | GantlineError) -> Acted | GantlineError:
    if isinstance(answer, GantlineError):
        return answer
    return Acted(answer.job_id, answer.status, answer.changed)


def _happened(row: LogEntry) -> Happened:
    detail = row.error.detail if row.error else None
    return Happened(history_entry(row, with_session=True, with_error_type=True), detail)

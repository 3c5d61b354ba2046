"""explain: why a job waits, the reason that matters most first. Reads, and never writes."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from gantline.contract.clock import later
from gantline.contract.snapshot import SUSPECT_AFTER_CRASHES, JobSnapshot
from gantline.contract.status import Event, JobStatus, Reason
from gantline.contract.store import JobStore
from gantline.flow.limits import Limits
from gantline.manager.orphans import ORPHANS
from gantline.manager.sessions import Session, live_sessions
from gantline.manager.switches import Switches
from gantline.why import reasons
from gantline.why.fleet import Room, read_runs, room_in
from gantline.why.held_back import held_back
from gantline.why.reasons import MOST_AHEAD, WaitReason


class View(StrEnum):
    """How much the caller may know."""

    INSTALLATION = "installation"
    """All: who may see the workers, and the store's own holder."""
    TENANT = "tenant"
    """What all tenants share, and how much its own tenant has waiting."""
    JOB = "job"
    """What all tenants share: switches, and whether anybody serves the job."""


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job waits, or that it does not. The first reason is the one that matters most."""

    job: JobSnapshot
    at: datetime
    """The time of the store."""
    reasons: Sequence[WaitReason]

    def __str__(self) -> str:
        return "\n".join(f"{one.code}: {one.text(self.at)}" for one in self.reasons)


async def explain(store: JobStore, job: JobSnapshot, *, view: View = View.INSTALLATION) -> Why:
    """Say why a job waits. It is read anew, for what was read before may not hold any more."""
    (current,) = await store.get([job.job.job_id], tenant_id=job.job.tenant_id)
    job, now = current or job, await store.ping()
    return Why(job=job, at=now, reasons=await _Question(store, job, now, view).ask())


class _Question:
    def __init__(self, store: JobStore, job: JobSnapshot, now: datetime, view: View) -> None:
        self._store = store
        self._job = job
        self._now = now
        self._sees_all = view is View.INSTALLATION
        self._sees_tenant = view is not View.JOB
        self._switches = Switches(store)
        self._limits = Limits(store)

    async def ask(self) -> list[WaitReason]:
        if self._job.status is JobStatus.QUEUED and self._job.run_at is not None:
            return await self._why_queued(self._job.run_at)
        if self._job.run is not None:
            return await self._why_running()
        return self._how_ended()

    # -- Queued -----------------------------------------------------------------------------------

    async def _why_queued(self, due_at: datetime) -> list[WaitReason]:
        await self._switches.refresh()
        held_up = self._switched() + await self._unserved()
        if due_at > self._now:
            not_yet = self._not_yet(due_at)
            # Of a closed store nothing is ever claimed.
            at = sum(isinstance(one, reasons.StoreIsClosed) for one in held_up)
            return [*held_up[:at], not_yet, *held_up[at:]]
        return held_up or await self._in_line(due_at)

    def _not_yet(self, due_at: datetime) -> WaitReason:
        job, last = self._job, self._job.last
        match last.event if last else None:
            case Event.RETRIED:
                error = last.error if last else None
                return reasons.Retrying(
                    due_at=due_at,
                    attempt=job.attempt,
                    max_attempts=job.job.max_attempts,
                    error_code=error.code if error else "",
                    error_message=error.message if error else "",
                )
            case Event.CRASHED:
                return reasons.Crashed(due_at=due_at, crashes=job.crashes)
            case Event.SNOOZED:
                is_throttled = last is not None and last.reason is Reason.THROTTLED
                why = reasons.Throttled if is_throttled else reasons.Snoozed
                return why(due_at=due_at, snoozes=job.snoozes)
            case _:
                return reasons.Scheduled(due_at=due_at)

    def _switched(self) -> list[WaitReason]:
        job, switches = self._job.job, self._switches
        found: list[WaitReason] = []
        if (closed := switches.closed) is not None:
            shown = self._sees_all
            found.append(
                reasons.StoreIsClosed(
                    since=closed.since,
                    has_moved=closed.has_moved,
                    copied_to=closed.copied_to if shown else None,
                    by=closed.by if shown else None,
                )
            )
        if job.queue in switches.paused_queues:
            found.append(reasons.QueuePaused(queue=job.queue))
        if job.job_type in switches.paused_types:
            found.append(reasons.TypePaused(job_type=job.job_type))
        if job.job_type in switches.disabled_types:
            found.append(reasons.TypeDisabled(job_type=job.job_type))
        return found

    async def _unserved(self) -> list[WaitReason]:
        """Why nobody would run it. Note who would."""
        queue, job_type = self._job.job.queue, self._job.job.job_type
        sessions = await live_sessions(self._store)
        serving = [one for one in sessions if queue in one.queues]
        able = [one for one in serving if job_type in one.job_types]
        self._ready = [one for one in able if not one.draining]
        if self._ready:
            return []
        if not sessions:
            return [reasons.NoWorkers()]
        if not serving:
            return [reasons.QueueNotServed(queue=queue, workers=self._shown(len(sessions)))]
        if able:
            return [reasons.WorkersDraining(workers=self._shown(len(able)))]
        elsewhere = sum(job_type in one.job_types for one in sessions)
        return [
            reasons.TypeNotHandled(
                job_type=job_type,
                queue=queue,
                workers=self._shown(len(sessions)),
                serving=self._shown(len(serving)),
                elsewhere=self._shown(elsewhere),
                poisoned_at=None if elsewhere else await self._given_up_at(job_type, sessions),
            )
        ]

    async def _given_up_at(self, job_type: str, sessions: Sequence[Session]) -> datetime | None:
        """When the maintenance gives up, if it has noticed that nobody has the type."""
        graces = [one.no_handler_grace_seconds for one in sessions]
        shortest = min((one for one in graces if one is not None), default=None)
        if shortest is None:
            return None
        for record in await self._store.read_records(ORPHANS, prefix=job_type, limit=1):
            if record.key == job_type:
                since = msgspec.json.decode(record.value, type=datetime)
                return later(since, timedelta(seconds=shortest))
        return None

    async def _in_line(self, due_at: datetime) -> list[WaitReason]:
        is_suspect = self._job.crashes >= SUSPECT_AFTER_CRASHES
        rooms: list[Room] = []
        if self._sees_all:
            runs = await read_runs(self._store)
            rooms = [room_in(one, runs.get(one.session_id, ()), self._job) for one in self._ready]
        await self._limits.refresh()
        found: list[WaitReason] = [
            *await held_back(
                self._store,
                self._limits,
                self._job,
                self._now,
                sees_tenant=self._sees_tenant,
                sees_all=self._sees_all,
            )
        ]
        if rooms and not any(room.free for room in rooms):
            found.append(
                reasons.NoFreeSlot(
                    workers=len(rooms),
                    slots=sum(room.slots for room in rooms),
                    running=sum(len(room.runs) for room in rooms),
                    is_alone=any(room.is_alone for room in rooms),
                )
            )
        if is_suspect:
            running = sum(room.suspects for room in rooms) if self._sees_all else None
            found.append(reasons.Suspect(crashes=self._job.crashes, running=running))
        if (ahead := await self._ahead()) is not None:
            found.append(ahead)
        if not self._sees_all:
            return [*found, reasons.InLine(since=due_at)]
        if not found:
            free = [room.session for room in rooms if room.free]
            found.append(reasons.Due(since=due_at, workers=_names(free)))
        return _with_trouble(found, self._ready)

    async def _ahead(self) -> reasons.JobsAhead | None:
        if not self._sees_tenant:
            return None
        job = self._job.job
        kinds = {kind for session in self._ready for kind in session.job_types}
        counted = await self._store.ahead(
            job.job_id,
            sorted(kinds - self._switches.paused_types),
            tenant_id=None if self._sees_all else job.tenant_id,
            limit=MOST_AHEAD + 1,
        )
        if not counted:
            return None
        is_more = sum(counted.values()) > MOST_AHEAD
        counted[max(counted)] -= is_more
        return reasons.JobsAhead(
            jobs=sum(counted.values()),
            is_more=is_more,
            by_priority=dict(sorted(counted.items())),
            priority=self._job.priority,
            is_of_tenant=not self._sees_all,
        )

    def _shown(self, workers: int) -> int | None:
        return workers if self._sees_all else None

    # -- Running, ended ---------------------------------------------------------------------------

    async def _why_running(self) -> list[WaitReason]:
        job, run = self._job, self._job.run
        assert run is not None  # noqa: S101  # for the type checker
        sessions = await live_sessions(self._store)
        session = run.session if self._sees_tenant else None
        found: list[WaitReason] = []
        if run.lease_until <= self._now:
            found.append(
                reasons.LeaseExpired(
                    until=run.lease_until,
                    workers=self._shown(len(sessions)),
                    is_maintained=any(one.no_handler_grace_seconds is not None for one in sessions),
                )
            )
        elif all(one.session_id != run.session for one in sessions):
            found.append(reasons.WorkerGone(session=session, lease_until=run.lease_until))
        if run.cancel_requested:
            asked = job.last if job.last and job.last.event is Event.CANCEL_REQUESTED else None
            found.append(
                reasons.CancelRequested(
                    at=asked.at if asked else None, actor=asked.actor if asked else ""
                )
            )
        found.append(
            reasons.Running(
                session=session,
                since=run.started_at,
                lease_until=run.lease_until,
                percent=run.percent,
                phase=run.phase,
            )
        )
        return found

    def _how_ended(self) -> list[WaitReason]:
        last = self._job.last
        error = last.error if last else None
        return [
            reasons.Ended(
                status=self._job.status,
                at=last.at if last else self._now,
                reason=last.reason if last else "",
                error_code=error.code if error else None,
                error_message=error.message if error else None,
                actor=last.actor if last else "",
            )
        ]


def _names(sessions: Sequence[Session]) -> tuple[str, ...]:
    """Who registered the longest ago comes first."""
    return tuple(one.session_id for one in sorted(sessions, key=lambda one: one.last_seen_at))


def _with_trouble(found: list[WaitReason], ready: Sequence[Session]) -> list[WaitReason]:
    """Say which workers say that they are not ready; first, where all of them say so."""
    troubled = [one for one in ready if one.trouble]
    if not troubled:
        return found
    first = min(troubled, key=lambda one: one.last_seen_at)
    trouble = reasons.WorkersNotReady(workers=_names(troubled), trouble=first.trouble)
    return [trouble, *found] if len(troubled) == len(ready) else [*found, trouble]

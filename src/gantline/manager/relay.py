"""The relay: moves jobs from an outbox, a SQL database of the user's own, into the store.

A job is put into the outbox in the user's transaction, as the payload of a job there. The relay
claims it, inserts it into the store under its own id, and only then ends it in the outbox. Whatever
it dies at, the next one repeats: an id that is in the store already is the job itself.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from gantline.contract.clock import later
from gantline.contract.errors import InvalidInput, SessionNotRegistered, SubmitConflict
from gantline.contract.job import Job, read_job
from gantline.contract.outcome import ErrorInfo, Success
from gantline.contract.query import JobFilter, LaneRequest
from gantline.contract.results import Applied, Conflict, InsertResult
from gantline.contract.snapshot import JobSnapshot, Run
from gantline.contract.status import JobStatus, Reason
from gantline.contract.store import JobStore
from gantline.contract.submission import NewJob
from gantline.contract.transition import StateGuard, Transition
from gantline.contract.version import __version__
from gantline.manager.manager import JobManager
from gantline.manager.sessions import Session, register
from gantline.runtime import new_uuid, process

_log = logging.getLogger("gantline.relay")

OUTBOX: Final = "gantline.outbox"
"""The queue and the type of jobs that wait in an outbox."""

_BATCH: Final = 200
# Nothing of a job runs here, so one that was in crashes of relays is moved like any other.
_REQUESTS: Final = (
    LaneRequest(OUTBOX, (OUTBOX,), _BATCH),
    LaneRequest(OUTBOX, (OUTBOX,), _BATCH, suspects=(_BATCH,)),
)
_LEASE: Final = timedelta(seconds=30)
_NO_TIME: Final = timedelta(0)

Insert = Callable[[Sequence[NewJob]], Awaitable[list[InsertResult]]]


def wrapped(new: NewJob, now: datetime) -> NewJob:
    """A prepared job as it is put into an outbox. Its envelope says when it is due."""
    job = new.job
    if new.delay and job.scheduled_at is None:
        job = msgspec.structs.replace(job, scheduled_at=later(now, new.delay))
    return NewJob(
        Job(
            job_id=job.job_id,
            job_type=OUTBOX,
            queue=OUTBOX,
            tenant_id=job.tenant_id,
            subject_id=job.subject_id,
            correlation_id=job.correlation_id,
            priority=job.priority,
            payload=msgspec.Raw(job.to_json()),
            created_at=job.created_at,
            external_id=job.external_id,
        ),
        new.fingerprint,
    )


class OutboxRelay:
    """Move what waits in an outbox. Any number of them may run at once."""

    def __init__(
        self,
        outbox: JobStore,
        insert: Insert,
        session: str,
        *,
        prepare: Callable[[Job], NewJob],
    ) -> None:
        """`prepare` checks a job and says when it is due; `insert` stores jobs durably."""
        self._outbox = outbox
        self._insert = insert
        self._session = session
        self._prepare = prepare

    async def run_once(self) -> int:
        """Move one batch; return how many were in it. Raises what either store raises."""
        try:
            runs = await self._claim()
        except SessionNotRegistered:
            await self._register()
            runs = await self._claim()
        if runs:
            await self._move(runs)
        return len(runs)

    async def _claim(self) -> list[Run]:
        return await self._outbox.claim(self._session, new_uuid(), _REQUESTS, lease=_LEASE)

    async def _register(self) -> None:
        (host, pid), now = process(), await self._outbox.ping()
        session = Session(
            session_id=self._session,
            host=host,
            pid=pid,
            version=__version__,
            started_at=now,
            last_seen_at=now,
            queues={OUTBOX: _BATCH},
            job_types=(OUTBOX,),
        )
        await register(self._outbox, session)

    async def _move(self, runs: Sequence[Run]) -> None:
        prepared = [self._prepared(run) for run in runs]
        try:
            ready = [new for new in prepared if isinstance(new, NewJob)]
            answers = iter(await self._insert(ready) if ready else ())
        except BaseException:
            # So that the next attempt need not wait for the lease.
            await self._outbox.apply([Transition.released(run) for run in runs])
            raise
        endings = [
            _ending(run, next(answers)) if isinstance(new, NewJob) else _failed(run, new)
            for run, new in zip(runs, prepared, strict=True)
        ]
        ended = await self._outbox.apply(endings)
        await self._remove(
            [
                run.job
                for run, ending, answer in zip(runs, endings, ended, strict=True)
                if ending.to is JobStatus.COMPLETED and isinstance(answer, Applied)
            ]
        )

    def _prepared(self, run: Run) -> NewJob | ErrorInfo:
        try:
            return self._prepare(read_job(bytes(run.job.payload)))
        except InvalidInput as error:
            return ErrorInfo(error.code, error.cause)

    async def sweep(self) -> int:
        """Take up what others left when they died, at any step; return how many."""
        return await self._give_back() + await self._redrive() + await self._tidy_up()

    async def _give_back(self) -> int:
        """Not by the reaper: a relay that dies says nothing against the job that it moved."""
        expired = await self._outbox.expired(limit=_BATCH)
        ours = [Transition.released(run) for run in expired if run.job.job_type == OUTBOX]
        answers = await self._outbox.apply(ours) if ours else []
        return sum(isinstance(answer, Applied) for answer in answers)

    async def _redrive(self) -> int:
        """Where the outbox has workers of its own, their reaper may have given a job up."""
        lost = await self._find(JobStatus.POISONED, frozenset({Reason.LEASE_EXPIRED}))
        if lost:
            await JobManager(self._outbox).redrive(
                [found.job.job_id for found in lost], tenant_id=None, actor="gantline relay"
            )
        return len(lost)

    async def _tidy_up(self) -> int:
        moved = [found.job for found in await self._find(JobStatus.COMPLETED)]
        await self._remove(moved)
        return len(moved)

    async def _remove(self, moved: Sequence[Job]) -> None:
        """An outbox keeps only what has still to be moved, and what could not be."""
        done = [(job.job_id, StateGuard(JobStatus.COMPLETED, job.tenant_id)) for job in moved]
        if done:
            await self._outbox.delete(done)

    async def _find(
        self, status: JobStatus, reasons: frozenset[str] = frozenset()
    ) -> Sequence[JobSnapshot]:
        job_filter = JobFilter(
            tenant_id=None,
            job_types=frozenset({OUTBOX}),
            statuses=frozenset({status}),
            reasons=reasons,
        )
        return (await self._outbox.find(job_filter, limit=_BATCH)).items


def _ending(run: Run, answer: InsertResult) -> Transition:
    if not isinstance(answer, Conflict):
        return Transition.completed(run, Success(), hold_key=_NO_TIME)
    code = SubmitConflict.of(answer.by).code
    return _failed(run, ErrorInfo(code, "The id or the key belongs to a job with another payload."))


def _failed(run: Run, error: ErrorInfo) -> Transition:
    _log.error("job %s cannot leave the outbox: %s %s", run.job.job_id, error.code, error.message)
    return Transition.failed(run, error, Reason.PERMANENT_ERROR)

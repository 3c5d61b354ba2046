"""A handle: what a submitter holds of a job, to ask for its status and wait for its result."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast
from uuid import UUID

from gantline.contract.errors import (
    GantlineError,
    InvalidInput,
    InvalidPayload,
    JobNotFound,
    Problem,
    SubmitConflict,
)
from gantline.contract.not_completed import NOT_COMPLETED
from gantline.contract.results import Conflict, Duplicate, InsertResult
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.status import JobStatus
from gantline.contract.submission import NewJob
from gantline.contract.wakeup import Hint
from gantline.telemetry.store_names import store_name
from gantline.why.explain import Why, explain

if TYPE_CHECKING:
    from gantline.app.gantline import Gantline
    from gantline.contract.codec import Codec

_log = logging.getLogger("gantline.app")

_NOTICE_SECONDS: Final = 10.0

R_co = TypeVar("R_co", covariant=True)
A = TypeVar("A")


class Handle(Generic[R_co]):
    """One submitted job; `duplicate` when it had been submitted before."""

    def __init__(
        self,
        app: "Gantline",
        job_id: UUID,
        tenant_id: str,
        *,
        subject_id: str = "",
        duplicate: bool = False,
        codec: "Codec[Any] | None" = None,
        is_on_its_way: bool = False,
        external_id: UUID | None = None,
        warnings: Sequence[Problem] = (),
    ) -> None:
        """`is_on_its_way`: it may not be in the store yet, but in an outbox.

        A repeat that comes out of an outbox is not stored: its external id finds the job.
        """
        self.app = app
        self._tenant_id = tenant_id
        self._codec = codec
        self._is_on_its_way = is_on_its_way
        self._ids = [job_id, *([external_id] if is_on_its_way and external_id else ())]
        self.job_id = job_id
        self.subject_id = subject_id
        self.duplicate = duplicate
        self.warnings = tuple(warnings)
        """What was ignored of an envelope."""

    @classmethod
    def of(
        cls, app: "Gantline", new: NewJob, answer: InsertResult, **options: Any
    ) -> "Handle[R_co]":
        """The handle of a job that was submitted; raise SubmitConflict where it could not be."""
        if isinstance(answer, Conflict):
            raise SubmitConflict.of(answer.by)
        existing = answer.existing if isinstance(answer, Duplicate) else None
        return cls(
            app,
            existing or new.job.job_id,
            new.job.tenant_id,
            subject_id=new.job.subject_id,
            duplicate=existing is not None,
            external_id=new.job.external_id,
            **options,
        )

    def __repr__(self) -> str:
        return f"<Handle {self.job_id}>"

    async def status(self) -> JobSnapshot:
        """Read the job as it stands."""
        await self.app.ready()
        found = await self.app.snapshots.get(self._ids, tenant_id=self._tenant_id)
        job = next(filter(None, found), None)
        if job is None:
            raise JobNotFound(self.job_id)
        return job

    async def wait(self, timeout: float | timedelta | None = None) -> JobSnapshot:  # noqa: ASYNC109  # a wait for a job, not for this call
        """Wait until the job has ended; raise TimeoutError after `timeout`."""
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        job = await self._status_if_there()
        if job is None or not job.status.is_terminal:
            job = await self._until_ended(job, seconds)
        if job is not None and job.job.tenant_id != self._tenant_id:
            raise JobNotFound(self.job_id)  # it was looked for without asking for the tenant
        if job is None or not job.status.is_terminal:
            raise TimeoutError(self._still(job, seconds))
        return job

    async def _until_ended(
        self, job: JobSnapshot | None, seconds: float | None
    ) -> JobSnapshot | None:
        """Wait, and say after a while what may be missing."""
        first = _NOTICE_SECONDS if seconds is None else min(seconds, _NOTICE_SECONDS)
        job_id = self.job_id if job is None else job.job.job_id
        wait = self.app.waiter.wait
        job = await wait(job_id, first, is_on_its_way=job is None) or job
        if first == seconds or (job is not None and job.status.is_terminal):
            return job
        if job is None or (job.run_at is not None and job.run_at <= self.app.clock.now()):
            _log.warning("%s", self._still(job, first))
        rest = None if seconds is None else seconds - first
        return await wait(job_id, rest, is_on_its_way=job is None) or job

    async def _status_if_there(self) -> JobSnapshot | None:
        try:
            return await self.status()
        except JobNotFound:
            if self._is_on_its_way:
                return None
            raise

    def _still(self, job: JobSnapshot | None, seconds: float | None) -> str:
        if job is None:
            return (
                f"Job {self.job_id} is still in the outbox after {seconds:g} s; "
                "was its transaction committed, and does a worker run?"
            )
        return (
            f"Job {self.job_id} is still {job.status} in "
            f"{store_name(self.app.store, self.app.store_source)} after {seconds:g} s. "
            "Does a worker run on the same store? `gantline doctor` shows it."
        )

    async def result(self, timeout: float | timedelta | None = None) -> R_co:  # noqa: ASYNC109  # as above
        """Wait for the result; raise JobFailed, JobPoisoned or JobCancelled if there is none.

        It has the type that the handler declares; None where the job type omits its results.
        """
        job = await self.wait(timeout)
        if not_completed := NOT_COMPLETED.get(job.status):
            error = job.last.error if job.last else None
            code, message = (error.code, error.message) if error else (None, None)
            raise not_completed(self.job_id, job, code, message)
        body = job.last.result if job.last else None
        if body is None or self._codec is None:
            return cast("R_co", None)
        try:
            return cast("R_co", self._codec.decode(body))
        except InvalidPayload as invalid:
            why = " ".join(invalid.problems[0])
            raise InvalidInput(f"The stored result is not of the declared type: {why}.") from None

    async def why(self) -> Why:
        """Say why the job waits: what hinders it, the reason that matters most first."""
        return await explain(self.app.store, await self.status())

    async def cancel(self, *, actor: str = "") -> JobStatus:
        """Cancel the job; Running means that its run was asked to stop."""
        await self.app.ready()
        answers = await self.app.manager.cancel(
            [self.job_id], tenant_id=self._tenant_id, actor=actor
        )
        if isinstance(answers[0], GantlineError):
            raise answers[0]
        self.app.wakeup.notify(Hint.CANCEL, job_id=answers[0].job_id)
        return answers[0].status


class SyncHandle(Generic[R_co]):
    """A handle for code that is not async: its methods block, in any thread, also after a fork."""

    def __init__(self, handle: Handle[R_co]) -> None:
        self._handle = handle
        self.job_id = handle.job_id
        self.subject_id = handle.subject_id
        self.duplicate = handle.duplicate
        self.warnings = handle.warnings

    def __repr__(self) -> str:
        return f"<SyncHandle {self.job_id}>"

    def status(self) -> JobSnapshot:
        """Read the job as it stands."""
        return self._run(self._handle.status)

    def wait(self, timeout: float | timedelta | None = None) -> JobSnapshot:
        """Wait until the job has ended; raise TimeoutError after `timeout`."""
        return self._run(lambda: self._handle.wait(timeout))

    def result(self, timeout: float | timedelta | None = None) -> R_co:
        """Wait for the result; raise JobFailed, JobPoisoned or JobCancelled if there is none."""
        return self._run(lambda: self._handle.result(timeout))

    def why(self) -> Why:
        """Say why the job waits: what hinders it, the reason that matters most first."""
        return self._run(self._handle.why)

    def cancel(self, *, actor: str = "") -> JobStatus:
        """Cancel the job; Running means that its run was asked to stop."""
        return self._run(lambda: self._handle.cancel(actor=actor))

    def _run(self, make: Callable[[], Awaitable[A]]) -> A:
        return self._handle.app.run_sync(make)

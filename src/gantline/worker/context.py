"""The context of a run: what a handler may ask and report while it works."""

import asyncio
import logging
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, Final, Protocol, TypeVar, Unpack, overload
from uuid import UUID

from msgspec import UNSET

from gantline.contract.codec import Codec, encode_result
from gantline.contract.domain_event import Emitted, encode_emitted
from gantline.contract.errors import Code, InvalidInput, Permanent, RunOver
from gantline.contract.job import Job
from gantline.contract.outcome import Success
from gantline.contract.results import Applied
from gantline.contract.snapshot import Progress, Run
from gantline.contract.store import JobStore, StoreTransaction
from gantline.contract.submission import DedupeKey, KeyKind, NewJob, SubmitOptions
from gantline.contract.transition import Transition
from gantline.manager.manager import Ending, JobManager, Settled
from gantline.runtime import monotonic
from gantline.worker.run_log import labels_of

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)

_log = logging.getLogger("gantline.worker")

ONCE_HELD_FOR = timedelta(days=7)


class Preparable(Protocol):
    """A job type that can prepare a job without storing it."""

    @property
    def prepare(self) -> Callable[..., NewJob]: ...


class OfOne(Preparable, Protocol[T_contra, R_co]):
    """A job type whose function takes one argument: its value is the payload."""

    async def send(self, argument: T_contra, /) -> R_co: ...


AnyId = str | UUID | None
ByName = Mapping[str, Any] | None
"""The payload of any other: its arguments, if it has some."""


class RunPort(Protocol):
    """What a context needs of the runtime."""

    @property
    def audits(self) -> bool:
        """Whether somebody hands on what is to be audited."""
        ...

    def progress(self, update: Progress) -> Awaitable[None]:
        """To be awaited on the loop; elsewhere it is enough to call it."""
        ...

    def prepare(self, job_type: Any, payload: Any, options: SubmitOptions) -> NewJob: ...

    async def is_held(self, key: DedupeKey) -> bool: ...

    def transaction(self) -> AbstractAsyncContextManager[StoreTransaction]: ...

    def decide(self, run: Run, success: Success) -> Transition: ...


EVENTS_A_RUN: Final = 100
_PAUSE_SECONDS: Final = 1.0


class ProgressLog:
    """Which of the progress that a run reports becomes an event.

    Once a second and at each new phase, but only so often a run; the status shows all of it.
    """

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._left = EVENTS_A_RUN
        self._clock = clock
        self._phase: str | None = None
        self._next_at = 0.0

    def admits(self, phase: str) -> bool:
        """Whether progress that is reported now is to be logged."""
        if not self._left or (phase == self._phase and self._clock() < self._next_at):
            return False
        self._left -= 1
        self._phase, self._next_at = phase, self._clock() + _PAUSE_SECONDS
        return True


class RunStopped(asyncio.CancelledError):
    """The run is to stop: raised in handlers, which need not catch it.

    Like any CancelledError it is no `Exception`, so that code which catches those lets it pass.
    """


class Context:
    """One run, as its handler sees it. Usable from the loop and, but for `await`, from threads."""

    def __init__(
        self,
        run: Run,
        port: RunPort,
        *,
        deadline: datetime,
        state: Any,
        result_codec: Codec[Any] | None,
        progress_log: ProgressLog | None = None,
    ) -> None:
        self._run = run
        self._result_codec = result_codec
        self._progress_log = progress_log
        self._port = port
        self._loop = asyncio.get_running_loop()
        self._is_stopping = False
        self.saw_stop = False
        self.deadline = deadline
        self.state = state
        """What the application's lifespan opened."""
        self.settled: Settled | None = None
        """What a transaction of the handler's own wrote, if it completed the run."""
        self.follow_ups: list[NewJob] = []
        self.once_keys: list[DedupeKey] = []
        self._emitted: list[Emitted] = []

    @property
    def job(self) -> Job:
        return self._run.job

    @property
    def job_id(self) -> UUID:
        return self._run.job.job_id

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._run.attempt

    @property
    def run_token(self) -> UUID:
        """Random and new per run; hand it to systems that can refuse an older run's writes."""
        return self._run.token

    @property
    def fence(self) -> int:
        """Grows with every run of the job; orders what `run_token` distinguishes."""
        return self._run.fence

    @property
    def trace_context(self) -> Mapping[str, str]:
        """The W3C trace context that the job was submitted in; empty where there was none."""
        return self._run.job.trace_context or {}

    @property
    def is_settled(self) -> bool:
        """Whether the run was completed in a transaction of the handler's own."""
        return self.settled is not None

    @property
    def labels(self) -> Mapping[str, object]:
        """What the run's log lines are labelled with."""
        return labels_of(self._run)

    @property
    def logger(self) -> "logging.LoggerAdapter[logging.Logger]":
        """A logger that labels every line with the job; never with its payload."""
        return logging.LoggerAdapter(_log, self.labels)

    @property
    def cancelled(self) -> bool:
        """Whether the handler should stop: cancelled, timed out, shut down, or its lease lost.

        Once a handler has read true here, what it returns is not used: why it was stopped decides
        how its run ends. One that returns without having seen the stop has completed its job.
        """
        if self._is_stopping:
            self.saw_stop = True
        return self.saw_stop

    def raise_if_cancelled(self) -> None:
        """Raise RunStopped if the handler should stop, as `cancelled` says. For any thread."""
        if self.cancelled:
            raise RunStopped(f"This run of job {self.job_id} was stopped.")

    @overload
    def until_cancelled(self, items: Iterable[T]) -> Iterator[T]: ...

    @overload
    def until_cancelled(self, items: AsyncIterable[T]) -> AsyncIterator[T]: ...

    def until_cancelled(
        self, items: Iterable[T] | AsyncIterable[T]
    ) -> Iterator[T] | AsyncIterator[T]:
        """Give the items, for `for` or `async for`; raise RunStopped instead of a further one.

        So what follows the loop is done only after all items were.
        """
        if isinstance(items, AsyncIterable):
            return self._until_cancelled(items)
        return map(self._unless_cancelled, items)

    async def _until_cancelled(self, items: AsyncIterable[T]) -> AsyncIterator[T]:
        async for item in items:
            yield self._unless_cancelled(item)

    def _unless_cancelled(self, item: T) -> T:
        self.raise_if_cancelled()
        return item

    def ask_to_stop(self) -> None:
        self._is_stopping = True

    def progress(self, percent: float, phase: str = "") -> Awaitable[None]:
        """Show how far the run is, 0 to 100, and what it is doing. Overwrites what was shown.

        To be awaited in `async def`; in `def` it is enough to call it.
        """
        is_logged = self._progress_log is not None and self._progress_log.admits(phase)
        return self._port.progress(Progress(self._run.ref, percent, phase, is_logged))

    @overload
    def follow_up(
        self, job_type: OfOne[T, Any], payload: T, **options: Unpack[SubmitOptions]
    ) -> UUID: ...
    @overload
    def follow_up(
        self, job_type: Preparable, payload: ByName = None, **options: Unpack[SubmitOptions]
    ) -> UUID: ...
    def follow_up(
        self, job_type: Preparable, payload: Any = UNSET, **options: Unpack[SubmitOptions]
    ) -> UUID:
        """Submit a job if, and only if, this run completes; in the same atomic step.

        It has the tenant, the owner and the correlation id of this one, unless the options, those
        of `submit`, say otherwise.
        """
        inherited = SubmitOptions(
            correlation_id=self.job.correlation_id,
            tenant=self.job.tenant_id,
            owner=self.job.created_by,
            parent=self.job_id,
        )
        new = self._port.prepare(job_type, payload, inherited | options)
        self.follow_ups.append(new)
        return new.job.job_id

    def emit(
        self, event_type: str, aggregate: str, payload: Any = None, *, aggregate_id: AnyId = None
    ) -> None:
        """Say that something has happened if, and only if, this run completes; in the same step.

        It is an event of that name for consumers, webhooks and streams, about the aggregate of that
        kind; its id is the job's subject, where no other is given.
        """
        self._emit(event_type, aggregate, aggregate_id, payload)

    def audit(
        self, action: str, aggregate: str, payload: Any = None, *, aggregate_id: AnyId = None
    ) -> None:
        """Have it in the tenant's audit trail if, and only if, this run completes.

        The payload is a JSON object. Needs `AuditSettings(from_jobs=True)`.
        """
        if not self._port.audits:
            why = "ctx.audit() needs an application with AuditSettings(from_jobs=True)."
            raise Permanent(Code.CONFIGURATION_ERROR, why)
        self._emit(action, aggregate, aggregate_id, payload or {}, is_audit=True)

    def _emit(
        self, kind: str, aggregate: str, given: AnyId, payload: Any, *, is_audit: bool = False
    ) -> None:
        if self.is_settled:
            raise RunOver(f"Job {self.job_id} was completed already, without {kind}.")
        about = self.job.subject_id if given is None else str(given)
        new = Emitted.of(kind, aggregate, about, payload, is_audit=is_audit)
        encode_emitted([*self._emitted, new])
        self._emitted.append(new)

    def transaction(self, result: Any = None) -> AbstractAsyncContextManager[Any]:
        """Write and complete in one transaction: both are committed, or neither.

        Yields the driver's connection, on the database in which the jobs are: psycopg's
        AsyncConnection on PostgreSQL, sqlite3's, which is not awaited, on SQLite. At the end of the
        block the run is completed, with `result`, under its fence: a run that is over rolls the
        handler's writes back and raises RunOver; so does a result that is not of the handler's
        return type, which raises ResultNotStorable. Keep the block short: its end is the job's end.
        What the handler returns afterwards is not used, and a second one raises RunOver.

        For `async def` handlers on the loop only: no thread and no process can use a connection
        that belongs to it.
        """
        self._refuse_off_the_loop("ctx.transaction()")
        return self._transaction(result)

    @asynccontextmanager
    async def _transaction(self, result: Any) -> AsyncIterator[Any]:
        if self.is_settled:
            raise RunOver(f"Job {self.job_id} was completed by an earlier transaction of its run.")
        async with self._port.transaction() as transaction:
            yield transaction.connection
            decided = self._port.decide(self._run, self.success_of(result))
            answer = await transaction.apply(decided)
            if not isinstance(answer, Applied):
                raise RunOver(f"This run of job {self.job_id} is over; nothing was written.")
        self.settled = Settled(decided, answer)

    def success_of(self, result: Any) -> Success:
        """What is written when the run completes; raise ResultNotStorable."""
        body, omitted = encode_result(result, self._result_codec)
        emitted = encode_emitted(self._emitted) if self._emitted else None
        return Success(
            body, omitted, tuple(self.follow_ups), tuple(self.once_keys), emitted=emitted
        )

    def once(self, key: str, *, hold: timedelta = ONCE_HELD_FOR) -> Awaitable[bool]:
        """Ask whether this is still to be done; True marks it done when the run completes.

        It makes a *replayed job* skip what an earlier one completed. It does not protect a step
        inside a run that crashes. For `async def` handlers only.
        """
        # In a `def` nobody would await it, and what is not awaited is always true.
        self._refuse_off_the_loop("ctx.once()")
        return self._once(key, hold)

    async def _once(self, key: str, hold: timedelta) -> bool:
        if not key:
            raise InvalidInput("once() needs a key.")
        mark = DedupeKey(KeyKind.ONCE, self.job.tenant_id, self.job.job_type, key, b"", hold)
        if await self._port.is_held(mark):
            return False
        self.once_keys.append(mark)
        return True

    def _refuse_off_the_loop(self, what: str) -> None:
        if not _is_running(self._loop):
            raise Permanent(
                Code.CONFIGURATION_ERROR, f"{what} needs an `async def` handler; this is a `def`."
            )


_CURRENT: ContextVar[Context | None] = ContextVar("gantline_current_job", default=None)


def current_job() -> Context | None:
    """The context of the run that this code is part of, if any."""
    return _CURRENT.get()


enter: Final = _CURRENT.set
"""Make a context the current one, until `leave` is called with what this returns."""
leave: Final = _CURRENT.reset


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the caller is code that this loop runs."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


class nothing_to_await:  # noqa: N801  # stands where a coroutine would
    """Awaitable, and silent when nobody does."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


Finder = Callable[[str], Any]
Notify = Callable[[], None]


class StoreRunPort:
    """The port of `Context`, on a store."""

    def __init__(
        self,
        store: JobStore,
        manager: JobManager,
        find_type: Finder,
        logged: Notify = lambda: None,
        *,
        audits: bool = False,
    ) -> None:
        """`find_type` gives declared job types; `logged` is called when there is a new event."""
        self.audits = audits
        self._store = store
        self._manager = manager
        self._find_type = find_type
        self._logged = logged
        self._loop = asyncio.get_running_loop()

    def progress(self, update: Progress) -> Awaitable[None]:
        written = self._write(update)
        if _is_running(self._loop):
            return written
        asyncio.run_coroutine_threadsafe(written, self._loop)
        return nothing_to_await()

    async def _write(self, update: Progress) -> None:
        await self._manager.progress([update])
        if update.logged:
            self._logged()

    def prepare(self, job_type: Any, payload: Any, options: SubmitOptions) -> NewJob:
        own = self._find_type(job_type.name) or job_type  # its group may be in other applications
        new: NewJob = own.prepare(payload, **options)
        return new

    def prepare_encoded(self, name: str, body: bytes, options: SubmitOptions) -> NewJob:
        """Prepare what another process has encoded; raise InvalidInput."""
        job_type = self._find_type(name)
        if job_type is None:
            raise InvalidInput(
                f"The application of this worker does not know the job type {name!r}.",
                next_step="Declare it there, or include its group.",
            )
        return self.prepare(job_type, job_type.handler.codec.decode(body), options)

    async def is_held(self, key: DedupeKey) -> bool:
        return (await self._store.held([key]))[0] is not None

    def transaction(self) -> AbstractAsyncContextManager[StoreTransaction]:
        return self._store.transaction()

    def decide(self, run: Run, success: Success) -> Transition:
        return self._manager.decide(Ending(run, success))

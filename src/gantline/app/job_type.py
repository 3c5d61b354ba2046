"""A job type: a declared job, typed by its payload and its result, that can be submitted."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, Unpack
from uuid import UUID

import msgspec

from gantline.app.handle import Handle, SyncHandle
from gantline.app.scheduled import DeclaredSchedule, ScheduleOptions, declare_schedule
from gantline.contract.bounds import declares, held, held_as
from gantline.contract.clock import EPOCH
from gantline.contract.errors import GantlineError, InvalidInput, SubmitConflict
from gantline.contract.identity import new_job_id, uuid_text
from gantline.contract.job import DEFAULT_PRIORITY, Job
from gantline.contract.recurrence import Cron, Every, Recurrence
from gantline.contract.results import Conflict, Duplicate, InsertResult
from gantline.contract.submission import DedupeKey, NewJob, SubmitOptions
from gantline.manager.submitter import NO_DELAY, Submission
from gantline.worker.context import current_job
from gantline.worker.handler import Handler

if TYPE_CHECKING:
    from gantline.app.gantline import Gantline

T = TypeVar("T")
R = TypeVar("R")

_OPTIONS: Final = SubmitOptions.__annotations__


class JobType(Generic[T, R]):
    """What `@jobs.job(…)` makes of a function. It stays callable as the function it was."""

    def __init__(
        self,
        handler: Handler,
        *,
        subject: Callable[[Any], str],
        idempotency_key: Callable[[Any], str],
        priority: int = DEFAULT_PRIORITY,
        max_depth: int | None = None,
    ) -> None:
        self.handler = handler
        self.name = handler.job_type
        self.max_depth = max_depth
        self._subject = subject
        self._idempotency_key = idempotency_key
        self.priority = priority
        self.schedules: list[DeclaredSchedule] = []
        self._app: Gantline | None = None
        self.__wrapped__ = handler.function
        self.__doc__ = handler.function.__doc__
        self.__name__ = handler.function.__name__
        self.__module__ = handler.function.__module__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, as in a test; nothing is submitted."""
        return self.handler.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<JobType {self.name!r}>"

    def bind(self, app: "Gantline") -> None:
        self._app = app

    @property
    def app(self) -> "Gantline":
        if self._app is None:
            raise GantlineError(
                f"The job type {self.name!r} belongs to no application yet.",
                next_step="Include its group: Gantline(include=[group]).",
            )
        return self._app

    # -- schedules --------------------------------------------------------------------------------

    @declares("A schedule")
    def cron(
        self,
        expression: str,
        *,
        timezone: str = "UTC",
        payload: T | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> None:
        """Have a job submitted by a cron expression: five or six fields, or @daily and the like.

        Workers store it when they start, and one of the fleet submits the jobs. The payload is
        fixed; what a run is for, its handler learns from `ctx.job.scheduled_at`.
        """
        self._schedule(Cron(held_as("expression", expression, str), timezone), payload, options)

    @declares("A schedule")
    def every(
        self,
        interval: timedelta | float,
        *,
        anchor: datetime = EPOCH,
        payload: T | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> None:
        """Have a job submitted at an interval, counted from the anchor; else as `cron`."""
        seconds = held_as("interval", interval, timedelta).total_seconds()
        self._schedule(Every(seconds, anchor), payload, options)

    def _schedule(
        self, recurrence: Recurrence, payload: T | None, options: ScheduleOptions
    ) -> None:
        declared = declare_schedule(self, recurrence, payload, options)
        name = declared.schedule.name
        if any(name == other.schedule.name for other in self.schedules):
            raise InvalidInput(
                f"The job {self.name!r} has two schedules named {name!r}.",
                next_step="Give each its own name: name=….",
            )
        self.schedules.append(declared)

    def subject_of(self, payload: T) -> str:
        """What a job with this payload is about."""
        return self._subject(payload)

    # -- submitting -------------------------------------------------------------------------------

    async def submit(
        self, payload: T, *, connection: Any = None, **options: Unpack[SubmitOptions]
    ) -> Handle[R]:
        """Submit a job; it is durable when this returns.

        With `connection` it is written in the caller's own transaction and exists if, and only if,
        that is committed.
        """
        app = self.app
        span = app.tracing.send(self.name)
        try:
            new = self.prepare(payload, **options)
            if span is not None:
                span.describe([new])
            answer = await app.submit_prepared(new, connection=connection)
            is_on_its_way = connection is not None and app.outbox is not None
            return self._handle_of(new, answer, is_on_its_way=is_on_its_way)
        finally:
            if span is not None:
                span.end()

    async def submit_many(
        self, payloads: Iterable[T], **options: Unpack[SubmitOptions]
    ) -> list[Handle[R]]:
        """Submit many jobs in few writes; the options are for all of them."""
        app = self.app
        span = app.tracing.send(self.name)
        try:
            prepared = [self.prepare(payload, **options) for payload in payloads]
            if span is not None:
                span.describe(prepared)
            answers = await app.submit_all_prepared(prepared)
            return list(map(self._handle_of, prepared, answers))
        finally:
            if span is not None:
                span.end()

    def submit_sync(
        self, payload: T, *, connection: Any = None, **options: Unpack[SubmitOptions]
    ) -> SyncHandle[R]:
        """Submit from code that is not async, in any thread, also after a fork."""
        return SyncHandle(
            self.app.run_sync(lambda: self.submit(payload, connection=connection, **options))
        )

    def handle(self, job_id: UUID | str, *, tenant: str | None = None) -> Handle[R]:
        """Make a handle of a job of this type that was submitted before, from anywhere."""
        app, found = self.app, held_as("job_id", job_id, UUID)
        tenant_id = app.default_tenant if tenant is None else tenant
        return Handle(app, found, tenant_id, codec=self.handler.result_codec)

    def handle_sync(self, job_id: UUID | str, *, tenant: str | None = None) -> SyncHandle[R]:
        """As `handle`, for code that is not async."""
        return SyncHandle(self.handle(job_id, tenant=tenant))

    def _handle_of(
        self, new: NewJob, answer: InsertResult, *, is_on_its_way: bool = False
    ) -> Handle[R]:
        if isinstance(answer, Conflict):
            raise SubmitConflict.of_id() if answer.by is None else SubmitConflict.of_key()
        existing = answer.existing if isinstance(answer, Duplicate) else None
        return Handle(
            self.app,
            existing or new.job.job_id,
            new.job.tenant_id,
            subject_id=new.job.subject_id,
            duplicate=existing is not None,
            codec=self.handler.result_codec,
            is_on_its_way=is_on_its_way,
        )

    def prepare(
        self,
        payload: T,
        *,
        attempt: int = 1,
        request_key: DedupeKey | None = None,
        **options: Unpack[SubmitOptions],
    ) -> NewJob:
        """Validate and encode a job without storing it; raise InvalidInput."""
        if options:
            options = held("A submit", _OPTIONS, options)
        app, handler = self.app, self.handler
        # First of all, for it validates what the others use.
        body, data = handler.codec.encode(payload, limit=app.payload_limit)
        job_id = options.get("job_id") or new_job_id()
        tenant, queue = options.get("tenant"), options.get("queue")
        subject, key = options.get("subject"), options.get("idempotency_key")
        priority, attempts = options.get("priority"), options.get("max_attempts")
        if (correlation_id := options.get("correlation_id")) is None:
            running = current_job()
            correlation_id = running.job.correlation_id if running else uuid_text(job_id)
        if (trace := options.get("trace_context")) is None:
            trace = app.tracing.carrier()
        job = Job(
            job_id=job_id,
            job_type=self.name,
            subject_id=self._subject(payload) if subject is None else subject,
            correlation_id=correlation_id,
            idempotency_key=self._idempotency_key(payload) if key is None else key,
            attempt=attempt,
            max_attempts=handler.policy.retry.attempts if attempts is None else attempts,
            payload=msgspec.Raw(body),
            created_at=app.clock.now(),
            tenant_id=app.default_tenant if tenant is None else tenant,
            queue=handler.queue if queue is None else queue,
            priority=self.priority if priority is None else priority,
            scheduled_at=options.get("at"),
            payload_version=handler.version,
            created_by=options.get("owner") or "",
            parent_job_id=options.get("parent"),
            trace_context=dict(trace) or None,
        )
        delay: Any = options.get("delay") or NO_DELAY
        return app.manager.submitter.prepare(Submission(job, delay, request_key, data))

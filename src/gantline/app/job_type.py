"""A job type: a declared job, typed by its arguments and its result, that can be submitted."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar, Unpack, cast, overload
from uuid import UUID

import msgspec
from msgspec import UNSET

from gantline.app.handle import Handle, SyncHandle
from gantline.app.scheduled import DeclaredSchedule, ScheduleOptions, declare_schedule
from gantline.contract.bounds import declares, held, held_as
from gantline.contract.clock import EPOCH
from gantline.contract.envelope import check_created_at
from gantline.contract.errors import GantlineError, InvalidInput
from gantline.contract.flow import TypeFlow
from gantline.contract.job import DEFAULT_PRIORITY, Job, check_expires_in, key_of_owner
from gantline.contract.job_id import new_job_id, uuid_text
from gantline.contract.results import InsertResult
from gantline.contract.submission import DedupeKey, NewJob, SubmitOptions
from gantline.manager.admission import DepthCaps
from gantline.manager.submitter import NO_DELAY, Submission
from gantline.schedules.recurrence import Cron, Every, Recurrence
from gantline.worker.context import ByName, OfOne, current_job
from gantline.worker.handler import Handler

if TYPE_CHECKING:
    from gantline.app.gantline import Gantline

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

One = OfOne[T, Handle[R]]

_OPTIONS: Final = SubmitOptions.__annotations__


class Sender(Generic[P, R]):
    """A job type with the options of what it sends: `add.options(delay=60)`."""

    def __init__(self, job_type: "JobType[P, R]", options: Mapping[str, Any]) -> None:
        self._job_type = job_type
        self._options = options

    async def send(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Submit a job with these arguments; it is durable when this returns."""
        job_type = self._job_type
        return await job_type.submit(job_type.payload(*args, **kwargs), **self._options)

    def send_sync(self, *args: P.args, **kwargs: P.kwargs) -> SyncHandle[R]:
        """Send from code that is not async, in any thread, also after a fork."""
        return SyncHandle(self._job_type.app.run_sync(lambda: self.send(*args, **kwargs)))


class JobType(Generic[P, R]):
    """What `@jobs.job(…)` makes of a function. It stays callable as the function it was."""

    def __init__(
        self,
        handler: Handler,
        *,
        subject: Callable[[Any], str],
        idempotency_key: Callable[[Any], str],
        group: Callable[[Any], str] | None,
        flows: tuple[TypeFlow, ...] | None = None,
        priority: int = DEFAULT_PRIORITY,
        expires_in: timedelta | None = None,
        caps: DepthCaps,
    ) -> None:
        check_expires_in(expires_in)
        update_wrapper(self, handler.function)
        self.handler = handler
        self.name = handler.job_type
        self.caps = caps
        self._subject = subject
        self._idempotency_key = idempotency_key
        self._group = group
        self.flows = flows
        """The limits that it declares, for each of its names; None where it says nothing."""
        self.priority = priority
        self.expires_in = expires_in
        self.schedules: list[DeclaredSchedule] = []
        self._app: Gantline | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, as in a test; nothing is submitted."""
        return self.handler.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<JobType {self.name!r}>"

    def bind(self, app: "Gantline") -> None:
        self._app = app

    @property
    def app(self) -> "Gantline":
        """Its application; of those that include its group, the last to do so."""
        if self._app is None:
            raise GantlineError(
                f"The job type {self.name!r} belongs to no application yet.",
                next_step="Include its group: Gantline(include=[group]).",
            )
        return self._app

    def of(self, app: "Gantline") -> "JobType[P, R]":
        """This job type in one of several applications that include its group."""
        found = app.find_type(self.name)
        if found is None or found.handler.function is not self.handler.function:
            raise InvalidInput(
                f"The job type {self.name!r} is not in this application.",
                next_step="Include its group: Gantline(include=[group]).",
            )
        return cast("JobType[P, R]", found)

    # -- schedules --------------------------------------------------------------------------------

    @declares("A schedule")
    def cron(
        self,
        expression: str,
        *,
        timezone: str = "UTC",
        payload: Any = UNSET,
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
        payload: Any = UNSET,
        **options: Unpack[ScheduleOptions],
    ) -> None:
        """Have a job submitted at an interval, counted from the anchor; else as `cron`."""
        seconds = held_as("interval", interval, timedelta).total_seconds()
        self._schedule(Every(seconds, anchor), payload, options)

    def _schedule(self, recurrence: Recurrence, payload: Any, options: ScheduleOptions) -> None:
        declared = declare_schedule(self, recurrence, payload, options)
        name = declared.schedule.name
        if any(name == other.schedule.name for other in self.schedules):
            raise InvalidInput(
                f"The job {self.name!r} has two schedules named {name!r}.",
                next_step="Give each its own name: name=….",
            )
        self.schedules.append(declared)

    def subject_of(self, payload: Any) -> str:
        """What a job with this payload is about."""
        return self._subject(payload)

    def group_of(self, payload: Any) -> str:
        """The group of a job with this payload, where its submit names none."""
        return self._group(payload) if self._group else ""

    def group_of_encoded(self, body: bytes, version: int) -> str:
        """The same of a payload that came from outside; raise InvalidInput."""
        if self._group is None:
            return ""
        return self._group(self.handler.codec.decode(self.handler.upgraded(body, version)))

    @property
    def has_groups(self) -> bool:
        """Whether it says itself in which groups its jobs are."""
        return self._group is not None

    # -- submitting -------------------------------------------------------------------------------

    async def send(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Submit a job that calls the function with these arguments; durable when this returns.

        The Context and the dependencies are left out. Raise InvalidInput where it takes others.
        """
        return await self.submit(self.payload(*args, **kwargs))

    def send_sync(self, *args: P.args, **kwargs: P.kwargs) -> SyncHandle[R]:
        """Send from code that is not async, in any thread, also after a fork."""
        return self.options().send_sync(*args, **kwargs)

    def options(self, *, connection: Any = None, **options: Unpack[SubmitOptions]) -> Sender[P, R]:
        """Choose the options of what is sent: `add.options(delay=60).send(1)`."""
        return Sender(self, {"connection": connection, **held("A submit", _OPTIONS, options)})

    def payload(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Make the payload of these arguments, as for `ctx.follow_up` and `submit_many`."""
        return self.handler.signature.payload_of(args, kwargs)

    @overload
    async def submit(
        self: One[T, R], payload: T, *, connection: Any = None, **options: Unpack[SubmitOptions]
    ) -> Handle[R]: ...
    @overload
    async def submit(
        self, payload: ByName = None, *, connection: Any = None, **options: Unpack[SubmitOptions]
    ) -> Handle[R]: ...
    async def submit(
        self, payload: Any = UNSET, *, connection: Any = None, **options: Unpack[SubmitOptions]
    ) -> Handle[R]:
        """Submit a job with a ready payload: the value of its one argument, else their names.

        It is durable when this returns. With `connection` it is written in the caller's own
        transaction and exists if, and only if, that is committed.
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

    @overload
    async def submit_many(
        self: One[T, R], payloads: Iterable[T], **options: Unpack[SubmitOptions]
    ) -> list[Handle[R]]: ...
    @overload
    async def submit_many(
        self, payloads: Iterable[ByName], **options: Unpack[SubmitOptions]
    ) -> list[Handle[R]]: ...
    async def submit_many(
        self, payloads: Iterable[Any], **options: Unpack[SubmitOptions]
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

    @overload
    def submit_sync(
        self: One[T, R], payload: T, *, connection: Any = None, **options: Unpack[SubmitOptions]
    ) -> SyncHandle[R]: ...
    @overload
    def submit_sync(
        self, payload: ByName = None, *, connection: Any = None, **options: Unpack[SubmitOptions]
    ) -> SyncHandle[R]: ...
    def submit_sync(
        self, payload: Any = UNSET, *, connection: Any = None, **options: Unpack[SubmitOptions]
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
        codec = self.handler.result_codec
        return Handle.of(self.app, new, answer, codec=codec, is_on_its_way=is_on_its_way)

    def prepare(
        self,
        payload: Any = None,
        *,
        attempt: int = 1,
        created_at: datetime | None = None,
        expires_at: datetime | None = None,
        request_key: DedupeKey | None = None,
        **options: Unpack[SubmitOptions],
    ) -> NewJob:
        """Validate and encode a job without storing it; raise InvalidInput."""
        if options:
            options = held("A submit", _OPTIONS, options)
        app, handler = self.app, self.handler
        now = app.clock.now()
        if created_at is not None:
            check_created_at(created_at, now)
        payload = handler.signature.completed(payload)
        # First of all, for it validates what the others use.
        body, data = handler.codec.encode(payload, limit=app.payload_limit)
        job_id, external_id = new_job_id(), options.get("job_id")
        tenant, queue = options.get("tenant"), options.get("queue")
        subject, owner = options.get("subject"), options.get("owner") or ""
        if (key := options.get("idempotency_key")) is None:
            key = self._idempotency_key(payload)
        if handler.policy.key_scope == "owner":
            key = key_of_owner(owner, key)
        if (group := options.get("group")) is None:
            group = self.group_of(payload)
        priority, attempts = options.get("priority"), options.get("max_attempts")
        if (correlation_id := options.get("correlation_id")) is None:
            running = current_job()
            own = uuid_text(external_id or job_id)
            correlation_id = running.job.correlation_id if running else own
        if (trace := options.get("trace_context")) is None:
            trace = app.tracing.carrier()
        expires_in: Any = options.get("expires_in")
        if expires_in is None:
            expires_in = self.expires_in
        if expires_in is not None and expires_at is None:
            check_expires_in(expires_in)
            expires_at = now + expires_in
        job = Job(
            job_id=job_id,
            job_type=self.name,
            subject_id=self._subject(payload) if subject is None else subject,
            correlation_id=correlation_id,
            idempotency_key=key,
            attempt=attempt,
            max_attempts=handler.policy.retry.attempts if attempts is None else attempts,
            payload=msgspec.Raw(body),
            created_at=created_at or now,
            tenant_id=app.default_tenant if tenant is None else tenant,
            queue=handler.queue if queue is None else queue,
            priority=self.priority if priority is None else priority,
            scheduled_at=options.get("at"),
            expires_at=expires_at,
            payload_version=handler.version,
            created_by=owner,
            parent_job_id=options.get("parent"),
            trace_context=dict(trace) or None,
            external_id=external_id,
            group=group,
        )
        delay: Any = options.get("delay") or NO_DELAY
        return app.manager.submitter.prepare(Submission(job, delay, request_key, data))

"""Declaring jobs: the decorator that makes a job type of a function."""

from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Concatenate, Final, Literal, ParamSpec, TypedDict, TypeVar, Unpack, overload

from gantline.app.job_type import JobType
from gantline.app.scheduled import CronOptions, EveryOptions
from gantline.app.settings import JobDefaults
from gantline.app.template import KeySource, compile_group, compile_template
from gantline.consumers.consumers import EventFunction, FunctionConsumer, events_of, name_of
from gantline.consumers.event_reader import DeclaredConsumer
from gantline.contract.bounds import Count, CountOrZero, Name, Priority, declares, held_as
from gantline.contract.classify import ErrorClassifier
from gantline.contract.errors import InvalidInput
from gantline.contract.job import DEFAULT_PRIORITY, check_queue
from gantline.contract.policy import Policy, SchedulingStrategy
from gantline.contract.retry import RetryStrategy
from gantline.contract.status import Event
from gantline.contract.text import LABEL_LIMIT, name_problem
from gantline.contract.webhook import RESERVED_TYPES
from gantline.flow.limit import Limit, declared_flows
from gantline.manager.admission import DepthCaps
from gantline.worker.context import Context
from gantline.worker.handler import RunIn, check_function, make_handler

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")
F = TypeVar("F", bound=EventFunction)
J = TypeVar("J", bound=JobType[..., Any])
Later = Coroutine[Any, Any, R]
"""What an `async def` gives."""


class JobOptions(TypedDict, total=False):
    """How the jobs of a type differ from what the application says for all. None is not given."""

    subject: KeySource
    """What a job is about: a template over the payload's fields, or a function of it."""
    idempotency_key: KeySource
    """As the subject."""
    group: KeySource
    """Whose turn a job takes within its tenant, and of whom limits count the runs; as the subject.
    Without one, all jobs of a tenant are one group."""
    limits: Sequence[Limit] | None
    """How many may run at once, and how many may start in a time, over all workers. An empty list
    says that there are none any more; None says nothing, and what is stored holds."""
    queue: Name | None
    queues: Sequence[Name]
    """Further queues that a submit over HTTP may name; another one needs a right of its own."""
    priority: Priority
    retry: RetryStrategy | int | None
    """A number is so many attempts with the default waits."""
    schedule: SchedulingStrategy
    expires_in: timedelta | float | None
    """A job that has not started so long after its submit is Cancelled; a number is seconds."""
    timeout: timedelta | float | None
    """How long one attempt may take; a number is seconds."""
    classify: ErrorClassifier | None
    run_in: RunIn | Literal["loop", "thread", "process"] | None
    concurrency: Count | None
    """So many of it run at once in one process; None: as many as there are slots."""
    aliases: Sequence[str]
    version: Count
    upgrade: Callable[[Any, int], Any] | None
    max_depth: CountOrZero | None
    max_depth_per_tenant: CountOrZero | None
    max_crashes: Count | None
    max_snoozes: CountOrZero | None
    hold_key: timedelta | float | None
    key_scope: Literal["tenant", "owner"] | None
    """"owner" keeps the idempotency keys of each owner apart."""
    events: Sequence[Literal["submitted", "started", "progressed"]]
    """Those of submitted, started and progressed that consumers are to hear of."""
    result: Literal["keep", "omit"]
    """"omit" stores nothing of what the function returns, and handles give None."""


_OF_HANDLERS: Final = ("run_in", "version", "upgrade", "concurrency", "queues")
_OF_POLICIES: Final = ("queue", "timeout", *Policy.__struct_fields__)


class JobDecorator:
    """`@jobs.job`, with a name and options or without.

    Its overloads give payload and result their types.
    """

    def __init__(self, make: Callable[..., JobType[..., Any]]) -> None:
        self._make = make

    @overload
    def __call__(self, function: Callable[[T, Context], Later[R]], /) -> JobType[[T], R]: ...
    @overload
    def __call__(self, function: Callable[[T, Context], R], /) -> JobType[[T], R]: ...
    @overload
    def __call__(self, function: Callable[[S, T, Context], Later[R]], /) -> JobType[[S, T], R]: ...
    @overload
    def __call__(self, function: Callable[[S, T, Context], R], /) -> JobType[[S, T], R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Later[R]], /
    ) -> JobType[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> JobType[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Later[R]], /) -> JobType[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> JobType[P, R]: ...
    @overload
    def __call__(
        self, name: str | None = None, **options: Unpack[JobOptions]
    ) -> "JobDecorator": ...
    @declares("A job")
    def __call__(self, name: Any = None, **options: Unpack[JobOptions]) -> Any:
        if name is None or isinstance(name, str):
            return JobDecorator(partial(self._make, name=name, **options))
        return self._make(name)


class Declarations:
    """Where jobs are declared, and what listens to their events."""

    @declares("JobGroup")
    def __init__(self, *, queue: str | None = None) -> None:
        self._queue = queue
        self._declared: dict[str, JobType[..., Any]] = {}
        self._consumers: dict[str, DeclaredConsumer] = {}

    @property
    def job_types(self) -> tuple[JobType[..., Any], ...]:
        return tuple(self._declared.values())

    @property
    def consumers(self) -> tuple[DeclaredConsumer, ...]:
        return tuple(self._consumers.values())

    @property
    def job(self) -> JobDecorator:
        """Declare a job: `@jobs.job("name", **options)`, with JobOptions, or `@jobs.job` alone.

        The name is its type, for ever, and the function may be renamed at will; without one, the
        function's name is. `queue`, `retry`, `timeout`, `classify`, `max_crashes`, `max_snoozes`,
        `hold_key` and `key_scope` are, where they are left out, those of the application: see
        JobDefaults.
        """
        return JobDecorator(self._make)

    def _make(
        self, function: Any, *, name: str | None = None, **options: Unpack[JobOptions]
    ) -> JobType[..., Any]:
        check_function(function, "a handler")
        name = function.__name__ if name is None else name
        aliases = tuple(options.get("aliases", ()))
        for one in (name, *aliases):
            if not one or (problem := name_problem(one, 128)):
                raise InvalidInput(f"The job type {one!r} {problem if one else 'is empty'}.")
            if one.startswith(RESERVED_TYPES):
                raise InvalidInput(
                    f"The job type {one!r} begins like those of Gantline itself.",
                    next_step=f"Name it without {RESERVED_TYPES!r} in front.",
                )
        given: dict[str, Any] = {
            **({} if self._queue is None else {"queue": self._queue}),
            **{option: value for option, value in options.items() if value is not None},
            "events": frozenset(map(Event, options.get("events", ()))),
            "queues": tuple(options.get("queues", ())),
        }
        for queue in (given.get("queue", ""), *given["queues"]):
            check_queue(queue)
        handler = make_handler(
            name,
            function,
            keeps_result=options.get("result") != "omit",
            aliases=aliases,
            own={option: value for option, value in given.items() if option in _OF_POLICIES},
            **{option: value for option, value in given.items() if option in _OF_HANDLERS},
        ).with_defaults(**JobDefaults().of_types)
        fields = handler.codec.fields
        return self._declare(
            JobType(
                handler,
                subject=compile_template(options.get("subject", ""), fields),
                idempotency_key=compile_template(options.get("idempotency_key", ""), fields),
                group=compile_group(options.get("group", ""), fields),
                flows=declared_flows(handler.job_types, options.get("limits")),
                priority=options.get("priority", DEFAULT_PRIORITY),
                expires_in=given.get("expires_in"),
                caps=DepthCaps(options.get("max_depth"), options.get("max_depth_per_tenant")),
            )
        )

    @declares("A schedule")
    def cron(self, expression: str, **options: Unpack[CronOptions]) -> Callable[[J], J]:
        """Put a schedule on the job declared below: `JobType.cron` as a decorator."""
        return _scheduling(lambda job: job.cron(expression, **options))

    @declares("A schedule")
    def every(
        self, interval: timedelta | float, **options: Unpack[EveryOptions]
    ) -> Callable[[J], J]:
        """Put an interval on the job declared below: `JobType.every` as a decorator."""
        return _scheduling(lambda job: job.every(interval, **options))

    @declares("@jobs.on")
    def on(
        self,
        *event_types: str,
        job_type: str | JobType[..., Any] | Sequence[str | JobType[..., Any]] = (),
        name: str = "",
        from_start: bool = False,
    ) -> Callable[[F], F]:
        """Have a function called with each event of these types, in order.

        Those of jobs are JobEvents, `job.*` for all of them; what handlers emit is a DomainEvent,
        by its own type, `domain.*` for all.

        It is a durable consumer: one worker at a time calls it, and it is called again for an event
        until it returns, or raises Permanent. `name` names its position in the log; without one
        it is the function's, and renaming the function begins anew. `from_start` begins with the
        oldest event that is kept.
        """
        one_or_more = job_type if isinstance(job_type, list | tuple) else (job_type,)
        wants = events_of(event_types, [name for one in one_or_more for name in _names_of(one)])

        @declares("@jobs.on")
        def listen(function: F) -> F:
            check_function(function, "called with an event", None)
            consumer = FunctionConsumer(name or name_of(function), function)
            declared = DeclaredConsumer(
                consumer=consumer, from_start=from_start, at_once=1, wants=wants
            )
            self._listen(declared)
            return function

        return listen

    def _declare(self, job_type: JobType[..., Any]) -> JobType[..., Any]:
        if job_type.name in self._declared:
            raise InvalidInput(f"The job type {job_type.name!r} is declared twice.")
        self._declared[job_type.name] = job_type
        return job_type

    def _listen(self, declared: DeclaredConsumer) -> None:
        name = declared.name
        if not name or (problem := name_problem(name, LABEL_LIMIT)):
            raise InvalidInput(f"The consumer {name!r} {problem if name else 'has no name'}.")
        if name in self._consumers:
            raise InvalidInput(
                f"Two consumers are named {name!r}: each would miss what the other reads.",
                next_step="Give one of them another name.",
            )
        self._consumers[name] = declared


def _scheduling(put_on: Callable[[JobType[..., Any]], None]) -> Callable[[J], J]:
    @declares("A schedule")
    def put(job_type: J) -> J:
        if not isinstance(job_type, JobType):
            raise InvalidInput(
                "A schedule is put on a job, and this is none.",
                next_step="Write it above @jobs.job(…), not below.",
            )
        put_on(job_type)
        return job_type

    return put


def _names_of(job_type: str | JobType[..., Any]) -> Any:
    found = held_as("job_type", job_type, str | JobType)
    return (found,) if isinstance(found, str) else found.handler.job_types


class JobGroup(Declarations):
    """Jobs declared apart from the application, so that modules need not import it.

    `queue`: where they wait; None for the application's default.
    """

"""Declaring jobs: the decorator that makes a job type of a function."""

from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar, Unpack, overload

from gantline.app.job_type import JobType
from gantline.app.scheduled import ScheduleOptions
from gantline.app.settings import JobDefaults
from gantline.app.template import KeySource, compile_template
from gantline.contract.bounds import check_count
from gantline.contract.classify import ErrorClassifier
from gantline.contract.clock import EPOCH
from gantline.contract.errors import InvalidInput
from gantline.contract.job import DEFAULT_PRIORITY
from gantline.contract.policy import SchedulingStrategy, as_asked
from gantline.contract.retry import RetryStrategy
from gantline.contract.status import ON_REQUEST, Event
from gantline.contract.text import LABEL_LIMIT, name_problem
from gantline.contract.webhook import RESERVED_TYPES
from gantline.manager.event_reader import DeclaredConsumer
from gantline.worker.consumers import EventFunction, FunctionConsumer, events_of, name_of
from gantline.worker.context import Context
from gantline.worker.handler import make_handler

T = TypeVar("T")
R = TypeVar("R")
F = TypeVar("F", bound=EventFunction)
J = TypeVar("J", bound=JobType[Any, Any])
Later = Coroutine[Any, Any, R]
"""What an `async def` gives."""


class JobDecorator:
    """Waits for the function. Its overloads give payload and result their types."""

    def __init__(self, make: Callable[[Callable[..., Any]], JobType[Any, Any]]) -> None:
        self._make = make

    @overload
    def __call__(self, function: Callable[[], Later[R]]) -> JobType[None, R]: ...
    @overload
    def __call__(self, function: Callable[[Context], Later[R]]) -> JobType[None, R]: ...
    @overload
    def __call__(self, function: Callable[[], R]) -> JobType[None, R]: ...
    @overload
    def __call__(self, function: Callable[[Context], R]) -> JobType[None, R]: ...
    @overload
    def __call__(self, function: Callable[[T], Later[R]]) -> JobType[T, R]: ...
    @overload
    def __call__(self, function: Callable[[T, Context], Later[R]]) -> JobType[T, R]: ...
    @overload
    def __call__(self, function: Callable[[T], R]) -> JobType[T, R]: ...
    @overload
    def __call__(self, function: Callable[[T, Context], R]) -> JobType[T, R]: ...
    def __call__(self, function: Callable[..., Any]) -> JobType[Any, Any]:
        return self._make(function)


class Declarations:
    """Where jobs are declared, and what listens to their events."""

    def __init__(self, *, queue: str | None) -> None:
        self._queue = queue
        self._declared: dict[str, JobType[Any, Any]] = {}
        self._consumers: dict[str, DeclaredConsumer] = {}

    @property
    def job_types(self) -> tuple[JobType[Any, Any], ...]:
        return tuple(self._declared.values())

    @property
    def consumers(self) -> tuple[DeclaredConsumer, ...]:
        return tuple(self._consumers.values())

    def job(
        self,
        name: str,
        *,
        subject: KeySource = "",
        idempotency_key: KeySource = "",
        queue: str | None = None,
        priority: int = DEFAULT_PRIORITY,
        retry: RetryStrategy | None = None,
        schedule: SchedulingStrategy = as_asked,
        timeout: timedelta | None = None,
        classify: ErrorClassifier | None = None,
        run_in: str | None = None,
        concurrency: int | None = None,
        aliases: tuple[str, ...] = (),
        version: int = 1,
        upgrade: Callable[[Any, int], Any] | None = None,
        max_depth: int | None = None,
        max_crashes: int | None = None,
        max_snoozes: int | None = None,
        hold_key: timedelta | None = None,
        events: Sequence[str] = (),
        result: Literal["keep", "omit"] = "keep",
    ) -> JobDecorator:
        """Declare a job: `name` is its type, for ever; the function may be renamed at will.

        `subject` and `idempotency_key` are templates over the payload's fields, or functions of it.
        `concurrency`: so many of it run at once in one process; None: as many as there are slots.
        `events` are those of submitted, started and progressed that consumers are to hear of.
        `result`: "omit" stores nothing of what the function returns, and handles give None.
        `queue`, `retry`, `timeout`, `classify`, `max_crashes`, `max_snoozes` and `hold_key` are,
        where they are left out, those of the application: see JobDefaults.
        """
        for one in (name, *aliases):
            if not one or (problem := name_problem(one, 128)):
                raise InvalidInput(f"The job type {one!r} {problem if one else 'is empty'}.")
            if one.startswith(RESERVED_TYPES):
                raise InvalidInput(
                    f"The job type {one!r} begins like those of Gantline itself.",
                    next_step=f"Name it without {RESERVED_TYPES!r} in front.",
                )
        if result not in ("keep", "omit"):
            raise InvalidInput(f"The result of {name!r} is to 'keep' or to 'omit', not {result!r}.")
        check_count(f"The max_depth of {name!r}", max_depth, least=0, or_none=True)
        said = {
            "queue": queue or self._queue,
            "retry": retry,
            "timeout": timeout,
            "classify": classify,
            "max_crashes": max_crashes,
            "max_snoozes": max_snoozes,
            "hold_key": hold_key,
            "schedule": schedule,
            "events": _on_request(name, events),
        }

        def make(function: Callable[..., Any]) -> JobType[Any, Any]:
            handler = make_handler(
                name,
                function,
                run_in=run_in,
                keeps_result=result == "keep",
                aliases=aliases,
                version=version,
                upgrade=upgrade,
                concurrency=concurrency,
                own={option: value for option, value in said.items() if value is not None},
            ).with_defaults(**JobDefaults().of_types)
            return self._declare(
                JobType(
                    handler,
                    subject=compile_template(subject, handler.codec.fields),
                    idempotency_key=compile_template(idempotency_key, handler.codec.fields),
                    priority=priority,
                    max_depth=max_depth,
                )
            )

        return JobDecorator(make)

    def cron(
        self,
        expression: str,
        *,
        timezone: str = "UTC",
        payload: Any = None,
        **options: Unpack[ScheduleOptions],
    ) -> Callable[[J], J]:
        """Put a schedule on the job declared below: `JobType.cron` as a decorator."""
        return _scheduling(
            lambda job: job.cron(expression, timezone=timezone, payload=payload, **options)
        )

    def every(
        self,
        interval: timedelta,
        *,
        anchor: datetime = EPOCH,
        payload: Any = None,
        **options: Unpack[ScheduleOptions],
    ) -> Callable[[J], J]:
        """Put an interval on the job declared below: `JobType.every` as a decorator."""
        return _scheduling(
            lambda job: job.every(interval, anchor=anchor, payload=payload, **options)
        )

    def on(
        self,
        *event_types: str,
        job_type: "str | JobType[Any, Any] | Sequence[str | JobType[Any, Any]]" = (),
        name: str = "",
        from_start: bool = False,
    ) -> Callable[[F], F]:
        """Have a function called with each JobEvent of these types, `job.*` for all, in order.

        It is a durable consumer: one worker at a time calls it, and it is called again for an event
        until it returns, or raises Permanent. `name` names its position in the log; without one
        it is the function's, and renaming the function begins anew. `from_start` begins with the
        oldest event that is kept.
        """
        one_or_more = (job_type,) if isinstance(job_type, str | JobType) else job_type
        wants = events_of(event_types, [name for one in one_or_more for name in _names_of(one)])

        def listen(function: F) -> F:
            consumer = FunctionConsumer(name or name_of(function), function)
            declared = DeclaredConsumer(
                consumer=consumer, from_start=from_start, at_once=1, wants=wants
            )
            self._listen(declared)
            return function

        return listen

    def _declare(self, job_type: JobType[Any, Any]) -> JobType[Any, Any]:
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


def _scheduling(put_on: Callable[[JobType[Any, Any]], None]) -> Callable[[J], J]:
    def put(job_type: J) -> J:
        if not isinstance(job_type, JobType):
            raise InvalidInput(
                "A schedule is put on a job, and this is none.",
                next_step="Write it above @jobs.job(…), not below.",
            )
        put_on(job_type)
        return job_type

    return put


def _on_request(job_type: str, events: Sequence[str]) -> frozenset[Event]:
    if isinstance(events, str) or not ON_REQUEST.issuperset(events):
        raise InvalidInput(
            f"The job type {job_type!r} asks for events {events!r}.",
            next_step=f"It may ask for some of {sorted(map(str, ON_REQUEST))}; others always come.",
        )
    return frozenset(map(Event, events))


def _names_of(job_type: str | JobType[Any, Any]) -> tuple[str, ...]:
    return (job_type,) if isinstance(job_type, str) else job_type.handler.job_types


class JobGroup(Declarations):
    """Jobs declared apart from the application, so that modules need not import it.

    `queue`: where they wait; None for the application's default.
    """

    def __init__(self, *, queue: str | None = None) -> None:
        super().__init__(queue=queue)

"""Declaring jobs: the decorator that makes a job type of a function."""

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar, overload

from windlass.app.job_type import JobType
from windlass.app.template import KeySource, compile_template
from windlass.contract.errors import InvalidInput
from windlass.contract.job import DEFAULT_PRIORITY
from windlass.contract.policy import Policy
from windlass.contract.retry import Backoff, RetryStrategy
from windlass.contract.scheduling import SchedulingStrategy, as_asked
from windlass.contract.text import name_problem
from windlass.worker.context import Context
from windlass.worker.handler import DEFAULT_TIMEOUT, make_handler

T = TypeVar("T")
R = TypeVar("R")


class JobDecorator:
    """Waits for the function. Its overloads give payload and result their types."""

    def __init__(self, make: Callable[[Callable[..., Any]], JobType[Any, Any]]) -> None:
        self._make = make

    @overload
    def __call__(self, function: Callable[[], Coroutine[Any, Any, R]]) -> JobType[None, R]: ...
    @overload
    def __call__(self, function: Callable[[T], Coroutine[Any, Any, R]]) -> JobType[T, R]: ...
    @overload
    def __call__(
        self, function: Callable[[T, Context], Coroutine[Any, Any, R]]
    ) -> JobType[T, R]: ...
    @overload
    def __call__(self, function: Callable[[], R]) -> JobType[None, R]: ...
    @overload
    def __call__(self, function: Callable[[T], R]) -> JobType[T, R]: ...
    @overload
    def __call__(self, function: Callable[[T, Context], R]) -> JobType[T, R]: ...
    def __call__(self, function: Callable[..., Any]) -> JobType[Any, Any]:
        return self._make(function)


class Declarations:
    """A place where jobs are declared."""

    def __init__(self, *, queue: str) -> None:
        self._queue = queue
        self._declared: dict[str, JobType[Any, Any]] = {}

    @property
    def job_types(self) -> tuple[JobType[Any, Any], ...]:
        return tuple(self._declared.values())

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
        timeout: timedelta = DEFAULT_TIMEOUT,
        run_in: str | None = None,
        concurrency: int | None = None,
        aliases: tuple[str, ...] = (),
        version: int = 1,
        upgrade: Callable[[Any, int], Any] | None = None,
        max_depth: int | None = None,
    ) -> JobDecorator:
        """Declare a job: `name` is its type, for ever; the function may be renamed at will.

        `subject` and `idempotency_key` are templates over the payload's fields, or functions of it.
        """
        for one in (name, *aliases):
            if not one or (problem := name_problem(one, 128)):
                raise InvalidInput(f"The job type {one!r} {problem if one else 'is empty'}.")

        def make(function: Callable[..., Any]) -> JobType[Any, Any]:
            handler = make_handler(
                name,
                function,
                run_in=run_in,
                queue=queue or self._queue,
                aliases=aliases,
                version=version,
                upgrade=upgrade,
                timeout=timeout,
                concurrency=concurrency,
                policy=Policy(retry=retry or Backoff(), schedule=schedule),
            )
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

    def _declare(self, job_type: JobType[Any, Any]) -> JobType[Any, Any]:
        if job_type.name in self._declared:
            raise InvalidInput(f"The job type {job_type.name!r} is declared twice.")
        self._declared[job_type.name] = job_type
        return job_type


class JobGroup(Declarations):
    """Jobs declared apart from the application, so that modules need not import it."""

    def __init__(self, *, queue: str = "default") -> None:
        super().__init__(queue=queue)

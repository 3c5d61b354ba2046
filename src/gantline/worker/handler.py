"""A handler: the function that runs a type of job, and all that the runtime must know about it."""

import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import StrEnum
from types import NoneType
from typing import Any, Final

import msgspec

from gantline.contract.bounds import SHORTEST, check_span
from gantline.contract.codec import Codec, codec_for
from gantline.contract.errors import InvalidInput
from gantline.contract.job import DEFAULT_QUEUE
from gantline.contract.policy import DEFAULT_POLICY, Policy
from gantline.contract.status import Event
from gantline.worker.signature import Signature, read_signature

DEFAULT_TIMEOUT: Final = timedelta(minutes=10)


class RunIn(StrEnum):
    """Where a handler runs: on the event loop, in a thread, in a process that can be killed."""

    LOOP = "loop"
    THREAD = "thread"
    PROCESS = "process"


class Handler(msgspec.Struct, frozen=True, kw_only=True):
    """One handler, as declared."""

    job_type: str
    function: Callable[..., Any]
    codec: Codec[Any]
    result_codec: Codec[Any] | None
    """None where its results are omitted."""
    signature: Signature
    run_in: RunIn
    queue: str = DEFAULT_QUEUE
    queues: tuple[str, ...] = ()
    """Further ones that a caller may choose."""
    aliases: tuple[str, ...] = ()
    version: int = 1
    upgrade: Callable[[Any, int], Any] | None = None
    timeout: timedelta = DEFAULT_TIMEOUT
    concurrency: int | None = None
    policy: Policy = DEFAULT_POLICY
    own: Mapping[str, Any] = {}
    """What its declaration says of `queue`, `timeout` and the policy; see `with_defaults`."""

    def __post_init__(self) -> None:
        check_span(f"The timeout of {self.job_type!r}", self.timeout, least=SHORTEST)
        if self.run_in is RunIn.PROCESS:
            _check_importable(self.function)
            if self.policy.classify is not None:
                _check_importable(self.policy.classify)

    @property
    def job_types(self) -> tuple[str, ...]:
        return (self.job_type, *self.aliases)

    @property
    def all_queues(self) -> tuple[str, ...]:
        return (self.queue, *self.queues)

    def upgraded(self, payload: bytes, version: int) -> bytes:
        """A payload that was made of an older version, as this one has it."""
        if version >= self.version or self.upgrade is None:
            return payload
        return msgspec.json.encode(self.upgrade(msgspec.json.decode(payload), version))

    def with_defaults(self, **defaults: Any) -> "Handler":
        """With these for what its declaration leaves open: an application's own."""
        chosen = {**defaults, **self.own}
        queue, timeout = chosen.pop("queue"), chosen.pop("timeout")
        policy = Policy(**chosen)
        return msgspec.structs.replace(self, queue=queue, timeout=timeout, policy=policy)


def make_handler(
    job_type: str,
    function: Callable[..., Any],
    *,
    run_in: RunIn | str | None = None,
    keeps_result: bool = True,
    **options: Any,
) -> Handler:
    """Make a handler of a function: `async def` runs on the loop, `def` in a thread."""
    try:
        signature = read_signature(function)
        codec = codec_for(signature.payload)
        result_codec = result_codec_for(signature) if keeps_result else None
    except (NameError, TypeError, RuntimeError) as error:
        raise InvalidInput(
            f"The types of {function.__qualname__} cannot be read: {error}.",
            next_step="Define them before the handler, at the top level of a module.",
        ) from None
    where = RunIn(run_in) if run_in else (RunIn.LOOP if signature.is_async else RunIn.THREAD)
    if (where is RunIn.LOOP) != signature.is_async and where is not RunIn.PROCESS:
        raise InvalidInput(
            f"{function.__qualname__} cannot run in the {where}.",
            next_step="`async def` runs on the loop, `def` in a thread or a process.",
        )
    return Handler(
        job_type=job_type,
        function=function,
        codec=codec,
        result_codec=result_codec,
        signature=signature,
        run_in=where,
        **options,
    )


def check_function(function: Any, what: str, *arguments: object) -> None:
    """Raise InvalidInput where it yields, is no function, or cannot be called with these."""
    try:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError("it yields")
        if not inspect.isroutine(function):
            raise TypeError("it is not a function")
        if arguments:
            inspect.signature(function).bind(*arguments)
    except (TypeError, ValueError) as error:
        name = getattr(function, "__qualname__", repr(function))
        next_step = "Write a `def` or an `async def` that returns."
        raise InvalidInput(f"{name} cannot be {what}: {error}.", next_step=next_step) from None


def result_codec_for(signature: Signature) -> Codec[Any]:
    """A result whose type no codec knows is still kept as plain data."""
    # `-> None` says what a handler returns, but not which result it gives its transaction.
    try:
        return codec_for(Any if signature.result is NoneType else signature.result)
    except InvalidInput:
        return codec_for(Any)


def _check_importable(function: Callable[..., Any]) -> None:
    """What runs in a process is found by its name in the child; nothing is pickled."""
    name = getattr(function, "__qualname__", f"{function}.")
    if "<" in name or "." in name:
        raise InvalidInput(
            f"{name} cannot run in a process: the child could not import it.",
            next_step="Make it a function at the top level of a module.",
        )


class HandlerRegistry:
    """One handler per type; aliases lead to the handler of the newer name."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._logging: dict[Event, tuple[str, ...]] = {}

    def add(self, handler: Handler) -> None:
        for name in handler.job_types:
            known = self._handlers.get(name)
            if known is not None and known.function is not handler.function:
                raise InvalidInput(
                    f"The job type {name!r} has two handlers, {known.function.__qualname__} and "
                    f"{handler.function.__qualname__}.",
                    next_step="Rename one of them.",
                )
            self._handlers[name] = handler
            for event in handler.policy.events:
                self._logging[event] = (*self._logging.get(event, ()), name)

    def find(self, job_type: str) -> Handler | None:
        return self._handlers.get(job_type)

    def policy_for(self, job_type: str) -> Policy:
        handler = self._handlers.get(job_type)
        return handler.policy if handler else DEFAULT_POLICY

    def logging(self, event: Event) -> tuple[str, ...]:
        """The types that ask for an event of ON_REQUEST."""
        return self._logging.get(event, ())

    @property
    def crash_budgets(self) -> dict[str, int]:
        return {name: handler.policy.max_crashes for name, handler in self._handlers.items()}

    @property
    def handlers(self) -> list[Handler]:
        """Each handler once, in the order in which they were added."""
        found = {id(handler): handler for handler in self._handlers.values()}
        return list(found.values())

    @property
    def job_types(self) -> tuple[str, ...]:
        return tuple(self._handlers)

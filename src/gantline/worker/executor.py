"""The executor: takes one run from its claim to its end, in named steps.

resolve → decode → provide → perform → settle → report
"""

import asyncio
import inspect
import logging
import sys
from collections.abc import Awaitable, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from datetime import datetime, timedelta
from functools import partial
from types import CoroutineType
from typing import Any, Final, get_args

import msgspec

from gantline.contract.classify import classify, not_started
from gantline.contract.errors import Code, InvalidInput, Permanent, ResultNotStorable
from gantline.contract.outcome import (
    ErrorInfo,
    Failure,
    Outcome,
    Released,
    Snoozed,
    Success,
    Unreadable,
)
from gantline.contract.snapshot import Run
from gantline.contract.status import Event
from gantline.runtime import monotonic
from gantline.worker.active_run import ActiveRun, Cause, RunTracer
from gantline.worker.context import Context, ProgressLog, RunStopped, StoreRunPort, enter, leave
from gantline.worker.deadlines import Deadlines
from gantline.worker.handler import Handler, HandlerRegistry, RunIn
from gantline.worker.processes import ProcessPool, Request, import_path
from gantline.worker.threads import HandlerThreads

RunHook = Callable[[Context], AbstractAsyncContextManager[None]]
"""Something that is entered before a handler is called and left afterwards."""

Call = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Calls a `def`, where no event loop runs."""

# A payload of a version that this worker does not know yet waits for a newer worker.
_WAIT_FOR_NEWER_WORKER: Final = timedelta(seconds=30)

_NOT_DECODED: Final = (Unreadable, Failure, Snoozed, Released)
_SIGNALS: Final = (BaseException, *get_args(Outcome))
_STRUCTS_AND_ERRORS: Final = (BaseException, msgspec.Struct)


class Executor:
    """Run handlers, wherever they are to run. What it returns is an outcome, never an exception."""

    def __init__(
        self,
        registry: HandlerRegistry,
        port: StoreRunPort,
        *,
        threads: HandlerThreads,
        processes: ProcessPool,
        deadlines: Deadlines,
        hooks: tuple[RunHook, ...] = (),
        tracer: RunTracer | None = None,
        state: Any = None,
    ) -> None:
        self._registry = registry
        self._port = port
        self._threads = threads
        self._processes = processes
        self._deadlines = deadlines
        self._hooks = hooks
        self._tracer = tracer
        self._state = state

    def resolve(self, run: Run, now: datetime) -> ActiveRun | None:
        """Find the handler of a run that starts now; None when there is none."""
        handler = self._registry.find(run.job.job_type)
        if handler is None:
            return None
        context = Context(
            run,
            self._port,
            deadline=now + handler.timeout,
            state=self._state,
            result_codec=handler.result_codec,
            progress_log=ProgressLog() if Event.PROGRESSED in handler.policy.events else None,
        )
        return ActiveRun(run, handler, context)

    async def run(self, active: ActiveRun) -> Outcome | None:
        """Run to the end; None means that nothing may be written about it any more."""
        handler, began_at = active.handler, monotonic()
        outcome: Outcome | None = None
        try:
            if self._tracer is not None:
                active.span = self._tracer.begin(active.context)
            self._deadlines.add(active)
            decoded = _decode(handler, active.run)
            if isinstance(decoded, _NOT_DECODED):
                outcome = decoded
            elif handler.run_in is RunIn.PROCESS:
                outcome = await self._in_process(active, decoded)
            else:
                # It stays Running as long as its function does: a thread cannot be cancelled.
                call = self._threads.call
                outcome = await perform(handler, active.context, decoded, call, self._hooks)
        except BaseException as error:  # a handler may raise anything, SystemExit included
            outcome = active.outcome_of(error)
        finally:
            active.is_over = True
            self._deadlines.remove(active)
            active.seconds = monotonic() - began_at
            if active.span is not None:
                active.span.end(outcome)
        return outcome

    async def _in_process(self, active: ActiveRun, payload: Any) -> Outcome | None:
        child = active.child = await self._processes.take()
        outcome: Outcome | None = None
        try:
            if active.cause is None:  # else it was stopped while there was no child to kill
                request = _request_for(active, payload, audits=self._port.audits)
                outcome = await child.run(request, self._port)
        except BaseException:
            child.kill()  # its answer to this run must not become that to another
            raise
        finally:
            active.child = None
            self._processes.give_back(child)
        if active.cause is None or isinstance(outcome, Success):
            return outcome
        has_answered = outcome is not None and child.is_alive
        if active.cause is Cause.CANCEL and has_answered:
            return outcome
        return active.outcome_of(asyncio.CancelledError())


async def perform(
    handler: Handler, context: Context, payload: Any, call: Call, hooks: tuple[RunHook, ...] = ()
) -> Success | Failure | Snoozed:
    """Call a handler with all that it takes, wherever it runs; raise what it raises."""
    token = enter(context)
    try:
        if not hooks and not handler.signature.dependencies:
            result = await _result_of(handler, context, payload, call, {})
        else:
            async with AsyncExitStack() as stack:
                for hook in hooks:
                    await stack.enter_async_context(hook(context))
                provided = {
                    name: await _provided(stack, dependency.provider, context)
                    for name, dependency in handler.signature.dependencies.items()
                }
                result = await _result_of(handler, context, payload, call, provided)
    finally:
        leave(token)
    if context.settled is not None:
        return Success()
    try:
        return context.success_of(result)
    except ResultNotStorable as error:  # the work is done: no reason to do it again
        return classify(error)


async def _result_of(
    handler: Handler, context: Context, payload: Any, call: Call, provided: dict[str, Any]
) -> Any:
    arguments, keywords = handler.signature.arguments(payload, context, provided)
    if handler.run_in is RunIn.LOOP:
        result = await handler.function(*arguments, **keywords)
    else:
        result = await call(partial(handler.function, *arguments, **keywords))
    if isinstance(result, CoroutineType):
        result.close()
        name = handler.function.__qualname__
        raise Permanent(
            Code.CONFIGURATION_ERROR,
            f"{name} returned a coroutine that nobody has awaited: make it an `async def`.",
        )
    if result is not None and _is_signal(result):
        # Raised here, so that dependencies do not commit what it did.
        name = (result if isinstance(result, type) else type(result)).__name__
        raise ResultNotStorable(
            f"{handler.function.__qualname__} returned {name}, which says that a run has not "
            "completed, instead of raising it.",
            next_step=f"Write `raise {name}(…)`.",
        )
    if context.saw_stop and not context.is_settled:
        # It may be a part only. Raised here, so that dependencies do not commit it either.
        raise RunStopped(f"The handler of job {context.job_id} returned after it saw the stop.")
    return result


def _is_signal(result: Any) -> bool:
    """Whether a handler should have raised what it returned; 0.5 µs less than one `isinstance`."""
    if isinstance(result, type):
        return issubclass(result, BaseException)
    return isinstance(result, _STRUCTS_AND_ERRORS) and isinstance(result, _SIGNALS)


def _request_for(active: ActiveRun, payload: Any, *, audits: bool) -> Request:
    handler, run, classifier = active.handler, active.run, active.handler.policy.classify
    if handler.function.__module__ == "__main__":
        raise Permanent(
            Code.CONFIGURATION_ERROR,
            f"{handler.function.__qualname__} is in the program itself, which no other process can "
            "import: put it in a module.",
        )
    if run.job.payload_version < handler.version and handler.signature.takes_payload:
        # The child upgrades nothing.
        body = msgspec.Raw(handler.codec.encode(payload, limit=sys.maxsize).body)
        run = msgspec.structs.replace(run, job=msgspec.structs.replace(run.job, payload=body))
    return Request(
        function=import_path(handler.function),
        run=run,
        deadline=active.context.deadline,
        classifier=None if classifier is None else import_path(classifier),
        keeps_result=handler.result_codec is not None,
        logs_progress=Event.PROGRESSED in handler.policy.events,
        audits=audits,
        log_level=logging.getLogger().getEffectiveLevel(),
        trace_context=dict(active.carrier),
    )


def _decode(handler: Handler, run: Run) -> Any:
    job = run.job
    if run.has_expired:
        return Released()  # unstarted, and so it ends
    if job.payload_version > handler.version:
        return Snoozed(_WAIT_FOR_NEWER_WORKER)
    if not handler.signature.takes_payload:
        return None
    try:
        return handler.codec.decode(handler.upgraded(bytes(job.payload), job.payload_version))
    except InvalidInput as error:
        return _not_decodable(run, error)
    except Exception as error:  # a codec or an upgrade of the user's own broke
        return not_started(error)


def _not_decodable(run: Run, error: InvalidInput) -> Unreadable | Failure:
    """What is no JSON at all is poison; what has the wrong shape is the submitter's failure."""
    try:
        run.job.data()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return Unreadable(str(error))
    return Failure(ErrorInfo(Code.VALIDATION_ERROR, str(error)), retryable=False)


async def _provided(stack: AsyncExitStack, provider: Callable[..., Any], context: Context) -> Any:
    """Call a provider, which may take the context, be async, and clean up after a yield."""
    arguments = [context] if inspect.signature(provider).parameters else []
    if inspect.isasyncgenfunction(provider):
        return await stack.enter_async_context(asynccontextmanager(provider)(*arguments))
    if inspect.isgeneratorfunction(provider):
        return stack.enter_context(contextmanager(provider)(*arguments))
    value = provider(*arguments)
    return await value if inspect.isawaitable(value) else value

"""The child of a process handler: reads a request, runs the function, writes the answer, again.

python -m gantline.worker.process_child NUMBER_OF_THE_SOCKET
"""

import asyncio
import ctypes
import importlib
import inspect
import logging
import os
import signal
import socket
import struct
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, Final, TypeVar

import msgspec

from gantline.contract.bounds import held
from gantline.contract.classify import ErrorClassifier, classify
from gantline.contract.errors import Code, GantlineError, InvalidInput, Permanent
from gantline.contract.outcome import Stopped, Success
from gantline.contract.snapshot import Progress, Run
from gantline.contract.store import StoreTransaction
from gantline.contract.submission import DedupeKey, NewJob, SubmitOptions
from gantline.contract.text import storable
from gantline.contract.transition import Transition
from gantline.manager.manager import shown
from gantline.runtime import start_thread
from gantline.worker.context import Context, ProgressLog, nothing_to_await
from gantline.worker.executor import perform
from gantline.worker.handler import Handler, RunIn, make_handler
from gantline.worker.processes import (
    Answer,
    IsHeld,
    LogLine,
    Prepare,
    Question,
    Reply,
    Report,
    Request,
    Stop,
    framed,
)
from gantline.worker.run_log import plain_extras

T = TypeVar("T")

_LENGTH: Final = struct.Struct("!I")
_PR_SET_PDEATHSIG: Final = 1
_LINE_LIMIT: Final = 65_536
_FORMATTER: Final = logging.Formatter()


def serve(descriptor: int) -> None:
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)  # programs that the handler starts have no use for it
    parent = Parent(connection)
    _die_with_the_parent()
    # The terminal's Ctrl-C is for the parent, which decides what happens to us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    root = logging.getLogger()
    root.addHandler(parent)
    start_thread(parent.listen, "gantline-parent")
    while (request := parent.requests.get()) is not None:
        root.setLevel(request.log_level)
        parent.has_a_run = True
        answer = _run(request, parent)
        parent.has_a_run = False
        if os.getpid() != parent.process:  # a fork that has returned: the answer is not its own
            os._exit(0)
        parent.send(answer)


class Parent(logging.Handler):
    """The way to the parent, from any thread: for log lines, and as the port of the context."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        self._incoming, self._outgoing = connection.makefile("rb"), connection.makefile("wb")
        # What a fork of the handler would wait for comes to this process.
        self.process = os.getpid()
        self.has_a_run = False
        self.requests: SimpleQueue[Request | None] = SimpleQueue()
        self._asked: deque[Future[Reply]] = deque()
        self._stopping = threading.Lock()
        self.is_stopping = False
        self._on_stop: Callable[[], None] | None = None

    # -- what comes -------------------------------------------------------------------------------

    def listen(self) -> None:
        """In a thread: hear the parent until it is gone."""
        try:
            while (message := self._read()) is not None:
                self._take(msgspec.json.decode(message, type=Request | Stop | Reply))
        finally:
            if self.has_a_run:  # nobody waits for its answer
                os._exit(1)
            self.requests.put(None)

    def _read(self) -> bytes | None:
        header = self._incoming.read(_LENGTH.size)
        if len(header) < _LENGTH.size:
            return None
        return self._incoming.read(_LENGTH.unpack(header)[0])

    def _take(self, message: Request | Stop | Reply) -> None:
        match message:
            case Request():
                with self._stopping:  # a stop that is left was for the last run
                    self.is_stopping, self._on_stop = False, None
                self.requests.put(message)
            case Stop():
                with self._stopping:
                    self.is_stopping = True
                    on_stop, self._on_stop = self._on_stop, None
                if on_stop is not None:
                    on_stop()
            case Reply():
                self._asked.popleft().set_result(message)

    def on_stop(self, callback: Callable[[], None]) -> None:
        """Have something called, once, when the run is to stop, or now if it is already."""
        with self._stopping:
            if not self.is_stopping:
                self._on_stop = callback
                return
        callback()

    # -- what goes --------------------------------------------------------------------------------

    def send(self, what: Answer | LogLine | Report | Question) -> None:
        """Waits while the parent does not read: it is busy with what was sent before."""
        message = framed(msgspec.json.encode(what))
        self.acquire()  # a log handler's lock is made anew in a fork
        try:
            self._outgoing.write(message)
            self._outgoing.flush()
        finally:
            self.release()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            detail = _FORMATTER.formatException(record.exc_info) if record.exc_info else ""
            self.send(
                LogLine(
                    record.name,
                    record.levelno,
                    storable(record.getMessage(), _LINE_LIMIT),
                    record.created,
                    storable(detail, _LINE_LIMIT),
                    {
                        name: storable(value, _LINE_LIMIT) if isinstance(value, str) else value
                        for name, value in plain_extras(record).items()
                    },
                    self.has_a_run,
                )
            )
        except Exception:
            self.handleError(record)

    # -- the port of the context ------------------------------------------------------------------

    def progress(self, update: Progress) -> Awaitable[None]:
        self._refuse_in_a_fork()
        self.send(Report(shown(update)))
        return nothing_to_await()

    def prepare(self, job_type: Any, payload: Any, options: SubmitOptions) -> NewJob:
        checked: SubmitOptions = held("A submit", SubmitOptions.__annotations__, options)
        body = job_type.handler.codec.encode(payload, limit=sys.maxsize).body  # it has the limit
        asked = self._ask(Prepare(job_type.name, msgspec.Raw(body), checked))
        return _value_of(asked.result(), NewJob)

    async def is_held(self, key: DedupeKey) -> bool:
        return _value_of(await asyncio.wrap_future(self._ask(IsHeld(key))), bool)

    def transaction(self) -> AbstractAsyncContextManager[StoreTransaction]:
        raise Permanent(
            Code.CONFIGURATION_ERROR,
            "ctx.transaction() needs a handler on the loop: no process can use its connection.",
        )

    def decide(self, run: Run, success: Success) -> Transition:
        raise NotImplementedError("there are no transactions here")

    def _ask(self, question: Question) -> Future[Reply]:
        self._refuse_in_a_fork()
        asked: Future[Reply] = Future()
        self.acquire()  # the replies come in this order
        try:
            self._asked.append(asked)
            self.send(question)
        finally:
            self.release()
        return asked

    def _refuse_in_a_fork(self) -> None:
        if os.getpid() != self.process:
            raise GantlineError(
                "A process that a handler has started cannot use its Context.",
                next_step="Use it in the handler's own process.",
            )


def _value_of(reply: Reply, kind: type[T]) -> T:
    if reply.problem:
        error = InvalidInput if reply.is_invalid_input else GantlineError
        raise error(reply.problem, next_step=reply.next_step)
    return msgspec.json.decode(reply.value, type=kind)


# -- running -------------------------------------------------------------------------------------


def _run(request: Request, parent: Parent) -> Answer:
    classifier: ErrorClassifier | None = None
    try:
        classifier = request.classifier and _imported(*request.classifier)
        # The decorator leaves a job type under the function's name.
        function = inspect.unwrap(_imported(*request.function), stop=inspect.isroutine)
        _continue_trace(request.trace_context)
        handler = make_handler(
            request.run.job.job_type, function, keeps_result=request.keeps_result
        )
        turns = _Turns()
        return turns.run(_perform(request, handler, parent, turns))
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and parent.is_stopping:
            return Stopped()
        return classify(error, classifier)


def _imported(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


async def _perform(request: Request, handler: Handler, parent: Parent, turns: "_Turns") -> Any:
    run, loop, task = request.run, asyncio.get_running_loop(), asyncio.current_task()
    context = Context(
        run,
        parent,
        deadline=request.deadline,
        state=None,
        logger=logging.getLogger("gantline.worker"),
        result_codec=handler.result_codec,
        progress_log=ProgressLog() if request.logs_progress else None,
    )

    def stop() -> None:
        context.ask_to_stop()
        if handler.run_in is RunIn.LOOP and task is not None:
            with suppress(RuntimeError):  # the loop is closed: it has just ended
                loop.call_soon_threadsafe(task.cancel)

    parent.on_stop(stop)
    payload = handler.codec.decode(bytes(run.job.payload)) if handler.takes_payload else None
    return await perform(handler, context, payload, call=turns.call)


class _Turns:
    """An event loop that stands still while a `def` handler runs.

    Both are on the main thread, where a function may set signals and begin a loop of its own.
    """

    def __init__(self) -> None:
        self._function: Callable[[], Any] | None = None

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            loop = runner.get_loop()
            task = loop.create_task(main)
            task.add_done_callback(lambda _: loop.stop())
            loop.run_forever()
            if self._function is not None:
                self._call(self._function)
                loop.run_until_complete(task)
            return task.result()

    async def call(self, function: Callable[[], Any]) -> Any:
        """Called at most once."""
        loop, context = asyncio.get_running_loop(), copy_context()
        self._function, self._has_returned = lambda: context.run(function), loop.create_future()
        loop.stop()
        await self._has_returned
        if self._error is not None:
            raise self._error
        return self._value

    def _call(self, function: Callable[[], Any]) -> None:
        self._error: BaseException | None = None
        try:
            self._value = function()
        except BaseException as error:  # a handler may raise anything, SystemExit included
            self._error = error
        self._has_returned.set_result(None)


def _continue_trace(carrier: dict[str, str]) -> None:
    """Let the handler's own spans belong to the run, if its module is one that makes any."""
    if "opentelemetry.trace" in sys.modules:
        from opentelemetry import context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        context.attach(TraceContextTextMapPropagator().extract(carrier))


def _die_with_the_parent() -> None:
    """A parent that was killed cannot close our input while we work: have the kernel kill us."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    serve(int(sys.argv[1]))

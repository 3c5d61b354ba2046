"""The child of a process handler: reads a request, runs the function, writes the answer, again.

python -m gantline.worker.process_child NUMBER_OF_THE_SOCKET [PATH …]
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
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import cache
from itertools import count
from queue import SimpleQueue
from typing import Any, Final

import msgspec

from gantline.contract.bounds import held
from gantline.contract.classify import ErrorClassifier, classify
from gantline.contract.errors import Code, GantlineError, InvalidInput, Permanent
from gantline.contract.outcome import Stopped
from gantline.contract.snapshot import Progress
from gantline.contract.submission import DedupeKey, NewJob, SubmitOptions
from gantline.contract.text import storable
from gantline.manager.manager import shown
from gantline.runtime import start_thread
from gantline.worker import processes
from gantline.worker.context import Context, ProgressLog, nothing_to_await
from gantline.worker.executor import perform
from gantline.worker.handler import Handler, RunIn, make_handler
from gantline.worker.processes import Answer
from gantline.worker.run_log import plain_extras
from gantline.worker.threads import Call, Function, ended, new_call

_LENGTH: Final = struct.Struct("!I")
_PR_SET_PDEATHSIG: Final = 1
_LINE_LIMIT: Final = 65_536
_FORMATTER: Final = logging.Formatter()
_IN_A_FORK: Final = logging.StreamHandler()


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
    start_thread(parent.write, "gantline-to-parent")
    while (asked := parent.requests.get()) is not None:
        root.setLevel(asked[0].log_level)
        parent.has_a_run = True
        answer = _run(parent, *asked)
        parent.has_a_run = False
        if os.getpid() != parent.process:  # a fork that has returned: the answer is not its own
            os._exit(0)
        parent.send(answer)


class Parent(logging.Handler):
    """The way to the parent, from any thread: for log lines, and as the port of the context."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        self._connection, self._incoming = connection, connection.makefile("rb")
        self._unsent: SimpleQueue[tuple[bytes, threading.Lock]] = SimpleQueue()
        self.process = os.getpid()
        self.has_a_run = False
        self.requests: SimpleQueue[tuple[processes.Request, Future[None]] | None] = SimpleQueue()
        """Each with its own stop, so that no run sees that of another."""
        self._answer: dict[int, Callable[[processes.Reply], None]] = {}
        """What takes the reply to each question."""
        self._numbers = count(1)
        self.audits = False

    # -- what comes -------------------------------------------------------------------------------

    def listen(self) -> None:
        """In a thread: hear the parent until it is gone."""
        stop: Future[None] = Future()
        try:
            while header := self._incoming.read(_LENGTH.size):
                message = self._incoming.read(_LENGTH.unpack(header)[0])
                said = msgspec.json.decode(message, type=processes.FromParent)
                if isinstance(said, processes.Request):
                    self._answer.clear()  # of a run that is over
                    stop = Future()
                    self.requests.put((said, stop))
                elif isinstance(said, processes.Reply):
                    if answer := self._answer.pop(said.number, None):
                        with suppress(InvalidStateError):  # nobody waits for it any more
                            answer(said)
                elif not stop.done():
                    stop.set_result(None)
        finally:
            if self.has_a_run:  # nobody waits for its answer
                os._exit(1)
            self.requests.put(None)

    # -- what goes --------------------------------------------------------------------------------

    def send(self, what: processes.FromChild) -> None:
        """Waits while the parent does not read: it is busy with what was sent before.

        A lock is held until it is sent, not an Event: a signal that raises in Event.wait can leave
        the Event's own lock held, and then `write` would wait for it for ever.
        """
        frame, unsent = processes.framed(msgspec.json.encode(what)), threading.Lock()
        unsent.acquire()
        self._unsent.put((frame, unsent))
        unsent.acquire()

    def write(self) -> None:
        """In a thread: a signal that raises in the handler's own must not break a message off."""
        while True:
            frame, unsent = self._unsent.get()
            try:
                self._connection.sendall(frame)
            except OSError:  # the parent is gone
                os._exit(1)
            unsent.release()

    def emit(self, record: logging.LogRecord) -> None:
        if os.getpid() != self.process:  # a fork's lines would get between ours
            _IN_A_FORK.handle(record)
            return
        try:
            detail = _FORMATTER.formatException(record.exc_info) if record.exc_info else ""
            self.send(
                processes.LogLine(
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
        self.send(processes.Report(shown(update)))
        return nothing_to_await()

    def prepare(self, job_type: Any, payload: Any, options: SubmitOptions) -> NewJob:
        checked: SubmitOptions = held("A submit", SubmitOptions.__annotations__, options)
        handler: Handler = job_type.handler
        completed = handler.signature.completed(payload)
        body = handler.codec.encode(completed, limit=sys.maxsize).body  # the parent has the limit
        number = next(self._numbers)
        # Not a Future: a signal that raises in its `result` can leave its lock held for ever.
        reply: SimpleQueue[processes.Reply] = SimpleQueue()
        question = processes.Prepare(number, job_type.name, msgspec.Raw(body), checked)
        self._ask(question, reply.put)
        return msgspec.json.decode(_value_of(reply.get()), type=NewJob)

    async def is_held(self, key: DedupeKey) -> bool:
        question = processes.IsHeld(next(self._numbers), key)
        reply: Future[processes.Reply] = Future()
        self._ask(question, reply.set_result)
        return msgspec.json.decode(_value_of(await asyncio.wrap_future(reply)), type=bool)

    def transaction(self) -> Any:
        why = "ctx.transaction() needs a handler on the loop: no process can use its connection."
        raise Permanent(Code.CONFIGURATION_ERROR, why)

    decide: Any = None  # only for transactions

    def _ask(self, question: processes.Question, answer: Callable[[processes.Reply], None]) -> None:
        self._refuse_in_a_fork()
        self._answer[question.number] = answer
        try:
            self.send(question)
        except UnicodeEncodeError as error:
            raise InvalidInput(f"It cannot be stored: {error}.") from None

    def _refuse_in_a_fork(self) -> None:
        if os.getpid() != self.process:
            raise GantlineError("A process that a handler has started cannot use its Context.")


def _value_of(reply: processes.Reply) -> msgspec.Raw:
    if reply.problem:
        raise (InvalidInput if reply.is_invalid_input else GantlineError)(reply.problem)
    return reply.value


# -- running -------------------------------------------------------------------------------------


def _run(parent: Parent, request: processes.Request, stop: Future[None]) -> Answer:
    classifier: ErrorClassifier | None = None
    try:
        classifier = request.classifier and _imported(*request.classifier)
        # The decorator leaves a job type under the function's name.
        function = inspect.unwrap(_imported(*request.function), stop=inspect.isroutine)
        _continue_trace(request.trace_context)
        if inspect.iscoroutinefunction(function):
            return asyncio.run(_perform(parent, request, stop, function))
        return _run_with_pause(lambda call: _perform(parent, request, stop, function, call))
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and stop.done():
            return Stopped()
        return classify(error, classifier)


def _imported(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


@cache
def _handler_of(job_type: str, function: Any, keeps_result: bool) -> Handler:
    return make_handler(job_type, function, keeps_result=keeps_result)


async def _perform(
    parent: Parent, request: processes.Request, stop: Future[None], function: Any, call: Any = None
) -> Answer:
    run, loop, task = request.run, asyncio.get_running_loop(), asyncio.current_task()
    handler = _handler_of(run.job.job_type, function, request.keeps_result)
    parent.audits = request.audits
    context = Context(
        run,
        parent,
        deadline=request.deadline,
        state=None,
        result_codec=handler.result_codec,
        progress_log=ProgressLog() if request.logs_progress else None,
    )

    def ask_to_stop(_: Future[None]) -> None:
        context.ask_to_stop()
        if handler.run_in is RunIn.LOOP and task is not None:
            with suppress(RuntimeError):  # the loop is closed: it has just ended
                loop.call_soon_threadsafe(task.cancel)

    stop.add_done_callback(ask_to_stop)
    takes_payload = handler.signature.takes_payload
    payload = handler.codec.decode(bytes(run.job.payload)) if takes_payload else None
    return await perform(handler, context, payload, call)


def _run_with_pause(make: Callable[[Any], Coroutine[Any, Any, Answer]]) -> Answer:
    """Run a coroutine that calls a function once, during which its event loop stands still.

    So both are on the main thread, where a function may set signals, or begin a loop of its own.
    """
    paused: list[Call] = []

    async def call(function: Function) -> Any:
        paused.append(new_call(function, loop))
        loop.stop()
        return (await paused[0][1])()

    # Whatever policy the handler's module has set: its `def` has nothing to do with this loop.
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        loop = runner.get_loop()
        task = loop.create_task(make(call))
        task.add_done_callback(lambda _: loop.stop())
        loop.run_forever()
        for function, waiting in paused:
            waiting.set_result(ended(function))
            loop.run_until_complete(task)
        return task.result()


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
    sys.path[:] = sys.argv[2:]
    serve(int(sys.argv[1]))

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
from contextlib import suppress
from functools import cache
from typing import Any, BinaryIO, Final

import msgspec

from gantline.contract.classify import ErrorClassifier, classify
from gantline.contract.codec import codec_for, encode_result
from gantline.contract.outcome import Success
from gantline.contract.text import storable
from gantline.worker.handler import result_codec_for
from gantline.worker.processes import Answer, LogLine, Request, framed
from gantline.worker.run_log import plain_extras
from gantline.worker.signature import read_signature

_LENGTH: Final = struct.Struct("!I")
_PR_SET_PDEATHSIG: Final = 1
_LINE_LIMIT: Final = 65_536
_FORMATTER: Final = logging.Formatter()
_signature_of = cache(read_signature)


def serve(descriptor: int) -> None:
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)  # programs that the handler starts have no use for it
    parent = Parent(connection.makefile("wb"))
    _die_with_the_parent()
    # The terminal's Ctrl-C is for the parent, which decides what happens to us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    root = logging.getLogger()
    root.addHandler(parent)
    requests, me = connection.makefile("rb"), os.getpid()
    while (message := _read(requests)) is not None:
        request = msgspec.json.decode(message, type=Request)
        root.setLevel(request.log_level)
        parent.has_a_run = True
        answer = _run(request)
        parent.has_a_run = False
        if os.getpid() != me:  # a fork that has returned: the answer is not for it to give
            os._exit(0)
        parent.send(answer)


class Parent(logging.Handler):
    """The way to the parent; also for what the handler logs, from any thread."""

    def __init__(self, pipe: BinaryIO) -> None:
        super().__init__()
        self._pipe = pipe
        self._writing = threading.Lock()
        self.has_a_run = False

    def send(self, what: Answer | LogLine) -> None:
        message = framed(msgspec.json.encode(what))
        with self._writing:
            self._pipe.write(message)
            self._pipe.flush()

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


def _read(stream: BinaryIO) -> bytes | None:
    header = stream.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        return None
    return stream.read(_LENGTH.unpack(header)[0])


def _run(request: Request) -> Answer:
    classifier: ErrorClassifier | None = None
    try:
        classifier = request.classifier and _imported(*request.classifier)
        function = _imported(*request.function)
        _continue_trace(request.trace_context)
        # The decorator leaves a job type under the function's name.
        function = inspect.unwrap(function)
        signature, payload = _signature_of(function), None
        if request.takes_payload:
            payload = codec_for(signature.payload).decode(bytes(request.payload))
        arguments, keywords = signature.arguments(payload, None)
        codec = result_codec_for(signature) if request.keeps_result else None
        return Success(*encode_result(_call(function, arguments, keywords), codec))
    except BaseException as error:
        return classify(error, classifier)


def _imported(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def _call(function: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
    result = function(*arguments, **keywords)
    return asyncio.run(result) if inspect.iscoroutine(result) else result


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

"""The child of a process handler: reads a request, runs the function, writes the answer, again.

python -m windlass.worker.process_child
"""

import asyncio
import ctypes
import importlib
import inspect
import os
import signal
import struct
import sys
from contextlib import suppress
from typing import Any, BinaryIO, Final

import msgspec

from windlass.contract.classify import classify
from windlass.contract.codec import codec_for
from windlass.contract.outcome import Failure, Snoozed, Success
from windlass.contract.payload import encode_result
from windlass.worker.handler import read_signature
from windlass.worker.processes import Answer, Request, framed

_LENGTH: Final = struct.Struct("!I")
_PR_SET_PDEATHSIG: Final = 1


def serve() -> None:
    # What the handler prints goes to stderr; the pipe is for answers alone.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _die_with_the_parent()
    # The terminal's Ctrl-C is for the parent, which decides what becomes of us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests = sys.stdin.buffer
    while (message := _read(requests)) is not None:
        answer = Answer.of(_run(msgspec.json.decode(message, type=Request)))
        answers.write(framed(msgspec.json.encode(answer)))
        answers.flush()


def _read(stream: BinaryIO) -> bytes | None:
    header = stream.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        return None
    return stream.read(_LENGTH.unpack(header)[0])


def _run(request: Request) -> Success | Failure | Snoozed:
    try:
        function = getattr(importlib.import_module(request.module), request.function)
        # The decorator leaves a job type under the function's name.
        function = inspect.unwrap(function)
        arguments = []
        if request.takes_payload:
            codec = codec_for(read_signature(function).payload)
            arguments = [codec.decode(bytes(request.payload))]
        return Success(*encode_result(_call(function, arguments)))
    except BaseException as error:
        return classify(error)


def _call(function: Any, arguments: list[Any]) -> Any:
    result = function(*arguments)
    return asyncio.run(result) if inspect.iscoroutine(result) else result


def _die_with_the_parent() -> None:
    """A parent that was killed cannot close our input while we work: ask the kernel to tell us."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    serve()

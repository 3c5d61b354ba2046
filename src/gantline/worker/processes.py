"""Handlers in processes that can be killed: a pool of children that run one job at a time.

Parent and child speak JSON over a socket, in length-prefixed messages; nothing is pickled. The
parent sends a request, and while it runs perhaps a stop; the child sends log lines, progress and
questions, then its answer. A reply has the number of its question.
"""

import asyncio
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import msgspec

from gantline.contract.errors import GantlineError, InvalidInput
from gantline.contract.outcome import ErrorInfo, Failure, Outcome, Snoozed, Stopped, Success
from gantline.contract.snapshot import Progress, Run
from gantline.contract.submission import DedupeKey, SubmitOptions
from gantline.runtime import start_thread
from gantline.worker.context import StoreRunPort
from gantline.worker.run_log import Plain, labels_of

PROCESS_DIED: Final = "HANDLER_PROCESS_DIED"
_LENGTH: Final = struct.Struct("!I")
_LAST_WORDS_SECONDS: Final = 1.0
# From a stop to the kill. Shorter than the grace of a shutdown, in which the run's end is written.
_STOP_SECONDS: Final = 2.0
_STDERR: Final = 2


# -- from the parent -----------------------------------------------------------------------------


class Request(msgspec.Struct, kw_only=True, tag=True):
    """What a child is asked to run."""

    function: tuple[str, str]
    """Its module and its name, as of the classifier."""
    run: Run
    deadline: datetime
    classifier: tuple[str, str] | None
    keeps_result: bool
    logs_progress: bool
    audits: bool
    log_level: int
    trace_context: dict[str, str]


class Stop(msgspec.Struct, tag=True):
    """The run is to stop."""


class Reply(msgspec.Struct, tag=True):
    """What came of a question: its value, or why there is none."""

    number: int
    value: msgspec.Raw = msgspec.Raw(b"null")
    problem: str = ""
    is_invalid_input: bool = False


FromParent = Request | Stop | Reply

# -- from the child ------------------------------------------------------------------------------


class Report(msgspec.Struct, tag=True):
    """How far the run is."""

    progress: Progress


class IsHeld(msgspec.Struct, tag=True):
    """Asks the store whether a key is held."""

    number: int
    key: DedupeKey


class Prepare(msgspec.Struct, tag=True):
    """Asks the application, which the child need not have, for a job of this type."""

    number: int
    job_type: str
    payload: msgspec.Raw
    options: SubmitOptions


Question = IsHeld | Prepare


class LogLine(msgspec.Struct, omit_defaults=True, tag=True):
    """What the child wants in the log. The parent writes it, so that it looks like all others."""

    logger: str
    level: int
    message: str
    created: float
    detail: str = ""
    extra: dict[str, Plain] = {}
    of_a_run: bool = True


Answer = Success | Failure | Snoozed | Stopped
"""How it went."""
FromChild = Answer | LogLine | Report | Question

# -- the parent's side ---------------------------------------------------------------------------


def import_path(function: Callable[..., Any]) -> tuple[str, str]:
    return function.__module__, function.__qualname__


def framed(message: bytes) -> bytes:
    return _LENGTH.pack(len(message)) + message


def _start(descriptor: int) -> subprocess.Popen[bytes]:
    """Start a child that has this socket. On the loop's thread: it dies with its thread."""
    return subprocess.Popen(  # noqa: S603  # our own command line
        # With our path: of a script its folder is part of it.
        [sys.executable, "-m", "gantline.worker.process_child", str(descriptor), *sys.path],
        stdin=subprocess.DEVNULL,
        stdout=_STDERR,  # what the handler prints
        pass_fds=(descriptor,),
        start_new_session=True,  # to be killed with all that the handler has started
    )


class Child:
    """One child process, running at most one job.

    Not asyncio's own subprocess: its `wait` waits until nobody holds the pipes any more, and a fork
    of the handler may do so for ever. Here a thread waits for the process itself.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._is_killed = False
        self._kill_timer: asyncio.TimerHandle | None = None
        self._has_ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        start_thread(lambda: self._wait(loop), f"gantline-child-{process.pid}")

    @classmethod
    async def start(cls) -> "Child":
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                reader, writer = await asyncio.open_unix_connection(sock=ours)
            except BaseException:
                ours.close()
                raise
            try:
                return cls(_start(theirs.fileno()), reader, writer)
            except BaseException:
                writer.close()
                raise

    async def run(self, request: Request, port: StoreRunPort) -> Outcome:
        """Have the child run the handler; a child that dies is a failed attempt."""
        try:
            self._send(request)  # before anything is awaited, so that no stop overtakes it
            return await self._answer(request.run, port)
        except (OSError, asyncio.IncompleteReadError):
            self.kill()  # it cannot be asked any more, whether it lives or not
            code = await self.ended()
            error = ErrorInfo(
                PROCESS_DIED, "The job's process ended unexpectedly.", f"exit code {code}"
            )
            return Failure(error)
        finally:
            if self._kill_timer is not None:  # it may run another job by then
                self._kill_timer.cancel()
                self._kill_timer = None

    def stop(self) -> None:
        """Ask the handler to stop; kill it if it has not ended soon."""
        if self._kill_timer is None and self.is_alive:
            self._send(Stop())
            loop = asyncio.get_running_loop()
            self._kill_timer = loop.call_later(_STOP_SECONDS, self.kill)

    def _send(self, message: FromParent) -> None:
        self._writer.write(framed(msgspec.json.encode(message)))

    async def _answer(self, run: Run, port: StoreRunPort) -> Answer:
        """Its answer, or an error once it has ended: what it forked may keep the socket open."""
        asking = asyncio.create_task(self._listen(run, port))
        ended = asyncio.create_task(self.ended())
        try:
            await asyncio.wait({asking, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():  # what it wrote last may still be on its way
                await asyncio.wait({asking}, timeout=_LAST_WORDS_SECONDS)
            if not asking.done():
                raise OSError("the child has ended")
            return asking.result()
        finally:
            asking.cancel()
            ended.cancel()
            await asyncio.gather(asking, ended, return_exceptions=True)

    async def _listen(self, run: Run, port: StoreRunPort) -> Answer:
        """Do what the child asks for, one thing at a time: until then it sends little more."""
        await self._writer.drain()
        while True:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            message = await self._reader.readexactly(length)
            said: FromChild = msgspec.json.decode(message, type=FromChild)
            if isinstance(said, LogLine):
                _log(said, run, self._process.pid)
            elif isinstance(said, Report):
                with suppress(Exception):  # as in a thread, nobody waits for it
                    await port.progress(said.progress)
            elif isinstance(said, IsHeld | Prepare):
                self._send(await _reply_to(said, port))
            else:
                return said

    @property
    def is_alive(self) -> bool:
        return not self._has_ended.is_set() and not self._is_killed

    def kill(self) -> None:
        """Kill it with all that it has started; what has ended already is left alone."""
        self._is_killed = True  # the exit code comes later
        if not self._has_ended.is_set():
            self._kill_group()

    def _kill_group(self) -> None:
        # PermissionError: on macOS, where nothing but the ended child itself is left of the group.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread: wait for its end, without taking its exit code where that is possible.

        As long as nobody has taken it, the number of the process is not given to another one.
        """
        if hasattr(os, "waitid"):  # not on macOS before Python 3.13
            with suppress(ChildProcessError):  # other code has taken it
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._process.wait()
        with suppress(RuntimeError):  # the loop has ended: nobody waits any more
            loop.call_soon_threadsafe(self._end)

    def has_just_ended(self) -> bool:
        """Also where the thread that waits for it has not said so yet."""
        if not hasattr(os, "waitid"):
            return False
        with suppress(ChildProcessError):
            flags = os.WEXITED | os.WNOWAIT | os.WNOHANG
            return os.waitid(os.P_PID, self._process.pid, flags) is not None
        return True

    def _end(self) -> None:
        self._kill_group()
        self._process.wait()
        self._has_ended.set()

    async def ended(self) -> int:
        """Wait for its exit code."""
        await self._has_ended.wait()
        return self._process.wait()

    async def close(self) -> None:
        """Let it go: it ends when its input does; killed if it does not."""
        self._writer.close()
        try:
            async with asyncio.timeout(1):
                await self.ended()
        except TimeoutError:
            self.kill()
            await self.ended()
        with suppress(OSError):
            await self._writer.wait_closed()


async def _reply_to(question: Question, port: StoreRunPort) -> Reply:
    value: object
    try:
        if isinstance(question, IsHeld):
            value = await port.is_held(question.key)
        else:
            value = port.prepare_encoded(question.job_type, question.payload, question.options)
    except Exception as error:
        problem = str(error) if isinstance(error, GantlineError) else repr(error)
        is_invalid_input = isinstance(error, InvalidInput)
        return Reply(question.number, problem=problem, is_invalid_input=is_invalid_input)
    return Reply(question.number, msgspec.Raw(msgspec.json.encode(value)))


def _log(line: LogLine, run: Run, pid: int) -> None:
    logger = logging.getLogger(line.logger)
    if not logger.isEnabledFor(line.level):
        return
    labels = labels_of(run) if line.of_a_run else {}
    extra = line.extra | labels
    where = (line.logger, line.level, "", 0)
    record = logger.makeRecord(*where, line.message, (), None, extra=extra)
    record.created, record.process = line.created, pid
    record.msecs = line.created % 1 * 1000
    record.exc_text = line.detail or None
    logger.handle(record)


class ProcessPool:
    """Children that are started when needed and used again."""

    def __init__(self) -> None:
        self._idle: list[Child] = []
        self._ending: set[asyncio.Task[None]] = set()

    async def take(self) -> Child:
        while self._idle:
            child = self._idle.pop()
            if child.is_alive and not child.has_just_ended():
                return child
            self._let_go(child)
        return await Child.start()

    def give_back(self, child: Child) -> None:
        if child.is_alive:
            self._idle.append(child)
        else:
            self._let_go(child)

    def _let_go(self, child: Child) -> None:
        closing = asyncio.create_task(child.close())
        self._ending.add(closing)
        closing.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        idle, self._idle = self._idle, []
        await asyncio.gather(*(child.close() for child in idle), *self._ending)

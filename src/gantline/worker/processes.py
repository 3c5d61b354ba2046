"""Handlers in processes that can be killed: a pool of children that run one job at a time.

Parent and child speak JSON over a socket, in length-prefixed messages; nothing is pickled.
"""

import asyncio
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from gantline.contract.outcome import ErrorInfo, Failure, Outcome, Snoozed, Success
from gantline.contract.snapshot import Run
from gantline.runtime import start_thread
from gantline.worker.handler import Handler
from gantline.worker.run_log import Plain, labels_of

PROCESS_DIED: Final = "HANDLER_PROCESS_DIED"
_LENGTH: Final = struct.Struct("!I")
_LAST_WORDS_SECONDS: Final = 1.0
_STDERR: Final = 2


class Request(msgspec.Struct):
    """What a child is asked to run."""

    function: tuple[str, str]
    """Its module and its name, as of the classifier."""
    takes_payload: bool
    payload: msgspec.Raw
    classifier: tuple[str, str] | None = None
    keeps_result: bool = True
    log_level: int = logging.WARNING
    trace_context: dict[str, str] = {}


class LogLine(msgspec.Struct, omit_defaults=True, tag=True):
    """What the child wants in the log. The parent writes it, so that it looks like all others."""

    logger: str
    level: int
    message: str
    created: float
    detail: str = ""
    extra: dict[str, Plain] = {}
    of_a_run: bool = True


Answer = Success | Failure | Snoozed
"""How it went."""


def _import_path(function: Callable[..., Any]) -> tuple[str, str]:
    return function.__module__, function.__qualname__


def framed(message: bytes) -> bytes:
    return _LENGTH.pack(len(message)) + message


def _start(descriptor: int) -> subprocess.Popen[bytes]:
    """Start a child that has this socket. On the loop's thread: it dies with its thread."""
    return subprocess.Popen(  # noqa: S603  # our own command line
        [sys.executable, "-m", "gantline.worker.process_child", str(descriptor)],
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

    async def run(self, handler: Handler, run: Run, carrier: Mapping[str, str]) -> Outcome:
        """Have the child run the handler; a child that dies is a failed attempt."""
        classifier = handler.policy.classify
        request = Request(
            _import_path(handler.function),
            handler.signature.takes_payload,
            run.job.payload,
            None if classifier is None else _import_path(classifier),
            handler.result_codec is not None,
            logging.getLogger().getEffectiveLevel(),
            dict(carrier),
        )
        try:
            return await self._answer(msgspec.json.encode(request), run)
        except (OSError, asyncio.IncompleteReadError):
            self.kill()  # it cannot be asked any more, whether it lives or not
            code = await self.ended()
            error = ErrorInfo(
                PROCESS_DIED, "The job's process ended unexpectedly.", f"exit code {code}"
            )
            return Failure(error)

    async def _answer(self, message: bytes, run: Run) -> Answer:
        """Its answer, or an error once it has ended: what it forked may keep the socket open."""
        asking = asyncio.create_task(self._ask(message, run))
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

    async def _ask(self, message: bytes, run: Run) -> Answer:
        self._writer.write(framed(message))
        await self._writer.drain()
        while True:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            said: Answer | LogLine = msgspec.json.decode(
                await self._reader.readexactly(length), type=Answer | LogLine
            )
            if not isinstance(said, LogLine):
                return said
            _log(said, run, self._process.pid)

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
            if child.is_alive:
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

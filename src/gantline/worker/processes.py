"""Handlers in processes that can be killed: a pool of children that run one job at a time.

Parent and child speak JSON over pipes, one length-prefixed message each way; nothing is pickled.
"""

import asyncio
import logging
import os
import signal
import struct
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Final

import msgspec

from gantline.contract.outcome import ErrorInfo, Failure, Outcome, Snoozed, Success
from gantline.contract.snapshot import Run
from gantline.worker.handler import Handler
from gantline.worker.labels import Plain, labels_of

PROCESS_DIED: Final = "HANDLER_PROCESS_DIED"
_LENGTH: Final = struct.Struct("!I")
_LAST_WORDS_SECONDS: Final = 1.0


class Request(msgspec.Struct):
    """What a child is asked to run."""

    module: str
    function: str
    takes_payload: bool
    payload: msgspec.Raw
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


class Answer(msgspec.Struct, omit_defaults=True, tag=True):
    """How it went: a result, an error or a snooze."""

    result: msgspec.Raw = msgspec.Raw(b"null")
    result_omitted: str | None = None
    code: str | None = None
    message: str = ""
    detail: str = ""
    retryable: bool = True
    retry_after: float | None = None
    snooze: float | None = None

    def outcome(self) -> Outcome:
        if self.snooze is not None:
            return Snoozed(timedelta(seconds=self.snooze))
        if self.code is None:
            body = bytes(self.result)
            return Success(None if body == b"null" else body, self.result_omitted)
        wait = None if self.retry_after is None else timedelta(seconds=self.retry_after)
        return Failure(ErrorInfo(self.code, self.message, self.detail), self.retryable, wait)

    @classmethod
    def of(cls, outcome: Success | Failure | Snoozed) -> "Answer":
        match outcome:
            case Success():
                raw = msgspec.Raw(outcome.result or b"null")
                return cls(result=raw, result_omitted=outcome.result_omitted)
            case Snoozed():
                return cls(snooze=outcome.delay.total_seconds())
            case Failure():
                after = outcome.retry_after
                return cls(
                    code=outcome.error.code,
                    message=outcome.error.message,
                    detail=outcome.error.detail,
                    retryable=outcome.retryable,
                    retry_after=None if after is None else after.total_seconds(),
                )


def framed(message: bytes) -> bytes:
    return _LENGTH.pack(len(message)) + message


class Child:
    """One child process, running at most one job."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._is_killed = False

    @classmethod
    async def start(cls) -> "Child":
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "gantline.worker.process_child",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,  # to be killed with all that the handler has started
            )
        )

    async def run(self, handler: Handler, run: Run, carrier: Mapping[str, str]) -> Outcome:
        """Have the child run the handler; a child that dies is a failed attempt."""
        request = Request(
            handler.function.__module__,
            handler.function.__qualname__,
            handler.takes_payload,
            run.job.payload,
            logging.getLogger().getEffectiveLevel(),
            dict(carrier),
        )
        try:
            return (await self._answer(msgspec.json.encode(request), run)).outcome()
        except (OSError, asyncio.IncompleteReadError):
            code = await self._process.wait()
            error = ErrorInfo(
                PROCESS_DIED, "The job's process ended unexpectedly.", f"exit code {code}"
            )
            return Failure(error)

    async def _answer(self, message: bytes, run: Run) -> Answer:
        """Its answer, or an error once it has ended: what it forked may keep the pipe open."""
        asking = asyncio.create_task(self._ask(message, run))
        ended = asyncio.create_task(self._process.wait())
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
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise OSError("the child has no pipes")
        stdin.write(framed(message))
        await stdin.drain()
        while True:
            (length,) = _LENGTH.unpack(await stdout.readexactly(_LENGTH.size))
            said = msgspec.json.decode(await stdout.readexactly(length), type=Answer | LogLine)
            if isinstance(said, Answer):
                return said
            _log(said, run, self._process.pid)

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None and not self._is_killed

    def kill(self) -> None:
        self._is_killed = True  # the exit code comes later
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def ended(self) -> int:
        """Wait for its exit code."""
        return await self._process.wait()

    async def close(self) -> None:
        """Let it go: it ends when its input does; killed if it does not."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(1):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()


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

    async def take(self) -> Child:
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                return child
        return await Child.start()

    def give_back(self, child: Child) -> None:
        if child.is_alive:
            self._idle.append(child)

    async def close(self) -> None:
        idle, self._idle = self._idle, []
        await asyncio.gather(*(child.close() for child in idle))

"""A run in this process: its handler, its context, and why it was stopped, if it was."""

import asyncio
from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

import msgspec

from gantline.contract.classify import classify
from gantline.contract.errors import Code
from gantline.contract.outcome import ErrorInfo, Failure, Outcome, Released, Stopped
from gantline.contract.snapshot import Run
from gantline.worker.context import Context
from gantline.worker.handler import Handler, RunIn
from gantline.worker.processes import Child


class Cause(StrEnum):
    """Why a run was stopped; recorded before it is, and decides its outcome."""

    CANCEL = "cancel"
    TIMEOUT = "timeout"
    SHUTDOWN = "shutdown"
    CUT_OFF = "cut off"
    """The lease may have run out, and the store does not say."""
    LOST = "lost"


class RunSpan(Protocol):
    """What was begun for one run."""

    @property
    def carrier(self) -> Mapping[str, str]:
        """Its trace context, for a handler in another process."""
        ...

    def end(self, outcome: Outcome | None) -> None:
        """In the task that began it; None where the run was lost."""
        ...


class RunTracer(Protocol):
    """Begins spans. What the handler does belongs to them until they end."""

    def begin(self, context: Context) -> RunSpan | None:
        """None where nobody traces."""
        ...


class ActiveRun:
    """Mutable state of one run, owned by the event loop."""

    __slots__ = (
        "cause",
        "child",
        "context",
        "handler",
        "has_begun",
        "is_over",
        "ref",
        "run",
        "seconds",
        "span",
        "task",
    )

    def __init__(self, run: Run, handler: Handler, context: Context) -> None:
        self.run = run
        self.ref = run.ref
        self.handler = handler
        self.context = context
        self.cause: Cause | None = None
        self.task: asyncio.Task[None] | None = None
        self.child: Child | None = None
        self.has_begun = False
        """Its task has had its first turn; one that is cancelled before that has no end."""
        self.is_over = False
        """The handler has returned; there is nothing left to stop."""
        self.seconds: float | None = None
        """How long the handler took, once it is over."""
        self.span: RunSpan | None = None

    @property
    def carrier(self) -> Mapping[str, str]:
        """The trace context that the handler works in."""
        return self.context.trace_context if self.span is None else self.span.carrier

    def stop(self, cause: Cause, *, at_once: bool = False) -> None:
        """Stop the handler: cancelled on the loop, asked in a thread or a process, which is killed
        if it goes on; `at_once` where that is asked for, or another worker may begin the job again.

        The first cause stays, except CUT_OFF, which may be temporary; and a lost lease overrides
        all: then nothing may be written.
        """
        if self.is_over or self.cause is Cause.LOST:
            return
        if self.cause in (None, Cause.CUT_OFF) or cause is Cause.LOST:
            self.cause = cause
        self.context.ask_to_stop()
        if self.child is not None:
            if at_once or cause in (Cause.LOST, Cause.CUT_OFF):
                self.child.kill()
            else:
                self.child.stop()
        elif self.handler.run_in is RunIn.LOOP and self.task is not None and self.has_begun:
            self.task.cancel()

    def outcome_of(self, error: BaseException) -> Outcome | None:
        """What follows from an error, given why the run was stopped; None: write nothing."""
        match self.cause:
            case Cause.LOST | Cause.CUT_OFF:
                return None
            case Cause.SHUTDOWN:
                return Released()
            case Cause.TIMEOUT:
                seconds = self.handler.timeout.total_seconds()
                return Failure(ErrorInfo(Code.TIMEOUT, f"The job took longer than {seconds:g} s."))
            case Cause.CANCEL if isinstance(error, asyncio.CancelledError):
                return Stopped()
            case _:
                return classify(error, self.handler.policy.classify)

    @property
    def was_cancelled_by_nobody(self) -> bool:
        """Its task was cancelled, and not by this worker."""
        return self.cause is None and self.task is not None and self.task.cancelling() > 0

    @property
    def run_as_known(self) -> Run:
        """The run with what was learned about it since the claim."""
        if self.cause is Cause.CANCEL:
            return msgspec.structs.replace(self.run, cancel_requested=True)
        return self.run

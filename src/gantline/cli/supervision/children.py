"""Child processes: started with a pipe that ends when their parent does, and ended by signals.

The parent alone has the writing end of the pipe, so the kernel closes it whatever the parent dies
of.
"""

import logging
import math
import os
import signal
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from subprocess import Popen
from types import FrameType
from typing import Any, Final

from gantline.runtime import monotonic, start_thread

PARENT_PIPE: Final = "--parent-pipe"
GRACE: Final = timedelta(seconds=5)
"""How long after its drain time a child may take to write the outcomes of its jobs."""
_CHECK_SECONDS: Final = 0.2
_KILLED_BY: Final = 128  # plus the signal's number: how a shell gives the end of a killed program

_log = logging.getLogger("gantline.supervisor")
_worker_log = logging.getLogger("gantline.worker")


class StopSignals:
    """Count them, and leave the acting to the main loop.

    A signal can come at any moment, also when a child runs that nobody has noted down yet.
    """

    def __init__(self) -> None:
        self.count = 0

    def listen(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._count_one)

    def _count_one(self, number: int, frame: FrameType | None) -> None:
        self.count += 1


class Escalation:
    """What to send to a process that has to end: drain, then stop now, then SIGKILL.

    A step is due when it is asked for, or when the step before it has not helped in time. The first
    is SIGTERM, which is quiet in a child that has just begun; the second is SIGINT, since two of a
    kind may arrive as one.
    """

    def __init__(
        self,
        drain: timedelta,
        *,
        grace: timedelta = GRACE,
        monotonic: Callable[[], float] = monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._steps = iter(
            (
                (signal.SIGTERM, (drain + grace).total_seconds()),
                (signal.SIGINT, grace.total_seconds()),
                (signal.SIGKILL, math.inf),
            )
        )
        self._asked = 0
        self._next_at = math.inf

    def next_signal(self, *, asked: int) -> signal.Signals | None:
        """What to send now, if anything; `asked`: how often a stop was asked for until now."""
        now = self._monotonic()
        if asked == self._asked and now < self._next_at:
            return None
        if asked > self._asked:
            self._asked += 1
        step = next(self._steps, None)
        if step is None:
            return None
        number, seconds = step
        self._next_at = now + seconds
        return number


def send(child: Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to a child that has not ended, and wake it if it is stopped (SIGSTOP)."""
    if child.poll() is not None:
        return
    if number is not signal.SIGTERM:
        _log.warning("process %d has not ended yet: sending %s", child.pid, number.name)
    child.send_signal(number)
    child.send_signal(signal.SIGCONT)


def exit_code_of(child: Popen[bytes]) -> int:
    """How a child ended that was asked to; 0 when SIGTERM ended it before it could listen."""
    code: int = child.returncode
    if code == -signal.SIGTERM:
        return 0
    return code if code >= 0 else _KILLED_BY - code


class ParentPipe:
    """The parent's side. Nothing is ever written."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()

    def start(self, command: Sequence[str], **options: Any) -> Popen[bytes]:
        """Start a child that has the reading end, and is given its number as an option."""
        return Popen(  # noqa: S603  # our own command line
            [*command, PARENT_PIPE, str(self._reading)], pass_fds=(self._reading,), **options
        )

    def close(self) -> None:
        os.close(self._reading)
        os.close(self._writing)


def stop_with_parent(pipe: int, drain: Callable[[], timedelta]) -> None:
    """In a child: once the parent is gone, stop as if it had asked, and end in any case.

    It is a thread that sends signals to its own process. So it works at any moment: also before
    there is an event loop, and when that loop is blocked.
    """
    os.set_inheritable(pipe, False)  # programs that handlers start have no use for it
    start_thread(lambda: _stop_when_it_ends(pipe, drain), "gantline-parent-pipe")


def _stop_when_it_ends(pipe: int, drain: Callable[[], timedelta]) -> None:
    while os.read(pipe, 1):
        pass
    _worker_log.warning("the process that started this one is gone: stopping")
    escalation = Escalation(drain())
    while True:
        if number := escalation.next_signal(asked=1):
            os.kill(os.getpid(), number)
        time.sleep(_CHECK_SECONDS)  # noqa: TID251  # a thread of its own

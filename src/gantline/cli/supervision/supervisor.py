"""The supervisor: keeps a number of worker processes running, and passes signals on."""

import logging
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import timedelta
from subprocess import Popen
from typing import Final

from gantline.cli.supervision.children import (
    GRACE,
    Escalation,
    ParentPipe,
    StopSignals,
    exit_code_of,
    send,
)
from gantline.runtime import monotonic

_log = logging.getLogger("gantline.supervisor")

_CHECK_SECONDS: Final = 0.2
_SHORTEST_LIFE_SECONDS: Final = 5.0
_LONGEST_WAIT_SECONDS: Final = 30.0


class Supervisor:
    """Start children; start one again that dies, later and later if it dies at once.

    Children that do not end within their drain time are killed; children whose supervisor is killed
    stop by themselves.
    """

    def __init__(
        self,
        count: int,
        command: Sequence[str],
        *,
        drain: timedelta,
        grace: timedelta = GRACE,
        options_of: Callable[[int], Sequence[str]] = lambda index: (),
    ) -> None:
        """`options_of`: what each child, by its index from 0 on, is given beside the others."""
        self._commands = [[*command, *options_of(index)] for index in range(count)]
        self._children = [_Child() for _ in range(count)]
        self._stop = StopSignals()
        self._escalation = Escalation(drain, grace=grace)
        self._tended_at = monotonic()

    @property
    def idle_seconds(self) -> float:
        """How long ago it last looked after its children. Callable from any thread."""
        return monotonic() - self._tended_at

    def run(self) -> int:
        """Supervise until stopped by a signal; return 0 when all children have ended well."""
        self._stop.listen()
        with closing(ParentPipe()) as pipe:
            while not (self._stop.count and all(child.is_empty for child in self._children)):
                self._tend(pipe)
                time.sleep(_CHECK_SECONDS)  # noqa: TID251  # this process does nothing else
        # What was killed and could not be started again before the stop is no fault of the stop.
        return max((child.exit_code for child in self._children), default=0)

    def _tend(self, pipe: ParentPipe) -> None:
        number = self._escalation.next_signal(asked=self._stop.count)
        for child, command in zip(self._children, self._commands, strict=True):
            if number is not None:
                child.send(number)
            child.tend(pipe, command, start=not self._stop.count)
        self._tended_at = monotonic()


class _Child:
    """Where one child runs, one after the other."""

    def __init__(self) -> None:
        self._child: Popen[bytes] | None = None
        self._started_at = 0.0
        self._start_after = 0.0
        self._wait = 1.0
        self.exit_code = 0

    @property
    def is_empty(self) -> bool:
        return self._child is None

    def send(self, number: signal.Signals) -> None:
        if self._child is not None:
            send(self._child, number)

    def tend(self, pipe: ParentPipe, command: list[str], *, start: bool) -> None:
        now = monotonic()
        if self._child is not None and self._child.poll() is not None:
            self.exit_code = 0 if start else exit_code_of(self._child)
            self._bury(self._child, now)
        if self._child is None and start and now >= self._start_after:
            self._start(pipe, command, now)

    def _start(self, pipe: ParentPipe, command: list[str], now: float) -> None:
        self._started_at = now
        try:
            # A group of its own: Ctrl-C is for us to pass on, or each child would hear it twice.
            self._child = pipe.start(command, process_group=0)
        except OSError as error:
            _log.warning("could not start a worker: %s", error)
            self._put_off(now)

    def _bury(self, child: Popen[bytes], now: float) -> None:
        self._child = None
        if child.returncode == 0:  # to be started again is what it ended for
            self._wait = 1.0
            return
        _log.warning("worker %d ended with %d", child.pid, child.returncode)
        if now - self._started_at > _SHORTEST_LIFE_SECONDS:
            self._wait = 1.0
        else:
            self._put_off(now)

    def _put_off(self, now: float) -> None:
        self._wait = min(2 * self._wait, _LONGEST_WAIT_SECONDS)
        self._start_after = now + self._wait

"""The supervisor: keeps a number of worker processes running, and passes signals on."""

import logging
import signal
import subprocess
import time
from collections.abc import Sequence
from types import FrameType
from typing import Final

_log = logging.getLogger("windlass.supervisor")

_CHECK_SECONDS: Final = 0.2
_SHORTEST_LIFE_SECONDS: Final = 5.0
_LONGEST_WAIT_SECONDS: Final = 30.0


class Supervisor:
    """Start children; start one anew that dies, later and later if it dies at once."""

    def __init__(self, count: int, command: Sequence[str]) -> None:
        self._command = list(command)
        self._places = [_Place() for _ in range(count)]
        self._is_stopping = False

    def run(self) -> int:
        """Supervise until stopped by a signal; return 0 when all children have ended well."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._pass_on)
        while not (self._is_stopping and all(place.is_empty for place in self._places)):
            for place in self._places:
                place.tend(self._command, start=not self._is_stopping)
            time.sleep(_CHECK_SECONDS)  # noqa: TID251  # this process does nothing else
        # What was killed and could not be started again before the stop is no fault of the stop.
        return max((place.exit_code for place in self._places), default=0)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self._is_stopping = True
        for place in self._places:
            place.send(number)


class _Place:
    """Where one child runs, one after the other."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._start_after = 0.0
        self._wait = 1.0
        self.exit_code = 0

    @property
    def is_empty(self) -> bool:
        return self._child is None

    def send(self, number: int) -> None:
        if self._child is not None:
            self._child.send_signal(number)

    def tend(self, command: list[str], *, start: bool) -> None:
        now = time.monotonic()
        if self._child is not None and self._child.poll() is not None:
            self._bury(now)
            if start:
                self.exit_code = 0  # it will be started again
        if self._child is None and start and now >= self._start_after:
            # A group of its own: Ctrl-C is for us to pass on, or each child would hear it twice.
            self._child = subprocess.Popen(command, process_group=0)  # noqa: S603  # our own
            self._started_at = now

    def _bury(self, now: float) -> None:
        if self._child is None:
            return
        self.exit_code = self._child.returncode
        if self.exit_code != 0:
            _log.warning("worker %d ended with %d", self._child.pid, self.exit_code)
        lived_long = now - self._started_at > _SHORTEST_LIFE_SECONDS
        self._wait = 1.0 if lived_long else min(2 * self._wait, _LONGEST_WAIT_SECONDS)
        self._start_after = now if lived_long else now + self._wait
        self._child = None

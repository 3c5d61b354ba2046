"""The supervisor: keeps a number of worker processes running, and passes signals on."""

import logging
import signal
import time
from collections.abc import Callable, Sequence
from subprocess import Popen
from typing import Final

from windlass.worker.stop_signals import StopSignals

_log = logging.getLogger("windlass.supervisor")

_CHECK_SECONDS: Final = 0.2
_SHORTEST_LIFE_SECONDS: Final = 5.0
_LONGEST_WAIT_SECONDS: Final = 30.0


class Supervisor:
    """Start children; start one anew that dies, later and later if it dies at once."""

    def __init__(
        self,
        count: int,
        command: Sequence[str],
        *,
        options_of: Callable[[int], Sequence[str]] = lambda place: (),
    ) -> None:
        """`options_of`: what the child of a place, from 0 on, is told beside the others."""
        self._commands = [[*command, *options_of(place)] for place in range(count)]
        self._places = [_Place() for _ in range(count)]
        self._stop = StopSignals()
        self._tended_at = time.monotonic()

    @property
    def idle_seconds(self) -> float:
        """How long ago it last looked after its children. Callable from any thread."""
        return time.monotonic() - self._tended_at

    def run(self) -> int:
        """Supervise until stopped by a signal; return 0 when all children have ended well."""
        self._stop.listen()
        while not (self._stop.has_come() and all(place.is_empty for place in self._places)):
            self._tend()
            time.sleep(_CHECK_SECONDS)  # noqa: TID251  # this process does nothing else
        # What was killed and could not be started again before the stop is no fault of the stop.
        return max((place.exit_code for place in self._places), default=0)

    def _tend(self) -> None:
        number = self._stop.next_to_pass_on()
        for place, command in zip(self._places, self._commands, strict=True):
            if number is not None:
                place.send(number)
            place.tend(command, start=not self._stop.has_come())
        self._tended_at = time.monotonic()


class _Place:
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
            self._child.send_signal(number)

    def tend(self, command: list[str], *, start: bool) -> None:
        now = time.monotonic()
        if self._child is not None and self._child.poll() is not None:
            self._bury(self._child, now)
            if start:
                self.exit_code = 0  # it will be started again
            elif self.exit_code == -signal.SIGTERM:
                self.exit_code = 0  # stopped before it could listen to us
        if self._child is None and start and now >= self._start_after:
            self._start(command, now)

    def _start(self, command: list[str], now: float) -> None:
        self._started_at = now
        try:
            # A group of its own: Ctrl-C is for us to pass on, or each child would hear it twice.
            self._child = Popen(command, process_group=0)  # noqa: S603  # our own
        except OSError as error:
            _log.warning("could not start a worker: %s", error)
            self._put_off(now)

    def _bury(self, child: Popen[bytes], now: float) -> None:
        self._child = None
        self.exit_code = child.returncode
        if self.exit_code == 0:  # to be started anew is what it ended for
            self._wait = 1.0
            return
        _log.warning("worker %d ended with %d", child.pid, self.exit_code)
        if now - self._started_at > _SHORTEST_LIFE_SECONDS:
            self._wait = 1.0
        else:
            self._put_off(now)

    def _put_off(self, now: float) -> None:
        self._wait = min(2 * self._wait, _LONGEST_WAIT_SECONDS)
        self._start_after = now + self._wait

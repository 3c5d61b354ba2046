"""The progress log: which of the progress that a run reports becomes an event."""

from collections.abc import Callable
from time import monotonic
from typing import Final

EVENTS_A_RUN: Final = 100
_PAUSE_SECONDS: Final = 1.0


class ProgressLog:
    """Once a second and at each new phase, but only so often a run; the status shows all of it."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._left = EVENTS_A_RUN
        self._clock = clock
        self._phase: str | None = None
        self._next_at = 0.0

    def admits(self, phase: str) -> bool:
        """Whether progress that is reported now is to be logged."""
        if not self._left or (phase == self._phase and self._clock() < self._next_at):
            return False
        self._left -= 1
        self._phase, self._next_at = phase, self._clock() + _PAUSE_SECONDS
        return True

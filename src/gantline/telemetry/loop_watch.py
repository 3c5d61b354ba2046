"""The loop watch: sees from another thread whether an event loop still turns."""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Final

_EVERY_SECONDS: Final = 0.5


class LoopWatch:
    """Asks a loop to show itself, again and again; one question at a time."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, clock: Callable[[], float] = monotonic
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._asked_at = self._answered_at = clock()

    @property
    def silent_seconds(self) -> float:
        """How long the loop has owed an answer; 0 while it owes none."""
        asked, answered = self._asked_at, self._answered_at
        return max(0.0, self._clock() - asked) if answered < asked else 0.0

    @property
    def lag_seconds(self) -> float:
        """How long the last answer took, or the one that is owed has taken so far."""
        return self.silent_seconds or max(0.0, self._answered_at - self._asked_at)

    def ask(self) -> None:
        if self._answered_at < self._asked_at:
            return
        self._asked_at = self._clock()
        self._answered_at = -1.0
        try:
            self._loop.call_soon_threadsafe(self._answer)
        except RuntimeError:
            return  # it is closed: it will never answer

    def _answer(self) -> None:
        self._answered_at = self._clock()

    async def watch_for_ever(self) -> None:
        """Run in a loop of another thread."""
        while True:
            self.ask()
            await asyncio.sleep(_EVERY_SECONDS)

"""The loop watch: sees from another thread whether an event loop is blocked, and by what."""

import asyncio
import logging
import sys
import threading
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from inspect import unwrap
from itertools import takewhile
from typing import Final

from gantline.runtime import is_of_the_user, module_of, monotonic, start_thread
from gantline.worker.handler import HandlerRegistry

_log = logging.getLogger("gantline.worker")

_LOOK_EVERY_SECONDS: Final = 0.5

# What runs a loop; the frames under it are those of the program that has started it.
_LOOPS: Final = (
    *("asyncio.events", "asyncio.base_events", "asyncio.runners", "uvloop"),
    "gantline.cli.process",
)


class LoopWatch:
    """Asks the loop for a sign of life, one at a time. To be made on the loop's own thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        registry: HandlerRegistry | None = None,
        *,
        blocked_after: timedelta = timedelta(seconds=1),
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`registry` has the handlers that may block it; a block is reported `blocked_after`."""
        self.loop = loop
        self._thread = threading.get_ident()
        self._registry = registry or HandlerRegistry()
        self.blocked_after = blocked_after
        self._clock = clock
        self._asked_at = self._answered_at = clock()
        self._is_watched = False
        self._blocked_by: str | None = None
        """The type whose handler blocks the loop now; empty where it is other code."""
        self.blocked_seconds: defaultdict[str, float] = defaultdict(float)
        """How long it was blocked, as far as that was reported, by job type."""

    @property
    def silent_seconds(self) -> float:
        """How long a callback has waited for the loop; 0 while none waits."""
        asked, answered = self._asked_at, self._answered_at
        return max(0.0, self._clock() - asked) if answered < asked else 0.0

    @property
    def lag_seconds(self) -> float:
        """How long the last callback waited, or the present one has waited so far."""
        return self.silent_seconds or max(0.0, self._answered_at - self._asked_at)

    def ask(self) -> None:
        if self._answered_at < self._asked_at:
            return
        self._asked_at = self._clock()
        self._answered_at = -1.0
        try:
            self.loop.call_soon_threadsafe(self._answer)
        except RuntimeError:
            return  # it is closed

    def _answer(self) -> None:
        self._answered_at = self._clock()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look at the loop from a thread as long as the block lasts; one thread for all blocks."""
        if self._is_watched:
            yield
            return
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(_LOOK_EVERY_SECONDS):
                self.look()

        self._is_watched = True
        thread = start_thread(watch, "gantline-loop-watch")
        try:
            yield
        finally:
            self._is_watched = False
            ended.set()
            thread.join(_LOOK_EVERY_SECONDS)

    def look(self) -> None:
        """Report a block once, and once more when it is over."""
        silent = self.silent_seconds
        if self._blocked_by is None and silent > self.blocked_after.total_seconds():
            self._report(silent)
            return  # it may turn again by now, and is asked anew when that is reported
        if self._blocked_by is not None and not silent:
            self.blocked_seconds[self._blocked_by] += self.lag_seconds
            self._blocked_by = None
            _log.warning("the event loop goes on after %.1f s", self.lag_seconds)
        self.ask()

    def _report(self, seconds: float) -> None:
        frame = sys._current_frames().get(self._thread)
        stack = [] if frame is None else [one for one, _ in traceback.walk_stack(frame)]
        frames = list(takewhile(lambda one: module_of(one) not in _LOOPS, stack))
        handlers = {_code_of(one.function): one.job_type for one in self._registry.handlers}
        own = next((one for one in frames if one.f_code in handlers), None)
        where = next(filter(is_of_the_user, frames), None) or own
        if where is None:  # it just waits: the process stood still, or the machine is busy
            return
        self._blocked_by = "" if own is None else handlers[own.f_code]
        _log.warning(
            "the event loop has been blocked for %.1f s by %s, at %s:%d; no other job goes on. Use "
            "`def`, which runs in a thread, or await asyncio.to_thread(…).",
            seconds,
            "code" if own is None else f"the handler of {self._blocked_by}",
            *(where.f_code.co_filename, where.f_lineno),
            extra={"job_type": self._blocked_by} if own else None,
        )
        _log.debug("it stands here:\n%s", "".join(traceback.format_stack(frame)))


def _code_of(function: Callable[..., object]) -> object:
    return getattr(unwrap(function), "__code__", None)

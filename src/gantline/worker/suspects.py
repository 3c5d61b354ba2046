"""Suspects: jobs that were in several crashes. Which of them crashes workers is found by halves.

A process runs at most half as many suspects together as it has slots, a quarter of those that were
in one more crash, and so on until each runs alone. The innocent ones complete on the way; ordinary
jobs go on beside all but those that run alone.

The next group begins when the last has ended. Where that takes long, more may begin beside it, as
long as no more run together than the one of them allows that was in the most crashes: a job that
crashed workers and now hangs must not hold up those that ran beside it. Most jobs that were in two
crashes only had bad luck (a server was restarted, or memory was short): beside these a whole group
may begin.
"""

from collections.abc import Iterable
from typing import Final

from gantline.contract.snapshot import (
    MOST_CRASHES_COUNTED,
    SUSPECT_AFTER_CRASHES,
    Run,
    RunRef,
)
from gantline.runtime import monotonic

GROUP_SECONDS: Final = 10.0


def group_sizes(slots: int) -> tuple[int, ...]:
    """How many suspects may run together in a process, of those in 2, 3, 4 … crashes."""
    halved = MOST_CRASHES_COUNTED - SUSPECT_AFTER_CRASHES
    return (*(max(1, slots >> times) for times in range(1, halved + 1)), 1)


class Suspects:
    """Those that run in this process now."""

    def __init__(self, slots: int) -> None:
        self._sizes = group_sizes(slots)
        self._running: dict[RunRef, int] = {}
        self._started_at = 0.0
        self.hold_up_since: float | None = None
        """Since when there are some without a break that others may have to wait for."""

    def __bool__(self) -> bool:
        return bool(self._running)

    def add(self, runs: Iterable[Run]) -> None:
        """Take note of those among these runs."""
        new = {run.ref: run.crashes for run in runs if run.is_suspect}
        if new:
            self._running |= new
            self._started_at = monotonic()
            self._look_for_hold_up()

    def remove(self, refs: Iterable[RunRef]) -> None:
        for ref in refs:
            self._running.pop(ref, None)
        self._look_for_hold_up()

    def _look_for_hold_up(self) -> None:
        if max(self._running.values(), default=0) <= SUSPECT_AFTER_CRASHES:
            self.hold_up_since = None
        elif self.hold_up_since is None:
            self.hold_up_since = monotonic()

    @property
    def next_group(self) -> tuple[int, ...]:
        """How many may start now, of those in 2, 3, 4 … crashes; empty where none may."""
        if not self._running:
            return self._sizes
        if monotonic() - self._started_at <= GROUP_SECONDS:
            return ()
        most = max(self._running.values())
        if most == SUSPECT_AFTER_CRASHES:
            return self._sizes
        together = self._sizes[min(most - SUSPECT_AFTER_CRASHES, len(self._sizes) - 1)]
        free = tuple(max(0, min(size, together) - len(self._running)) for size in self._sizes)
        return free if any(free) else ()


def runs_alone(crashes: int, slots: int) -> bool:
    """Whether nothing at all may run in this process beside a job that was in so many crashes."""
    times = crashes - SUSPECT_AFTER_CRASHES + 1
    return crashes >= MOST_CRASHES_COUNTED or (times > 0 and slots >> times == 0)

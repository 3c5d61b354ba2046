"""The observer: is notified of what happened to jobs, a batch at a time, after it was written."""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gantline.contract.results import InsertResult
from gantline.contract.snapshot import JobSnapshot, Run
from gantline.contract.submission import NewJob

if TYPE_CHECKING:
    from gantline.manager.manager import Ending, Settled

_log = logging.getLogger("gantline.manager")


class Observer:
    """Called for every job, so it must be quick. May be called from several threads.

    This one ignores everything.
    """

    def submitted(self, jobs: Sequence[NewJob], answers: Sequence[InsertResult]) -> None:
        """Jobs were handed to the store, and this is what it said to each."""

    def claimed(self, runs: Sequence[Run]) -> None: ...

    def settled(self, endings: Sequence["Ending"], answers: Sequence["Settled"]) -> None:
        """Runs have ended: their own worker says so, or the reaper."""

    def acted(self, jobs: Sequence[JobSnapshot], answers: Sequence["Settled"]) -> None:
        """Jobs that did not run were changed, or a running one was asked to stop."""

    def fired(self, lateness: Sequence[tuple[str, float]]) -> None:
        """Jobs of these types were submitted by their schedules, so many seconds late."""


class Relay(Observer):
    """Passes everything on to an observer that is set later."""

    def __init__(self) -> None:
        self.observer = Observer()

    def submitted(self, jobs: Sequence[NewJob], answers: Sequence[InsertResult]) -> None:
        self.observer.submitted(jobs, answers)

    def claimed(self, runs: Sequence[Run]) -> None:
        self.observer.claimed(runs)

    def settled(self, endings: Sequence["Ending"], answers: Sequence["Settled"]) -> None:
        self.observer.settled(endings, answers)

    def acted(self, jobs: Sequence[JobSnapshot], answers: Sequence["Settled"]) -> None:
        self.observer.acted(jobs, answers)

    def fired(self, lateness: Sequence[tuple[str, float]]) -> None:
        self.observer.fired(lateness)


def notify(method: Callable[..., None], *what: object) -> None:
    """Call an observer. What it raises must not undo what was written."""
    try:
        method(*what)
    except Exception:
        _log.exception("an observer failed")

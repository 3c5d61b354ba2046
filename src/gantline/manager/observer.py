"""The observer: hears what became of jobs, a batch at a time, after it was written."""

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
    """Called on the way of every job, so it must be quick. May be called from several threads.

    This one does not want to know.
    """

    def submitted(self, jobs: Sequence[NewJob], answers: Sequence[InsertResult]) -> None:
        """Jobs were handed to the store, and this is what it said to each."""

    def claimed(self, runs: Sequence[Run]) -> None: ...

    def settled(self, endings: Sequence["Ending"], answers: Sequence["Settled"]) -> None:
        """Runs have ended: their own worker says so, or whoever found their lease expired."""

    def acted(self, jobs: Sequence[JobSnapshot], answers: Sequence["Settled"]) -> None:
        """Somebody changed jobs that did not run, or asked a running one to stop."""

    def fired(self, lateness: Sequence[tuple[str, float]]) -> None:
        """Jobs of these types were submitted by their schedules, so many seconds late."""


class Relay(Observer):
    """An observer that is named later; until then, nobody."""

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
    """Tell an observer. What it cannot digest must not undo what was written."""
    try:
        method(*what)
    except Exception:
        _log.exception("an observer failed")

"""Retention: how long jobs are kept after they have ended. The defaults of all stores are here."""

from datetime import timedelta
from typing import Final

import msgspec

from gantline.contract.bounds import CheckedStruct
from gantline.contract.status import TERMINAL, JobStatus


class Retention(CheckedStruct, frozen=True, kw_only=True):
    """How long jobs are kept after they have ended; None is as long as the store does by itself.

    Where several applications share a store, the shortest time of all counts.
    """

    completed: timedelta | None = None
    """Of jobs that were done, with their results."""
    failed: timedelta | None = None
    """Of jobs that could not be done."""
    poisoned: timedelta | None = None
    """Of jobs that used up their attempts, crashes or snoozes, or that nobody could run."""
    cancelled: timedelta | None = None
    """Of jobs that were cancelled."""

    def of(self, status: JobStatus) -> timedelta | None:
        span: timedelta | None = getattr(self, status.lower())
        return span

    def over(self, other: "Retention") -> "Retention":
        """What it says, and for what it leaves open what the other says."""
        said = {one.lower(): self.of(one) for one in TERMINAL if self.of(one) is not None}
        return msgspec.structs.replace(other, **said)

    @classmethod
    def split(cls, completed: timedelta, dead: timedelta) -> "Retention":
        """One time for what completed, and another for all else."""
        return cls(completed=completed, failed=dead, poisoned=dead, cancelled=dead)


ON_DISK: Final = Retention.split(timedelta(days=7), timedelta(days=90))
IN_MEMORY: Final = Retention.split(timedelta(hours=1), timedelta(days=7))
"""Of Redis, where whatever is kept takes memory."""

"""How a worker works."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from gantline.contract.bounds import SHORTEST, CheckedStruct, Count, Name, Positive, check_span

DEFAULT_SLOTS: Final = 10
"""Of a queue for which nobody says how many it has."""


class WorkerSettings(CheckedStruct, frozen=True, kw_only=True):
    """Every setting with its default and unit."""

    queues: Mapping[Name, Count] = {}
    """Which queues are served, with how many runs at once each. Without any: every queue that a
    declared job is in, with 10."""
    slots: Count | None = None
    """How many runs at once in all queues together; None: as many as the queues have."""
    claim_batch: Count | None = None
    """How many jobs of a queue one claim takes at most; None: half of the slots of the queue."""
    lease: timedelta = timedelta(seconds=30)
    """After how long without renewal others may take a run over."""
    renew_every: timedelta | None = None
    """How often leases are renewed, at most half a lease; None: four times within each, and every
    5 s at least. A cancellation is noticed by it too where no hints come."""
    poll: timedelta = timedelta(seconds=1)
    """The longest wait between two looks for work while idle; twice that while hints come in."""
    drain: timedelta = timedelta(seconds=30)
    """How long running jobs may go on after a stop was asked for."""
    deadline_grace: timedelta = timedelta(seconds=30)
    """How long past its timeout a run's lease is still renewed."""
    maintain_every: timedelta | None = timedelta(seconds=5)
    """How often this worker tries to lead the maintenance; None for never. Oftener with a lease
    under four times as long, and seldomer while there is nothing to do."""
    blocked_after: timedelta = timedelta(seconds=1)
    """After how long a handler that blocks the event loop is named in the log."""
    recycle_after_jobs: Positive | None = None
    """Stop after so many runs, for a supervisor to start the process anew."""
    recycle_above_bytes: Positive | None = None
    """Stop when the process has grown beyond this much memory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # A lease under a second would be lost to any hiccup.
        check_span("lease", self.lease, least=timedelta(seconds=1))
        half = self.lease / 2
        check_span("renew_every", self.renew_every, least=SHORTEST, most=half)
        check_span("poll", self.poll, least=SHORTEST)
        check_span("blocked_after", self.blocked_after, least=SHORTEST)
        check_span("maintain_every", self.maintain_every, least=SHORTEST)

"""How a worker works."""

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from gantline.contract.errors import InvalidInput


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting with its default and unit."""

    queues: Mapping[str, int] = msgspec.field(default_factory=lambda: {"default": 10})
    """Which queues are served, with how many runs at once each."""
    lease: timedelta = timedelta(seconds=30)
    """After how long without renewal others may take a run over."""
    poll: timedelta = timedelta(seconds=1)
    """The longest wait between two looks for work while idle; twice that while hints come in."""
    drain: timedelta = timedelta(seconds=30)
    """How long running jobs may go on after a stop was asked for."""
    deadline_grace: timedelta = timedelta(seconds=30)
    """How long past its timeout a run's lease is still renewed."""
    maintain_every: timedelta | None = timedelta(seconds=5)
    """How often this worker tries to lead the maintenance; None for never. Oftener with a lease
    under four times as long, and seldomer while there is nothing to do."""
    recycle_after_jobs: int | None = None
    """Stop after so many runs, for a supervisor to start the process anew."""
    recycle_above_bytes: int | None = None
    """Stop when the process has grown beyond this much memory."""

    def __post_init__(self) -> None:
        if self.lease < timedelta(seconds=1):
            raise InvalidInput("A lease under one second would be lost to any hiccup.")

"""How stores differ, as data: the docs, the suite's skips and start-up checks are made from it.

And what an application asks of its store.
"""

from datetime import timedelta
from pathlib import Path
from typing import Final, Literal

import msgspec

from gantline.contract.bounds import CheckedStruct
from gantline.contract.retention import ON_DISK, Retention

Durability = Literal["none", "process", "power_loss", "replicated"]
NO_HANDLER_GRACE: Final = timedelta(minutes=15)
DURABILITY_ORDER: tuple[Durability, ...] = ("none", "process", "power_loss", "replicated")


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a store promises. Probed when it is opened, where it depends on the server."""

    durability: Durability
    """What an answered write survives: nothing, the process, a power cut, the loss of a server."""
    ack_lost_on: str
    """In words: what can still lose an answered write."""
    caller_transaction: bool
    """Whether a job can be submitted inside the caller's own transaction."""
    clock: Literal["server", "host"]
    writers: Literal["process", "host", "many"]
    """Who may use one store at once: one process, the processes of one host, many hosts."""
    event_lag: timedelta
    """How long after its commit an event may become visible to consumers."""
    count_staleness: timedelta
    max_payload_bytes: int
    retention: Retention = ON_DISK
    """How long ended jobs are kept where the application does not say it."""
    turns: bool = False
    """Whether groups take turns in its claims."""
    limits: bool = False
    """Whether its claims hold to limits and gates."""
    patience: timedelta = timedelta(0)
    """How long a verb keeps trying before it raises StoreUnavailable."""
    local_file: Path | None = None
    """The file that all processes share, beside which they can wake each other."""

    def survives(self, required: Durability) -> bool:
        return DURABILITY_ORDER.index(self.durability) >= DURABILITY_ORDER.index(required)


class StorageSettings(CheckedStruct, frozen=True, kw_only=True):
    """What the store must promise, and how long it keeps things."""

    durability: Durability = "none"
    """What an accepted job must survive: `process`, `power_loss` or `replicated`. On a store that
    promises less the application does not start."""
    retention: Retention = Retention()
    """How long ended jobs are kept, by status; what is left open is as the store does. A timedelta
    alone is for every status."""
    no_handler_grace: timedelta = NO_HANDLER_GRACE
    """After how long without a live worker that knows their type jobs are given up."""

    def __post_init__(self) -> None:
        if isinstance(self.retention, timedelta):
            span = self.retention
            msgspec.structs.force_setattr(self, "retention", Retention.split(span, span))
        super().__post_init__()

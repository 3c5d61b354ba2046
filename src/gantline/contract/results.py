"""What a store answers, item by item: closed unions, so that every caller handles every case."""

from datetime import datetime
from uuid import UUID

import msgspec

from gantline.contract.submission import KeyKind


class Applied(msgspec.Struct, frozen=True):
    """Written, now or by an earlier call whose answer was lost. `version` is the job's new one."""

    version: int = 0


class Stale(msgspec.Struct, frozen=True):
    """Not written: the guard no longer holds. For a run, it means somebody else has the job."""


class CancelPending(msgspec.Struct, frozen=True):
    """Not written: the run is still ours, but a cancel was requested. Decide again, knowing it."""


class NotFound(msgspec.Struct, frozen=True):
    """There is no such job."""


class Duplicate(msgspec.Struct, frozen=True):
    """Not written: this very job is stored already, under `existing`."""

    existing: UUID
    by: KeyKind | None = None
    """Which key showed it; None for the job's own id: the same insert came twice."""


class Conflict(msgspec.Struct, frozen=True):
    """Not written: an id, a key or a record is taken by something else."""

    by: KeyKind | str | None = None
    """Which kind of key; the record's name; None for the job id itself."""


InsertResult = Applied | Duplicate | Conflict
ApplyResult = Applied | Stale | CancelPending | NotFound | Conflict
ProgressResult = Applied | Stale | NotFound
DeleteResult = Applied | Stale | NotFound


class Renewal(msgspec.Struct, frozen=True):
    """Of the runs named in a renewal: which are no longer ours, and which should stop."""

    lost: frozenset[UUID] = frozenset()
    cancel_requested: frozenset[UUID] = frozenset()


class Leadership(msgspec.Struct, frozen=True):
    """A held leader lease. The term grows with every change of leader."""

    term: int
    until: datetime

"""What can be asked of a store: the filter, the keyset cursor, the page, the counts."""

from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec

from windlass.contract.job import DEFAULT_TENANT
from windlass.contract.snapshot import JobSnapshot
from windlass.contract.status import JobStatus
from windlass.contract.text import is_storable

_MOST_ROWS: Final = 2**31 - 1
_LARGEST: Final = 2**63 - 1


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs are meant; every given field must match. `tenant_id` None is for the system."""

    tenant_id: str | None = DEFAULT_TENANT
    statuses: frozenset[JobStatus] = frozenset()
    job_types: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()
    reasons: frozenset[str] = frozenset()
    """Of the last log row; for dead letters."""
    subject_id: str | None = None
    created_by: str | None = None
    correlation_id: str | None = None
    parent_job_id: UUID | None = None
    created_from: datetime | None = None
    created_before: datetime | None = None


def narrowed(wanted: JobFilter) -> JobFilter | None:
    """Leave out the texts that no job can have; None where nothing can match any more."""
    texts = (wanted.tenant_id, wanted.subject_id, wanted.created_by, wanted.correlation_id)
    if not all(text is None or is_storable(text) for text in texts):
        return None
    choices = {"job_types": wanted.job_types, "queues": wanted.queues, "reasons": wanted.reasons}
    possible = {name: frozenset(filter(is_storable, some)) for name, some in choices.items()}
    if any(some and not possible[name] for name, some in choices.items()):
        return None
    return wanted if possible == choices else msgspec.structs.replace(wanted, **possible)


def at_most(limit: int) -> int:
    """How many rows a limit means: none below zero, and never more than could be read."""
    return max(0, min(limit, _MOST_ROWS))


def in_64_bits(number: int) -> int:
    """The nearest number that every store can compare with; none of its own is as large."""
    return max(-_LARGEST, min(number, _LARGEST))


class Cursor(msgspec.Struct, frozen=True):
    """The last job of a page; the next page starts behind it. Ties are broken by the id."""

    created_at: datetime
    job_id: UUID


class Page(msgspec.Struct, frozen=True):
    """Jobs, newest first, and where to go on, if there is more."""

    items: tuple[JobSnapshot, ...]
    next: Cursor | None


class LaneCounts(msgspec.Struct, kw_only=True):
    """How many jobs of one queue and type are where. `scheduled` are those of `queued` not yet due.

    `oldest_due_at` is since when the longest-waiting due job could have run.
    """

    queue: str
    job_type: str
    queued: int = 0
    scheduled: int = 0
    running: int = 0
    completed: int = 0
    failed: int = 0
    poisoned: int = 0
    cancelled: int = 0
    oldest_due_at: datetime | None = None


class LaneRequest(msgspec.Struct, frozen=True):
    """What a claim wants of one queue: up to `limit` jobs of these types."""

    queue: str
    job_types: tuple[str, ...]
    limit: int


class PruneRule(msgspec.Struct, frozen=True):
    """Remove jobs that ended in `status` before this instant."""

    status: JobStatus
    ended_before: datetime


class Pruned(msgspec.Struct, frozen=True):
    """What a bounded prune removed. Less than its limit means nothing is left to remove."""

    jobs: int = 0
    keys: int = 0
    records: int = 0

"""What can be asked of a store: the filter, the keyset cursor, the page, the counts."""

from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import msgspec

from gantline.contract.flow import TypeFlow
from gantline.contract.job import DEFAULT_TENANT, Job
from gantline.contract.snapshot import SUSPECT_AFTER_CRASHES, JobSnapshot
from gantline.contract.status import DerivedState, JobStatus, State, status_of
from gantline.contract.text import is_storable

_MOST_ROWS: Final = 2**31 - 1
_LARGEST: Final = 2**63 - 1


class Visibility(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs a caller may see; a filter finds only these, whatever else it asks for.

    Tenant, type and ownership must all hold. `owner` None means the jobs of every owner; a name
    means those that it submitted and those of `subjects`. An empty `owner` or subject matches no
    job, not even one without an owner or a subject.
    """

    tenant_id: str | None = DEFAULT_TENANT
    """None: of every tenant."""
    job_types: frozenset[str] | None = None
    """None: of every type; none at all hides everything."""
    owner: str | None = None
    subjects: frozenset[str] = frozenset()
    subject_required: bool = False
    """Of the jobs of an owner only those that have a subject."""

    def admits(self, job: Job) -> bool:
        return (
            self.tenant_id in (None, job.tenant_id)
            and (self.job_types is None or job.job_type in self.job_types)
            and self._is_theirs(job)
        )

    @property
    def is_blind(self) -> bool:
        """No job can be seen."""
        nobody = self.owner == "" and not self.granted
        return nobody or (self.job_types is not None and not self.job_types)

    @property
    def granted(self) -> frozenset[str]:
        """The subjects that count: an empty one matches no job."""
        return self.subjects - {""}

    def possible(self) -> "Visibility":
        """The same by the owner and the subjects that a job can have."""
        subjects = frozenset(filter(is_storable, self.subjects))
        owner = self.owner if is_storable(self.owner or "") else ""
        if (owner, subjects) == (self.owner, self.subjects):
            return self
        return msgspec.structs.replace(self, owner=owner, subjects=subjects)

    def _is_theirs(self, job: Job) -> bool:
        if self.owner is None or (job.created_by and job.created_by == self.owner):
            return bool(job.subject_id) or not self.subject_required
        return bool(job.subject_id) and job.subject_id in self.subjects


NOTHING_VISIBLE: Final = Visibility(job_types=frozenset())


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs are meant; every given field must match. `tenant_id` None is for the system."""

    tenant_id: str | None = DEFAULT_TENANT
    statuses: frozenset[State] = frozenset()
    """One of them must hold; a derived state does by the store's clock, as each page is read."""
    job_types: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()
    reasons: frozenset[str] = frozenset()
    """Of the last log row; for dead letters."""
    error_codes: frozenset[str] = frozenset()
    """Of the last log row."""
    min_attempts: int = 0
    """Jobs of which so many attempts have begun."""
    internal: bool = True
    """Whether Gantline's own jobs, deliveries of webhooks, are among them."""
    subject_id: str | None = None
    created_by: str | None = None
    correlation_id: str | None = None
    parent_job_id: UUID | None = None
    created_from: datetime | None = None
    created_before: datetime | None = None
    due_before: datetime | None = None
    """Queued jobs that are due before this instant."""
    visible_to: Visibility | None = None
    """What the caller may see; None is for the system itself."""

    def narrowed(self) -> "JobFilter | None":
        """The same with tenant and types narrowed to what is visible; None where nothing can be.

        Texts that no store can keep are left out, for no job has them. What is left to a store is
        `whose`.
        """
        seen = self.visible_to and self.visible_to.possible()
        if seen is None:
            return self._possible()
        tenants = {self.tenant_id, seen.tenant_id} - {None}
        types = self.job_types
        if seen.job_types is not None:
            types = types & seen.job_types if types else seen.job_types
        if len(tenants) > 1 or (not types and seen.job_types is not None) or seen.is_blind:
            return None
        tenant = next(iter(tenants), None)
        narrow = msgspec.structs.replace(self, tenant_id=tenant, job_types=types, visible_to=seen)
        return narrow._possible()

    def _possible(self) -> "JobFilter | None":
        texts = (self.tenant_id, self.subject_id, self.created_by, self.correlation_id)
        if not all(text is None or is_storable(text) for text in texts):
            return None
        names = ("job_types", "queues", "reasons", "error_codes")
        choices = {name: getattr(self, name) for name in names}
        possible = {name: frozenset(filter(is_storable, some)) for name, some in choices.items()}
        if any(some and not possible[name] for name, some in choices.items()):
            return None
        statuses = self.statuses
        if self.due_before:
            statuses = statuses or frozenset({JobStatus.QUEUED})
            statuses = frozenset(one for one in statuses if status_of(one) is JobStatus.QUEUED)
            if not statuses:
                return None
        statuses = frozenset(
            one for one in statuses if one is status_of(one) or status_of(one) not in statuses
        )
        return msgspec.structs.replace(self, statuses=statuses, **possible)

    @property
    def stored_statuses(self) -> frozenset[JobStatus]:
        """What is stored of the jobs that are meant; nothing where all are."""
        return frozenset(map(status_of, self.statuses))

    @property
    def asks_for_time(self) -> bool:
        """Whether it depends on the clock which jobs are meant."""
        return any(isinstance(one, DerivedState) for one in self.statuses)

    def admits(self, job: Job) -> bool:
        """Whether the caller may see this job at all, whatever else the filter asks for."""
        return self.visible_to is None or self.visible_to.admits(job)

    @property
    def whose(self) -> Visibility | None:
        """What the caller may see, if that is only his own jobs."""
        return self.visible_to if self.visible_to and self.visible_to.owner is not None else None


def at_most(limit: int) -> int:
    """How many rows a limit means: none below zero, and never more than could be read."""
    return max(0, min(limit, _MOST_ROWS))


def in_64_bits(number: int) -> int:
    """The nearest number that every store can compare with; none of its own is as large."""
    return max(-_LARGEST, min(number, _LARGEST))


class Cursor(msgspec.Struct, frozen=True):
    """The last job of a page; the next page starts after it. Ties are broken by the id."""

    created_at: datetime
    job_id: UUID


class Page(msgspec.Struct, frozen=True):
    """Jobs, newest first, and where to go on, if there is more."""

    items: tuple[JobSnapshot, ...]
    next: Cursor | None


class LaneCounts(msgspec.Struct, kw_only=True):
    """Jobs of one queue and type, by status. `scheduled` are those of `queued` not yet due.

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


class DeadCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of a type ended in Failed or Poisoned for one reason, and the last of them."""

    job_type: str
    status: JobStatus
    reason: str
    jobs: int
    newest_at: datetime


class LaneRequest(msgspec.Struct, frozen=True):
    """What a claim wants of one queue: up to `limit` jobs of these types.

    A suspect, which was in SUSPECT_AFTER_CRASHES crashes or more, is claimed only where `suspects`
    asks for it.
    """

    queue: str
    job_types: tuple[str, ...]
    limit: int
    logged: tuple[str, ...] = ()
    """The types whose start is an event."""
    at_most: tuple[tuple[str, int], ...] = ()
    """Of these types no more than so many, however many the limit would allow."""
    suspects: tuple[int, ...] = ()
    """Claim suspects, and nothing else: at most so many of those that were in 2, 3, 4 … crashes.

    The last number holds for all that were in more. Of the due ones only those are taken that were
    in the most crashes, distinguished up to MOST_CRASHES_COUNTED.
    """

    flow: tuple[TypeFlow, ...] = ()
    """The limits and gates of these types. A claim that brings none holds to none."""

    def most_suspects(self, crashes: int) -> int:
        """Say how many suspects may be claimed that were in so many crashes."""
        index = min(crashes - SUSPECT_AFTER_CRASHES, len(self.suspects) - 1)
        return min(self.suspects[index], self.limit)


class PruneRule(msgspec.Struct, frozen=True):
    """Remove jobs that ended in `status` before this instant."""

    status: JobStatus
    ended_before: datetime


class Pruned(msgspec.Struct, frozen=True):
    """What a bounded prune removed. Less than its limit means nothing is left to remove."""

    jobs: int = 0
    keys: int = 0
    records: int = 0
    overdue: timedelta = timedelta(0)
    """How long the oldest job that is left should have been gone; also one that is held back."""
    busy_seconds: float = 0.0
    """How long the store worked on the jobs, without the time that it waited for its turn."""

    @property
    def most(self) -> int:
        """How many it removed of whatever it removed most of."""
        return max(self.jobs, self.keys, self.records)

"""The store protocol: atomic verbs that keep data and decide nothing. The docstrings specify them.

Every verb takes many items and answers item by item. Each item is atomic with all that belongs to
it (keys, follow-ups, records, log row); the items of one call are independent of each other.
A verb whose answer was lost can be called again with the same arguments: `insert` is idempotent by
job id, `claim` by claim id, `apply` by the run token or the change id, the others by nature.

Any verb may raise StoreUnavailable; then it is unknown whether it took effect.
"""

from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from gantline.contract.capabilities import Capabilities
from gantline.contract.flow import GateState, GroupPage
from gantline.contract.query import (
    Cursor,
    DeadCount,
    JobFilter,
    LaneCounts,
    LaneRequest,
    Page,
    Pruned,
    PruneRule,
)
from gantline.contract.records import Record, RecordWrite
from gantline.contract.results import (
    Applied,
    ApplyResult,
    Conflict,
    DeleteResult,
    InsertResult,
    Leadership,
    ProgressResult,
    Renewal,
)
from gantline.contract.snapshot import JobSnapshot, LogEntry, LoggedEvent, Progress, Run, RunRef
from gantline.contract.stored import Dumped, Part, Stored
from gantline.contract.submission import DedupeKey, NewJob
from gantline.contract.transition import StateGuard, Transition
from gantline.contract.wakeup import Channel


class JobReader(Protocol):
    """The read side, all that the API, the dashboard and the CLI need.

    `tenant_id` None reads across tenants and is for the system itself.
    """

    async def get(
        self, job_ids: Sequence[UUID], *, tenant_id: str | None
    ) -> list[JobSnapshot | None]:
        """Read jobs as they stand, in the order asked for; None for one that is not there."""
        ...

    async def request_keys(self, job_ids: Sequence[UUID]) -> list[DedupeKey | None]:
        """Read by which request each job was submitted, while its key is held.

        Also of a job that is gone: so it is known that there was one.
        """
        ...

    async def find(self, job_filter: JobFilter, *, limit: int, after: Cursor | None = None) -> Page:
        """Read a page of jobs, newest first by (created_at, job_id).

        It may have fewer than `limit` and still lead on, where what was asked for is rare.
        """
        ...

    async def counts(self, *, tenant_id: str | None) -> list[LaneCounts]:
        """Count the jobs of every queue and type that has any, in that order."""
        ...

    async def ahead(
        self, job_id: UUID, job_types: Collection[str], *, tenant_id: str | None, limit: int
    ) -> dict[int, int] | None:
        """Count the due jobs that claims of these types take before a Queued one, by priority.

        Those of its queue; of the tenant only, where one is named. Where groups take turns: all of
        a higher priority that are due; of its own priority, of each other group at most as many as
        are before it in its own. At most `limit` are looked at, the most urgent first. Before a
        suspect there are only suspects, and suspects are before no other job: see LaneRequest.
        None where the job is not Queued. Cheap with any number of jobs.
        """
        ...

    async def groups(
        self, queue: str, job_type: str, *, tenant_id: str | None, limit: int, after: str = ""
    ) -> GroupPage:
        """Read which groups of a queue and type have anything Queued or Running.

        In any order, each once while nobody writes. Cheap with any number of jobs in a group.
        """
        ...

    async def waiting(
        self, queue: str, job_type: str, *, tenant_id: str, group: str, at_most: int
    ) -> int:
        """Count the Queued jobs of a group in a queue and type, up to `at_most`."""
        ...

    async def gates(self, names: Sequence[str]) -> list[GateState]:
        """Read gates in the order asked for. One that was never used is open."""
        ...

    async def dead_counts(self, *, tenant_id: str | None) -> list[DeadCount]:
        """Count dead letters by type, status and reason, in that order. Reads all of them."""
        ...

    async def history(self, job_id: UUID, *, tenant_id: str | None) -> list[LogEntry]:
        """Read the log of a job, oldest first."""
        ...

    async def events(self, *, after: int, limit: int) -> list[LoggedEvent]:
        """Read log rows of all jobs after sequence number `after`, in order.

        A row never appears at or before a number that was handed out already.
        """
        ...

    async def last_event(self) -> int:
        """Return which sequence number was handed out last, 0 before the first.

        It never goes back, also when that row is removed: a number up to it that `events` does not
        give belonged to a job that is gone.
        """
        ...


class StoreTransaction(Protocol):
    """A transaction of the handler's own, in which its run can be settled too."""

    @property
    def connection(self) -> Any:
        """The driver's connection, for the handler's own statements. It must not commit."""
        ...

    async def apply(self, transition: Transition) -> ApplyResult:
        """Write a decided change as part of this transaction; see `JobStore.apply`."""
        ...


class JobStore(JobReader, Protocol):
    """All verbs. The store's own clock rules; delays and leases are added to it."""

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def channel(self) -> Channel | None:
        """Where the store's own server carries wake-ups; None where it does not."""
        ...

    async def open(self) -> None:
        """Connect, bring or check the schema; raise what is wrong with the location or the URL."""
        ...

    async def close(self) -> None:
        """Release everything. Verbs under way are finished first."""
        ...

    async def ping(self) -> datetime:
        """Prove that the store can be read and return the time of its clock."""
        ...

    async def insert(self, jobs: Sequence[NewJob]) -> list[InsertResult]:
        """Store jobs as Queued and take their keys, durably when it answers.

        One that is `logged` leaves a row in the log, `submitted`, of version 1.
        An id that is there already with the same tenant, type and fingerprint is a Duplicate,
        otherwise a Conflict. The same holds for a key that is held, by its fingerprint; and for an
        external id that is the id of a job of the same tenant.
        """
        ...

    async def insert_in(self, connection: Any, jobs: Sequence[NewJob]) -> list[InsertResult]:
        """Insert in the caller's own transaction, which the caller commits or rolls back.

        Where `capabilities.caller_transaction` is False, raise StoreMisconfigured.
        """
        ...

    def transaction(self) -> AbstractAsyncContextManager[StoreTransaction]:
        """Begin a transaction; it is committed at the end of the block, or rolled back by an error.

        Where `capabilities.caller_transaction` is False, raise StoreMisconfigured.
        """
        ...

    async def claim(
        self,
        session: str,
        claim_id: UUID,
        requests: Sequence[LaneRequest],
        *,
        lease: timedelta,
    ) -> list[Run]:
        """Start runs of due jobs: Running, attempt + 1, fence + 1, a new token, a lease.

        Only for a registered session, one with a record in SESSIONS: else raise
        SessionNotRegistered. A store need not ask where nothing is due.
        Within a queue the order is priority, time due, id; claims by others may be skipped. A run
        says how long its job had been due; one that is read again need not. Suspects wait apart,
        in an order of their own: see LaneRequest.
        Within a priority groups take turns: tenants first, and of each its groups; within a group
        the order is time due, id. With no group but the plain one, that is the order above. No
        group waits because of others that are full, closed or not due, or because more have come.
        The limits and gates of a request hold over the fleet, at every moment, whoever else claims;
        a type, group or gate that another claim has at this moment may be left to it.
        A repeated claim id gives the runs it started that are still current, and starts none; if
        none is current any more, it is a new claim.
        A start of a type that is `logged` leaves a row, `started`, of the version of the run.
        """
        ...

    async def renew(self, session: str, runs: Sequence[RunRef], *, lease: timedelta) -> Renewal:
        """Extend the leases of the runs named, if they are still current. Others just run out."""
        ...

    async def progress(self, updates: Sequence[Progress]) -> list[ProgressResult]:
        """Overwrite how far runs are; each is a new version.

        One that is `logged` and says something new leaves a row, `progressed`, of that version.
        """
        ...

    async def apply(self, transitions: Sequence[Transition]) -> list[ApplyResult]:
        """Write decided changes, each under its guard, with all that it carries or not at all.

        A follow-up that is stored already counts as done; one that clashes, like a record whose
        version moved, is a Conflict. A redrive takes the idempotency key again or is a Conflict.
        """
        ...

    async def expired(self, *, limit: int, after: UUID | None = None) -> list[Run]:
        """Read runs whose lease has run out, ordered by job id, after `after`.

        A lease that would last longer from now than it was given for is cut to that length first:
        the clock was set back. A lease whose job is gone, removed by hand, is removed too.
        """
        ...

    async def past_expiry(self, *, limit: int) -> list[UUID]:
        """Read which jobs have expired: Queued, new, and their `expires_at` is over.

        New is what `JobSnapshot.is_new` says: one that was claimed or redriven once is not. In the
        order of `expires_at`. Cheap where there are none, whatever waits.
        """
        ...

    async def expire_session(self, session: str) -> int:
        """Let all leases of a session run out now: it has ended. Return how many it held."""
        ...

    async def delete(self, jobs: Sequence[tuple[UUID, StateGuard]]) -> list[DeleteResult]:
        """Remove ended jobs with their log, idempotency key and external id.

        One that is not terminal is Stale. Keys that are held for a time of their own stay until it
        is over.
        """
        ...

    async def prune(
        self, rules: Sequence[PruneRule], *, limit: int, keep_events_after: int | None = None
    ) -> Pruned:
        """Remove at most `limit` old jobs, expired keys and expired records.

        Jobs go rule by rule, the oldest first.
        With a limit of 0 nothing is written, and only `overdue` is read: cheap, whatever is kept.
        Jobs with an event after `keep_events_after` stay, for consumers that are still to read it.
        The key of a completed job stays as long as it was promised; its external id is freed.
        """
        ...

    async def sequence(self, *, limit: int) -> int:
        """Number committed log rows that have no number yet; return how many were numbered.

        Numbers have no holes when they are handed out. Cheap where there is nothing to number;
        several may call it at once.
        """
        ...

    async def held(self, keys: Sequence[DedupeKey]) -> list[UUID | None]:
        """Return which job holds each key now, if any."""
        ...

    async def lead(self, role: str, owner: str, *, lease: timedelta) -> Leadership | None:
        """Take or extend the leadership of a role; None while another owner has it.

        Extending keeps the term; taking it over makes a new one. One that would last longer from
        now than the lease that is asked for has ended: the clock was set back.
        """
        ...

    async def resign(self, role: str, owner: str, term: int) -> None:
        """Give leadership back, if this owner still holds this very term."""
        ...

    async def read_records(
        self, namespace: str, *, prefix: str = "", after: str = "", limit: int = 1000
    ) -> list[Record]:
        """Read the records of a namespace that have not expired, ordered by key."""
        ...

    async def write_records(self, writes: Sequence[RecordWrite]) -> list[Applied | Conflict]:
        """Write records one by one under compare-and-set; Applied carries the new version."""
        ...

    # -- moving to another store ------------------------------------------------------------------

    async def dump(self, part: Part, *, after: str = "", limit: int) -> Dumped:
        """Read out a page of about `limit` items, after the `next` of the page before.

        In whatever order the store likes, but each exactly once while nobody writes. Also what has
        expired and was not pruned yet. Log rows must have been numbered: see `sequence`.
        """
        ...

    async def load(self, items: Sequence[Stored]) -> None:
        """Take in what was read out of another store, exactly as it was there.

        What is there already stays as it is, so a page can be repeated. Marks come last; numbers
        handed out from then on are after them. The store holds nothing that would clash: it was
        cleared. A Running job is InvalidInput, and nothing of its call is taken.
        """
        ...

    async def clear(self) -> None:
        """Remove everything, in bounded steps; numbers begin anew."""
        ...

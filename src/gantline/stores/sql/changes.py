"""What transitions change, row by row, so that a store can write it table by table."""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar
from uuid import UUID

from gantline.contract.clock import later_micros
from gantline.contract.results import Applied, DeleteResult, NotFound, Stale
from gantline.contract.status import Event, JobStatus
from gantline.contract.submission import DedupeKey, KeyKind
from gantline.contract.transition import StateGuard, Transition, refusal
from gantline.stores.sql.rows import Row

Id = TypeVar("Id")
"""How a store encodes a UUID."""


class Head(NamedTuple, Generic[Id]):
    """The state of a job, read from the table that has it. `token` and the next four: its run."""

    status: JobStatus
    job_id: Id
    end: int | None
    """The log row of its end, if it has ended."""
    version: int
    fence: int
    attempt: int
    crashes: int
    snoozes: int
    priority: int
    lane: int
    tenant: str
    created_at: int
    idempotency_key: str
    fingerprint: bytes
    job_type: str
    token: Id | None = None
    session: str = ""
    started_at: int | None = None
    until: int | None = None
    cancel_requested: bool = False
    group: str = ""

    @property
    def key(self) -> DedupeKey | None:
        if not self.idempotency_key:
            return None
        return DedupeKey(
            KeyKind.JOB, self.tenant, self.job_type, self.idempotency_key, self.fingerprint
        )


class Moves(Protocol):
    def move(
        self, tenant: str, lane: int, from_status: JobStatus | None, to_status: JobStatus | None
    ) -> None:
        """Count a job that changes its status."""
        ...


class Requeued(NamedTuple, Generic[Id]):
    """A job that is Queued again, with its state before."""

    transition: Transition
    head: Head[Id]
    version: int


class ChangedRows(Generic[Id]):
    """Collects rows. What a transition carries beside its own job, the store writes itself."""

    def __init__(self, now: int, tally: Moves, *, encode_id: Callable[[UUID], Id]) -> None:
        self._now = now
        self._tally = tally
        self._encode_id = encode_id
        self.left_lease: list[Id] = []
        self.left_ready: list[Id] = []
        self.left_end: list[Row] = []
        self.cancel_requests: list[Row] = []
        self.queued: list[Requeued[Id]] = []
        self.logged: list[Row] = []
        self.keys_held: list[Row] = []
        self.keys_freed: list[Row] = []
        self.keys_taken: list[tuple[DedupeKey, Id]] = []

    def add(self, transition: Transition, head: Head[Id]) -> None:
        version = head.version + 1
        self.logged.append(self._log_row(transition, head, version))
        if transition.event is Event.CANCEL_REQUESTED:
            self.cancel_requests.append((version, head.job_id))
            return
        self._leave(head)
        self._tally.move(head.tenant, head.lane, head.status, transition.to)
        if transition.to is JobStatus.QUEUED:
            self.queued.append(Requeued(transition, head, version))
        if key := head.key:
            self._keep_or_free(key, transition, head)
        self.keys_taken += [(key, head.job_id) for key in transition.once]

    def _leave(self, head: Head[Id]) -> None:
        match head.status:
            case JobStatus.RUNNING:
                self.left_lease.append(head.job_id)
            case JobStatus.QUEUED:
                self.left_ready.append(head.job_id)
            case _:
                self.left_end.append((head.end,))

    def _keep_or_free(self, key: DedupeKey, transition: Transition, head: Head[Id]) -> None:
        owned = (key.tenant_id, key.scope, key.key, head.job_id)
        if transition.event is Event.REDRIVEN:
            self.keys_taken.append((key, head.job_id))
        elif transition.to is JobStatus.COMPLETED:
            self.keys_held.append((later_micros(self._now, transition.hold_key), *owned))
        elif transition.to.is_terminal:
            self.keys_freed.append(owned)

    def _log_row(self, transition: Transition, head: Head[Id], version: int) -> Row:
        error = transition.error
        counted = transition if transition.sets_counters else head
        return (
            head.job_id,
            version,
            self._encode_id(transition.change_id),
            head.tenant,
            head.lane,
            transition.event.value,
            transition.to.value,
            transition.reason.value,
            self._now,
            counted.attempt,
            counted.crashes,
            counted.snoozes,
            head.fence,
            counted.priority,
            head.session,
            head.started_at,
            error.code if error else None,
            error.message if error else None,
            error.detail if error else None,
            transition.result,
            transition.result_omitted,
            transition.actor,
            head.created_at,
            transition.to.is_terminal,
            transition.emitted,
        )


def split_deletes(
    jobs: Sequence[tuple[UUID, StateGuard]],
    heads: dict[Id, Head[Id]],
    encode_id: Callable[[UUID], Id],
) -> tuple[list[DeleteResult], list[Head[Id]]]:
    """Say for each job whether it may be deleted, and give the heads of those that may.

    Takes these out of `heads`: the same job named twice is gone the second time.
    """
    results: list[DeleteResult] = []
    removed: list[Head[Id]] = []
    for job_id, guard in jobs:
        head = heads.get(encode_id(job_id))
        if head is None:
            results.append(NotFound())
            continue
        refused = refusal(
            guard,
            tenant_id=head.tenant,
            status=head.status,
            version=head.version,
            token=None,
            has_expired=False,
            cancel_requested=False,
        )
        if isinstance(refused, NotFound):
            results.append(refused)
        elif refused or not head.status.is_terminal:
            results.append(Stale())
        else:
            results.append(Applied(head.version))
            removed.append(heads.pop(head.job_id))
    return results, removed


def has_attachments(transition: Transition) -> bool:
    return bool(
        transition.follow_ups
        or transition.records
        or transition.once
        or transition.event is Event.REDRIVEN
    )


def split_by_job(transitions: Sequence[Transition]) -> Iterator[list[tuple[int, Transition]]]:
    """Split transitions into rounds, so that each round has every job once and sees the one before.

    Yields the transitions with their indexes in the sequence.
    """
    rest = list(enumerate(transitions))
    while rest:
        first: dict[UUID, tuple[int, Transition]] = {}
        later = [item for item in rest if first.setdefault(item[1].job_id, item) is not item]
        yield list(first.values())
        rest = later

"""apply: decided changes under their guards, each with its follow-ups, keys, records and log row.

The write lock is held, so looking first and writing after is one atomic step.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from windlass.contract.clock import later_micros
from windlass.contract.identity import uuid_from_bytes
from windlass.contract.records import write_is_allowed
from windlass.contract.results import Applied, ApplyResult, Conflict, NotFound
from windlass.contract.status import Event, JobStatus
from windlass.contract.submission import DedupeKey, KeyKind
from windlass.contract.transition import Transition, may_be_repeat, refusal
from windlass.stores.sqlite import keys, records
from windlass.stores.sqlite.insert import Insertion
from windlass.stores.sqlite.ready import ReadyRow, enqueue, leave
from windlass.stores.sqlite.rows import Row, execute_in, insert_rows
from windlass.stores.sqlite.tally import Tally

_HEAD = (
    "{0}.version, {0}.fence, {0}.attempt, {0}.crashes, {0}.snoozes, {0}.priority, {0}.lane, "
    "{0}.tenant, job.created_at, job.idempotency_key"
)
_RUNNING = f"""
SELECT lease.job_id, NULL, {_HEAD.format("lease")}, job.fingerprint, lane.job_type,
       lease.token, lease.session, lease.started_at, lease.until, lease.cancel_requested
FROM windlass_lease AS lease
JOIN windlass_job AS job ON job.id = lease.job_id
JOIN windlass_lane AS lane ON lane.id = job.lane
WHERE lease.job_id IN {{}}
"""  # noqa: S608  # constants only
_QUEUED = f"""
SELECT ready.job_id, NULL, {_HEAD.format("ready")}, job.fingerprint, lane.job_type
FROM windlass_ready AS ready
JOIN windlass_job AS job ON job.id = ready.job_id
JOIN windlass_lane AS lane ON lane.id = job.lane
WHERE ready.job_id IN {{}}
"""  # noqa: S608  # constants only
_ENDED = f"""
SELECT log.status, log.job_id, log.sequence, {_HEAD.format("log")}, job.fingerprint, lane.job_type
FROM windlass_log AS log
JOIN windlass_job AS job ON job.id = log.job_id
JOIN windlass_lane AS lane ON lane.id = job.lane
WHERE log.is_end = 1 AND log.job_id IN {{}}
"""  # noqa: S608  # constants only

_REPEATED = "SELECT event FROM windlass_log WHERE job_id = ? AND change_id = ?"
_LOG = f"""
INSERT INTO windlass_log (
    job_id, version, change_id, tenant, lane, event, status, reason, at, attempt, crashes, snoozes,
    fence, priority, session, started_at, error_code, error_message, error_detail, result,
    result_omitted, actor, created_at, is_end)
VALUES ({", ".join("?" * 24)})
"""  # noqa: S608  # constants only
_ASK_TO_STOP = "UPDATE windlass_lease SET cancel_requested = 1, version = ? WHERE job_id = ?"
_LEAVE_LEASES = "DELETE FROM windlass_lease WHERE job_id IN {}"
_LEAVE_END = "UPDATE windlass_log SET is_end = 0 WHERE sequence = ?"


class Head(NamedTuple):
    """Where a job stands. The last five are of its run."""

    status: JobStatus
    job_id: bytes
    end: int | None
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
    token: bytes | None = None
    session: str = ""
    started_at: int | None = None
    until: int | None = None
    cancel_requested: int = 0

    @property
    def key(self) -> DedupeKey | None:
        if not self.idempotency_key:
            return None
        return DedupeKey(
            KeyKind.JOB, self.tenant, self.job_type, self.idempotency_key, self.fingerprint
        )


def heads(connection: sqlite3.Connection, job_ids: Sequence[bytes]) -> dict[bytes, Head]:
    """Find where jobs stand; most are running when asked for."""
    found: dict[bytes, Head] = {}
    for row in execute_in(connection, _RUNNING, job_ids):
        found[row[0]] = Head(JobStatus.RUNNING, *row)
    rest = [job_id for job_id in job_ids if job_id not in found]
    for row in execute_in(connection, _QUEUED, rest):
        found[row[0]] = Head(JobStatus.QUEUED, *row)
    rest = [job_id for job_id in rest if job_id not in found]
    for row in execute_in(connection, _ENDED, rest):
        found[row[1]] = Head(JobStatus(row[0]), *row[1:])
    return found


def apply(
    connection: sqlite3.Connection, transitions: Sequence[Transition], now: int
) -> list[ApplyResult]:
    change = _Change(connection, now)
    ids = [transition.job_id.bytes for transition in transitions]
    answers: dict[int, ApplyResult] = {}
    for places in _rounds(ids):
        found = heads(connection, [ids[place] for place in places])
        for place in places:
            answers[place] = change.add(transitions[place], found.get(ids[place]))
        change.write()
    return [answers[place] for place in range(len(ids))]


def _rounds(job_ids: list[bytes]) -> Iterator[list[int]]:
    """A job may come twice in one call: each round takes every job once, and sees the one before.

    Yields places in the list.
    """
    rest = list(range(len(job_ids)))
    while rest:
        first: dict[bytes, int] = {}
        later = [place for place in rest if first.setdefault(job_ids[place], place) != place]
        yield list(first.values())
        rest = later


def _reaches_beyond_its_job(transition: Transition) -> bool:
    return bool(
        transition.follow_ups
        or transition.records
        or transition.once
        or transition.event is Event.REDRIVEN
    )


class _Change:
    """Collects the rows of many transitions and writes them table by table."""

    def __init__(self, connection: sqlite3.Connection, now: int) -> None:
        self._connection = connection
        self._now = now
        self._clear()

    def _clear(self) -> None:
        self._tally = Tally()
        self._left_lease: list[bytes] = []
        self._left_ready: list[Row] = []
        self._left_end: list[Row] = []
        self._asked: list[Row] = []
        self._queued: list[ReadyRow] = []
        self._logged: list[Row] = []
        self._keys_held: list[Row] = []
        self._keys_freed: list[Row] = []
        self._keys_taken: list[tuple[DedupeKey, bytes]] = []

    def add(self, transition: Transition, head: Head | None) -> ApplyResult:
        if head is None:
            return NotFound()
        refused = refusal(
            transition.guard,
            tenant_id=head.tenant,
            status=head.status,
            version=head.version,
            token=uuid_from_bytes(head.token) if head.token else None,
            has_expired=head.until is not None and head.until <= self._now,
            cancel_requested=bool(head.cancel_requested),
        )
        if may_be_repeat(transition.guard, refused) and self._is_repeated(transition):
            return Applied(head.version)
        if refused is not None:
            return refused
        if _reaches_beyond_its_job(transition):
            # What it looks at (keys, records, other jobs) may be among the rows not yet written.
            self.write()
            conflict = self._write_cargo(transition, head)
            if conflict is not None:
                return conflict
            self._collect(transition, head)
            self.write()
        else:
            self._collect(transition, head)
        return Applied(head.version + 1)

    def _is_repeated(self, transition: Transition) -> bool:
        """Tell a lost answer from a lost run: by its own name the change is in the log already."""
        place = (transition.job_id.bytes, transition.change_id.bytes)
        return (transition.event,) in self._connection.execute(_REPEATED, place).fetchall()

    def write(self) -> None:
        write = self._connection.executemany
        execute_in(self._connection, _LEAVE_LEASES, self._left_lease)
        leave(self._connection, self._left_ready)
        write(_LEAVE_END, self._left_end)
        write(_ASK_TO_STOP, self._asked)
        enqueue(self._connection, self._queued)
        insert_rows(self._connection, _LOG, self._logged)
        write(keys.HOLD, self._keys_held)
        write(keys.FREE, self._keys_freed)
        keys.take(self._connection, self._keys_taken, self._now)
        self._tally.write(self._connection)
        self._clear()

    # -- what a transition carries ----------------------------------------------------------------

    def _write_cargo(self, transition: Transition, head: Head) -> Conflict | None:
        """Write follow-ups and records at once, or say what of them does not fit."""
        if transition.event is Event.REDRIVEN and (key := head.key):
            held = keys.holder(self._connection, key, self._now)
            if held and held.job_id != head.job_id:
                return Conflict(by=KeyKind.JOB)
        for write in transition.records:
            current = records.current(self._connection, write.namespace, write.key, self._now)
            if not write_is_allowed(write, current):
                return Conflict(by=f"{write.namespace}/{write.key}")
        if transition.follow_ups:
            insertion = Insertion(self._connection, self._now)
            for answer in insertion.add_all(transition.follow_ups):
                if isinstance(answer, Conflict):
                    return answer
            insertion.write(self._tally)
        records.write_all(self._connection, transition.records, self._now)
        return None

    # -- the rows of the job itself ---------------------------------------------------------------

    def _collect(self, transition: Transition, head: Head) -> None:
        version = head.version + 1
        self._logged.append(self._log_row(transition, head, version))
        if transition.event is Event.CANCEL_REQUESTED:
            self._asked.append((version, head.job_id))
            return
        self._leave(head)
        self._tally.move(head.tenant, head.lane, head.status, transition.to)
        if transition.to is JobStatus.QUEUED:
            self._queued.append(self._ready_row(transition, head, version))
        if key := head.key:
            self._keep_or_free(key, transition, head)
        self._keys_taken += [(key, head.job_id) for key in transition.once]

    def _leave(self, head: Head) -> None:
        match head.status:
            case JobStatus.RUNNING:
                self._left_lease.append(head.job_id)
            case JobStatus.QUEUED:
                self._left_ready.append((head.job_id,))
            case _:
                self._left_end.append((head.end,))

    def _keep_or_free(self, key: DedupeKey, transition: Transition, head: Head) -> None:
        owned = (key.tenant_id, key.scope, key.key, head.job_id)
        if transition.event is Event.REDRIVEN:
            self._keys_taken.append((key, head.job_id))
        elif transition.to is JobStatus.COMPLETED:
            self._keys_held.append((later_micros(self._now, transition.hold_key), *owned))
        elif transition.to.is_terminal:
            self._keys_freed.append(owned)

    def _ready_row(self, transition: Transition, head: Head, version: int) -> ReadyRow:
        return ReadyRow(
            later_micros(self._now, transition.delay),
            head.job_id,
            head.lane,
            transition.priority,
            head.tenant,
            version,
            transition.attempt,
            transition.crashes,
            transition.snoozes,
            head.fence,
        )

    def _log_row(self, transition: Transition, head: Head, version: int) -> Row:
        error = transition.error
        counted = transition if transition.sets_counters else head
        return (
            head.job_id,
            version,
            transition.change_id.bytes,
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
            int(transition.to.is_terminal),
        )

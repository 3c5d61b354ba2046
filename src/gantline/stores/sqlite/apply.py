"""apply: decided changes under their guards, each with its follow-ups, keys, records and log row.

The write lock is held, so looking first and writing after is one atomic step.
"""

import sqlite3
from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from gantline.contract.clock import later_micros
from gantline.contract.flow import group_number
from gantline.contract.job_id import uuid_from_bytes
from gantline.contract.records import write_is_allowed
from gantline.contract.results import Applied, ApplyResult, Conflict, NotFound
from gantline.contract.snapshot import rank
from gantline.contract.status import Event, JobStatus
from gantline.contract.submission import KeyKind
from gantline.contract.transition import Transition, may_be_repeat, refusal
from gantline.stores.ranks import PRIORITIES
from gantline.stores.sql.changes import ChangedRows, Head, Requeued, has_attachments, split_by_job
from gantline.stores.sqlite import dedupe, records, turns
from gantline.stores.sqlite.counts import Tally
from gantline.stores.sqlite.insert import Insertion
from gantline.stores.sqlite.limits import close_gates
from gantline.stores.sqlite.ready import ReadyRow, enqueue, remove
from gantline.stores.sqlite.rows import execute_in, insert_rows

_HEAD = (
    "{0}.version, {0}.fence, {0}.attempt, {0}.crashes, {0}.snoozes, {1}, {0}.lane, "
    "{0}.tenant, job.created_at, job.idempotency_key"
)
_NO_RUN = "NULL, '', NULL, NULL, 0"
_RUNNING = f"""
SELECT lease.job_id, NULL, {_HEAD.format("lease", "lease.priority")},
       job.fingerprint, lane.job_type, lease.token, lease.session, lease.started_at, lease.until,
       lease.cancel_requested, job.group_name
FROM gantline_lease AS lease
JOIN gantline_job AS job ON job.id = lease.job_id
JOIN gantline_lane AS lane ON lane.id = job.lane
WHERE lease.job_id IN {{}}
"""  # noqa: S608  # constants only
_QUEUED = f"""
SELECT ready.job_id, NULL, {_HEAD.format("ready", f"ready.rank % {PRIORITIES}")},
       job.fingerprint, lane.job_type, {_NO_RUN}, job.group_name
FROM gantline_ready AS ready
JOIN gantline_job AS job ON job.id = ready.job_id
JOIN gantline_lane AS lane ON lane.id = job.lane
WHERE ready.job_id IN {{}}
"""  # noqa: S608  # constants only
_ENDED = f"""
SELECT log.status, log.job_id, log.sequence, {_HEAD.format("log", "log.priority")},
       job.fingerprint, lane.job_type, {_NO_RUN}, job.group_name
FROM gantline_log AS log
JOIN gantline_job AS job ON job.id = log.job_id
JOIN gantline_lane AS lane ON lane.id = job.lane
WHERE log.is_end = 1 AND log.job_id IN {{}}
"""  # noqa: S608  # constants only

_REPEATED = "SELECT event FROM gantline_log WHERE job_id = ? AND change_id = ?"
_LOG = f"""
INSERT INTO gantline_log (
    job_id, version, change_id, tenant, lane, event, status, reason, at, attempt, crashes, snoozes,
    fence, priority, session, started_at, error_code, error_message, error_detail, result,
    result_omitted, actor, created_at, is_end, emitted)
VALUES ({", ".join("?" * 25)})
"""  # noqa: S608  # constants only
_REQUEST_CANCEL = "UPDATE gantline_lease SET cancel_requested = 1, version = ? WHERE job_id = ?"
_GROUPS_OF_LEASES = "SELECT DISTINCT grp FROM gantline_lease WHERE job_id IN {}"
_LEAVE_LEASES = "DELETE FROM gantline_lease WHERE job_id IN {}"
_LEAVE_END = "UPDATE gantline_log SET is_end = 0 WHERE sequence = ?"


# How this store encodes a UUID.
_BYTES: Final = attrgetter("bytes")


def read_heads(
    connection: sqlite3.Connection, job_ids: Sequence[bytes]
) -> dict[bytes, Head[bytes]]:
    """Read the state of jobs. Most of them are running, so the leases are read first."""
    found: dict[bytes, Head[bytes]] = {}
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
    results: dict[int, ApplyResult] = {}
    for round_ in split_by_job(transitions):
        found = read_heads(connection, [one.job_id.bytes for _, one in round_])
        for index, one in round_:
            results[index] = change.add(one, found.get(one.job_id.bytes))
        change.write()
    return [results[index] for index in range(len(transitions))]


class _Change:
    """Collects the rows of many transitions and writes them table by table."""

    def __init__(self, connection: sqlite3.Connection, now: int) -> None:
        self._connection = connection
        self._now = now
        self._clear()

    def _clear(self) -> None:
        self._tally = Tally()
        self._rows = ChangedRows(self._now, self._tally, encode_id=_BYTES)
        self._closing: list[Transition] = []

    def add(self, transition: Transition, head: Head[bytes] | None) -> ApplyResult:
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
        if has_attachments(transition):
            # It reads keys, records and other jobs, which may be among the rows not yet written.
            self.write()
            conflict = self._add_with_attachments(transition, head)
            if conflict is not None:
                return conflict
            self.write()
        else:
            self._add_rows(transition, head)
        return Applied(head.version + 1)

    def _add_rows(self, transition: Transition, head: Head[bytes]) -> None:
        self._rows.add(transition, head)
        if transition.closes:
            self._closing.append(transition)

    def _is_repeated(self, transition: Transition) -> bool:
        """Whether the log has this change already: then only its result was lost, not the run."""
        values = (transition.job_id.bytes, transition.change_id.bytes)
        return (transition.event,) in self._connection.execute(_REPEATED, values).fetchall()

    def write(self) -> None:
        rows, write = self._rows, self._connection.executemany
        if rows.left_lease and turns.is_any_full(self._connection):
            ended = execute_in(self._connection, _GROUPS_OF_LEASES, rows.left_lease)
            turns.give_back_places(self._connection, [group for (group,) in ended])
        execute_in(self._connection, _LEAVE_LEASES, rows.left_lease)
        remove(self._connection, rows.left_ready)
        write(_LEAVE_END, rows.left_end)
        write(_REQUEST_CANCEL, rows.cancel_requests)
        enqueue(self._connection, [self._ready_row(one) for one in rows.queued], self._now)
        if self._closing:
            close_gates(self._connection, self._closing, self._now)
        self._write_log()
        write(dedupe.HOLD, rows.keys_held)
        write(dedupe.FREE, rows.keys_freed)
        dedupe.take(self._connection, rows.keys_taken, self._now)
        self._tally.write(self._connection)
        self._clear()

    def _write_log(self) -> None:
        logged, self._rows.logged = self._rows.logged, []
        insert_rows(self._connection, _LOG, logged)

    def _add_with_attachments(self, transition: Transition, head: Head[bytes]) -> Conflict | None:
        """Write follow-ups and records at once, or return the first conflict."""
        if transition.event is Event.REDRIVEN and (key := head.key):
            held = dedupe.find_holder(self._connection, key, self._now)
            if held and held.job_id != head.job_id:
                return Conflict(by=KeyKind.JOB)
        for write in transition.records:
            current = records.read_current(self._connection, write.namespace, write.key, self._now)
            if not write_is_allowed(write, current):
                return Conflict(by=f"{write.namespace}/{write.key}")
        insertion = Insertion(self._connection, self._now)
        for result in insertion.add_all(transition.follow_ups):
            if isinstance(result, Conflict):
                return result
        self._add_rows(transition, head)
        if transition.follow_ups:
            self._write_log()  # what follows from an end is logged after it
            insertion.write(self._tally)
        records.write_all(self._connection, transition.records, self._now)
        return None

    def _ready_row(self, requeued: Requeued[bytes]) -> ReadyRow:
        transition, head, version = requeued
        return ReadyRow(
            later_micros(self._now, transition.delay),
            head.job_id,
            head.lane,
            rank(transition.priority, transition.crashes),
            group_number(head.tenant, head.group),
            head.tenant,
            version,
            transition.attempt,
            transition.crashes,
            transition.snoozes,
            head.fence,
        )

"""insert: jobs into job and ready, their keys into dedupe, one multi-row write per table."""

import sqlite3
from collections.abc import Sequence

from gantline.contract.clock import later_micros, to_micros
from gantline.contract.flow import group_number
from gantline.contract.job_id import uuid_from_bytes
from gantline.contract.results import Applied, Conflict, Duplicate, InsertResult
from gantline.contract.status import JobStatus
from gantline.contract.submission import DedupeKey, KeyKind, NewJob
from gantline.stores.sqlite import dedupe
from gantline.stores.sqlite.counts import Tally
from gantline.stores.sqlite.events import LogState, log_submitted
from gantline.stores.sqlite.ready import ReadyRow, enqueue, let_expire
from gantline.stores.sqlite.rows import Row, execute_in, insert_rows, job_to_row

_KNOWN = """
SELECT job.id, job.tenant, lane.job_type, job.fingerprint
FROM gantline_job AS job JOIN gantline_lane AS lane ON lane.id = job.lane
WHERE job.id IN {}
"""
_JOB = f"INSERT INTO gantline_job VALUES ({', '.join('?' * 20)})"  # noqa: S608  # constants only
_ADD_LANE = """
INSERT INTO gantline_lane (queue, job_type, limited)
SELECT :queue, :kind, EXISTS (
    SELECT 1 FROM gantline_lane WHERE job_type = :kind AND limited = 1)
RETURNING id
"""
_LANE = "SELECT id FROM gantline_lane WHERE queue = ? AND job_type = ?"

Identity = tuple[str, str, bytes]


class Lanes:
    """The numbers of lanes, each read once. New lanes are added."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._known: dict[tuple[str, str], int] = {}

    def __getitem__(self, name: tuple[str, str]) -> int:
        lane = self._known.get(name)
        if lane is None:
            row = self._connection.execute(_LANE, name).fetchone()
            if row is None:
                new = {"queue": name[0], "kind": name[1]}
                row = self._connection.execute(_ADD_LANE, new).fetchone()
            lane = self._known[name] = int(row[0])
        return lane


class Insertion:
    """One call of insert, or the follow-ups of one transition: first checked, then written."""

    def __init__(self, connection: sqlite3.Connection, now: int) -> None:
        self._connection = connection
        self._now = now
        self._lanes = Lanes(connection)
        self._known: dict[bytes, Identity] = {}
        self._taken: dict[tuple[str, str, str, str], dedupe.HeldKey] = {}
        self._accepted: list[NewJob] = []
        self._to_take: list[tuple[DedupeKey, bytes]] = []

    def add_all(self, jobs: Sequence[NewJob]) -> list[InsertResult]:
        ids = [new.job.job_id.bytes for new in jobs]
        ids += [new.job.external_id.bytes for new in jobs if new.job.external_id]
        for job_id, tenant, kind, fingerprint in execute_in(self._connection, _KNOWN, ids):
            self._known[job_id] = (tenant, kind, fingerprint)
        return [self._add(new) for new in jobs]

    def _add(self, new: NewJob) -> InsertResult:
        job, job_id, keys = new.job, new.job.job_id.bytes, new.keys
        identity = (job.tenant_id, job.job_type, new.fingerprint)
        if known := self._known.get(job_id):
            return Duplicate(job.job_id) if known == identity else Conflict()
        if (external_id := job.external_id) and (known := self._known.get(external_id.bytes)):
            if known == identity:
                return Duplicate(external_id, by=KeyKind.ID)
            if known[0] == job.tenant_id:
                return Conflict(by=KeyKind.ID)
        for key in keys:
            if held := self._holder(key):
                if held.fingerprint != key.fingerprint:
                    return Conflict(by=key.kind)
                return Duplicate(uuid_from_bytes(held.job_id), by=key.kind)
        self._known[job_id] = identity
        for key in keys:
            self._taken[key.identity] = dedupe.HeldKey(job_id, key.fingerprint)
            self._to_take.append((key, job_id))
        self._accepted.append(new)
        return Applied(version=1)

    def _holder(self, key: DedupeKey) -> dedupe.HeldKey | None:
        return self._taken.get(key.identity) or dedupe.find_holder(self._connection, key, self._now)

    def write(self, tally: Tally) -> None:
        """Write all accepted jobs."""
        jobs: list[Row] = []
        queued: list[ReadyRow] = []
        logged: list[LogState] = []
        for new in self._accepted:
            job = new.job
            lane = self._lanes[job.queue, job.job_type]
            run_at, scheduled_at = self._times(new)
            jobs.append(job_to_row(new, lane, scheduled_at))
            queued.append(
                ReadyRow(
                    run_at,
                    job.job_id.bytes,
                    lane,
                    job.priority,
                    group_number(job.tenant_id, job.group),
                    job.tenant_id,
                    version=1,
                    attempt=job.attempts_used,
                    crashes=0,
                    snoozes=0,
                    fence=0,
                )
            )
            tally.move(job.tenant_id, lane, None, JobStatus.QUEUED)
            if new.logged:
                logged.append(_log_state(queued[-1], to_micros(job.created_at)))
        insert_rows(self._connection, _JOB, jobs)
        enqueue(self._connection, queued, self._now)
        let_expire(self._connection, [new.job for new in self._accepted])
        dedupe.take(self._connection, self._to_take, self._now)
        log_submitted(self._connection, logged, self._now)

    def _times(self, new: NewJob) -> tuple[int, int | None]:
        """When the job is due, never in the past; and its `scheduled_at`, if any."""
        if new.job.scheduled_at is not None:
            scheduled = to_micros(new.job.scheduled_at)
            return max(self._now, scheduled), scheduled
        run_at = later_micros(self._now, new.delay)
        return run_at, run_at if new.delay else None


def _log_state(row: ReadyRow, created_at: int) -> LogState:
    return LogState(
        row.job_id,
        row.version,
        row.job_id,
        row.tenant,
        row.lane,
        row.attempt,
        row.crashes,
        row.snoozes,
        row.fence,
        row.priority,
        created_at,
    )


def insert(connection: sqlite3.Connection, jobs: Sequence[NewJob], now: int) -> list[InsertResult]:
    insertion = Insertion(connection, now)
    results = insertion.add_all(jobs)
    tally = Tally()
    insertion.write(tally)
    tally.write(connection)
    return results

"""claim: due jobs from ready to lease."""

import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from gantline.contract.clock import from_micros, later_micros, span_micros, to_micros
from gantline.contract.errors import SessionNotRegistered
from gantline.contract.job_id import uuid_from_bytes
from gantline.contract.query import LaneRequest
from gantline.contract.records import SESSIONS
from gantline.contract.snapshot import Run
from gantline.contract.status import JobStatus
from gantline.stores.sql.rows import JOB_COLUMNS, JOB_WIDTH, RUN_COLUMNS, job_from_row, run_from_row
from gantline.stores.sqlite import ready
from gantline.stores.sqlite.counts import Tally
from gantline.stores.sqlite.due import take_due
from gantline.stores.sqlite.events import LogState, log_started
from gantline.stores.sqlite.limits import Limits, mark_limited
from gantline.stores.sqlite.records import read_current
from gantline.stores.sqlite.rows import Row, execute_in, insert_rows
from gantline.stores.sqlite.turns import give_back_places

# A claim skips rows of jobs that were removed by hand; so often at most, as other writers wait.
_ROUNDS: Final = 100

RUNS = f"""
SELECT {JOB_COLUMNS}, lane.queue, lane.job_type, {RUN_COLUMNS}
FROM gantline_lease AS lease
JOIN gantline_job AS job ON job.id = lease.job_id
JOIN gantline_lane AS lane ON lane.id = job.lane
"""  # noqa: S608  # constants only

_LEASE = """
INSERT INTO gantline_lease (
    job_id, token, claim_id, session, lane, priority, tenant, version, attempt, crashes, snoozes,
    fence, started_at, until, length, grp, limited)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_JOBS = f"""
SELECT {JOB_COLUMNS}, lane.queue, lane.job_type, lane.limited
FROM gantline_job AS job JOIN gantline_lane AS lane ON lane.id = job.lane WHERE job.id IN {{}}
"""  # noqa: S608  # constants only
_KIND: Final = JOB_WIDTH + 1
_LIMITED: Final = JOB_WIDTH + 2


def claim(
    connection: sqlite3.Connection,
    session: str,
    claim_id: UUID,
    requests: Sequence[LaneRequest],
    *,
    lease: timedelta,
    now: int,
    tokens: Callable[[], UUID],
) -> list[Run]:
    if known := find_runs_of_claim(connection, claim_id):
        return known
    if read_current(connection, SESSIONS, session, now) is None:
        raise SessionNotRegistered(session)
    taken = [(row, job, tokens()) for row, job in _take(connection, requests, now)]
    logged = {(one.queue, job_type) for one in requests for job_type in one.logged}
    until, length = later_micros(now, lease), span_micros(lease)
    claimed_by = claim_id.bytes
    insert_rows(
        connection,
        _LEASE,
        [
            (
                row.job_id,
                token.bytes,
                claimed_by,
                session,
                row.lane,
                row.priority,
                row.tenant,
                row.version + 1,
                row.attempt + 1,
                row.crashes,
                row.snoozes,
                row.fence + 1,
                now,
                until,
                length,
                row.group,
                job[_LIMITED],
            )
            for row, job, token in taken
        ],
    )
    started_at, lease_until = from_micros(now), from_micros(until)
    runs = [
        _make_run(job, row, token, session, started_at, lease_until, (now - row.run_at) / 1e6)
        for row, job, token in taken
    ]
    if logged:
        started = zip(runs, (row for row, _, _ in taken), strict=True)
        logged_states = [_log_state(run, row) for run, row in started if _lane_of(run) in logged]
        log_started(connection, logged_states, now)
    return runs


def _take(
    connection: sqlite3.Connection, requests: Sequence[LaneRequest], now: int
) -> list[tuple[ready.ReadyRow, Row]]:
    """Remove due jobs from the queue, and read them."""
    tally = Tally()
    mark_limited(connection, requests)
    for _ in range(_ROUNDS):
        limits = Limits(connection, now)
        rows = [row for request in requests for row in take_due(connection, request, limits, now)]
        jobs = {row[0]: row for row in execute_in(connection, _JOBS, [row.job_id for row in rows])}
        for row in rows:
            # A job that was removed by hand has left its row in the queue.
            to_status = JobStatus.RUNNING if row.job_id in jobs else None
            tally.move(row.tenant, row.lane, JobStatus.QUEUED, to_status)
        if len(jobs) < len(rows):  # so they hold no place
            give_back_places(connection, [row.group for row in rows if row.job_id not in jobs])
        if jobs or not rows:
            break
    limits.pass_gates(job[_KIND] for job in jobs.values())
    tally.write(connection)
    return [(row, jobs[row.job_id]) for row in rows if row.job_id in jobs]


def _lane_of(run: Run) -> tuple[str, str]:
    return run.job.queue, run.job.job_type


def _log_state(run: Run, row: ready.ReadyRow) -> LogState:
    return LogState(
        row.job_id,
        run.version,
        run.token.bytes,
        row.tenant,
        row.lane,
        run.attempt,
        run.crashes,
        run.snoozes,
        run.fence,
        run.priority,
        to_micros(run.job.created_at),
        run.session,
        to_micros(run.started_at),
    )


def find_runs_of_claim(connection: sqlite3.Connection, claim_id: UUID) -> list[Run]:
    """Read the runs that an earlier call with this claim id started and that are still current."""
    return [
        read_run(row)
        for row in connection.execute(f"{RUNS} WHERE lease.claim_id = ?", (claim_id.bytes,))
    ]


def read_run(row: Row) -> Run:
    """Read a row of RUNS."""
    job = job_from_row(row, row[JOB_WIDTH : JOB_WIDTH + 2], uuid_from_bytes)
    return run_from_row(row[JOB_WIDTH + 2 :], job, uuid_from_bytes)


def _make_run(
    job: Row,
    row: ready.ReadyRow,
    token: UUID,
    session: str,
    started_at: datetime,
    lease_until: datetime,
    waited_seconds: float,
) -> Run:
    return Run(
        job=job_from_row(job, job[JOB_WIDTH:], uuid_from_bytes),
        token=token,
        fence=row.fence + 1,
        session=session,
        version=row.version + 1,
        attempt=row.attempt + 1,
        crashes=row.crashes,
        snoozes=row.snoozes,
        priority=row.priority,
        started_at=started_at,
        lease_until=lease_until,
        waited_seconds=waited_seconds,
    )

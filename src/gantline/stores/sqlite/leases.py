"""Leases: renewed, ended, expired; and the progress of a run."""

import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from gantline.contract.clock import later_micros, span_micros
from gantline.contract.results import Applied, NotFound, ProgressResult, Renewal, Stale
from gantline.contract.snapshot import Progress, Run, RunRef
from gantline.contract.status import JobStatus
from gantline.stores.sqlite import turns
from gantline.stores.sqlite.claim import RUNS, read_run
from gantline.stores.sqlite.counts import Tally
from gantline.stores.sqlite.events import LogState, log_progressed
from gantline.stores.sqlite.rows import execute_in

_HELD = "SELECT job_id, token, session, cancel_requested FROM gantline_lease WHERE job_id IN {}"
_EXTEND = "UPDATE gantline_lease SET until = ?, length = ? WHERE job_id = ? AND token = ?"
_END_SESSION = "UPDATE gantline_lease SET until = ? WHERE session = ?"
_IS_TOO_LONG = "until - length > :now"
_HAS_NO_JOB = "until <= :now AND NOT EXISTS (SELECT 1 FROM gantline_job WHERE id = job_id)"
# A full group has a lease, so there are never more of them than runs.
_FREED = """
SELECT DISTINCT grp FROM gantline_turn AS turn
WHERE state = 3 AND NOT EXISTS (SELECT 1 FROM gantline_lease AS lease WHERE lease.grp = turn.grp)
"""
_TO_REPAIR = f"""
SELECT 1 WHERE EXISTS (SELECT 1 FROM gantline_lease WHERE {_IS_TOO_LONG} OR {_HAS_NO_JOB})
    OR EXISTS ({_FREED})
"""  # noqa: S608  # constants only
_CUT = f"""
UPDATE gantline_lease SET until = :now + length WHERE {_IS_TOO_LONG}
"""  # noqa: S608  # constants only
_CLEAR = f"""
DELETE FROM gantline_lease WHERE {_HAS_NO_JOB} RETURNING tenant, lane, grp
"""  # noqa: S608  # constants only
_PROGRESS = """
UPDATE gantline_lease SET percent = ?, phase = ?, version = version + 1
WHERE job_id = ? AND token = ? RETURNING version
"""
_LOG_STATE = """
SELECT lease.job_id, lease.version, lease.token, lease.tenant, lease.lane, lease.attempt,
       lease.crashes, lease.snoozes, lease.fence, lease.priority, job.created_at, lease.session,
       lease.started_at, lease.percent, lease.phase
FROM gantline_lease AS lease JOIN gantline_job AS job ON job.id = lease.job_id
WHERE lease.job_id = ? AND lease.token = ?
"""


def renew(
    connection: sqlite3.Connection,
    session: str,
    runs: Sequence[RunRef],
    *,
    lease: timedelta,
    now: int,
) -> Renewal:
    until, length = later_micros(now, lease), span_micros(lease)
    held = {
        row[0]: row[1:] for row in execute_in(connection, _HELD, [r.job_id.bytes for r in runs])
    }
    kept, lost, stopping = [], set(), set()
    for run in runs:
        token, owner, cancel_requested = held.get(run.job_id.bytes, (None, None, 0))
        if token != run.token.bytes or owner != session:
            lost.add(run.token)
            continue
        kept.append((until, length, run.job_id.bytes, token))
        if cancel_requested:
            stopping.add(run.token)
    connection.executemany(_EXTEND, kept)
    return Renewal(frozenset(lost), frozenset(stopping))


def expire_session(connection: sqlite3.Connection, session: str, now: int) -> int:
    return connection.execute(_END_SESSION, (now, session)).rowcount


def needs_repair(connection: sqlite3.Connection, now: int) -> bool:
    """Whether a lease lasts too long, or the other half of something was removed by hand."""
    return connection.execute(_TO_REPAIR, {"now": now}).fetchone() is not None


def repair(connection: sqlite3.Connection, now: int) -> None:
    connection.execute(_CUT, {"now": now})
    tally = Tally()
    for tenant, lane, _ in connection.execute(_CLEAR, {"now": now}).fetchall():
        tally.move(tenant, lane, JobStatus.RUNNING, None)
    tally.write(connection)
    freed = connection.execute(_FREED).fetchall()
    turns.give_back_places(connection, [group for (group,) in freed])


def progress(
    connection: sqlite3.Connection, updates: Sequence[Progress], now: int
) -> list[ProgressResult]:
    return [
        _progress_logged(connection, update, now)
        if update.logged
        else _progress(connection, update)
        for update in updates
    ]


def _progress_logged(connection: sqlite3.Connection, update: Progress, now: int) -> ProgressResult:
    before = _read_log_state(connection, update.run)
    result = _progress(connection, update)
    if before and (before.percent, before.phase) != (update.percent, update.phase):
        standing = before._replace(
            version=before.version + 1, percent=update.percent, phase=update.phase
        )
        log_progressed(connection, standing, now)
    return result


def _read_log_state(connection: sqlite3.Connection, run: RunRef) -> LogState | None:
    row = connection.execute(_LOG_STATE, (run.job_id.bytes, run.token.bytes)).fetchone()
    return LogState(*row) if row else None


def _progress(connection: sqlite3.Connection, update: Progress) -> ProgressResult:
    run = update.run
    values = (update.percent, update.phase, run.job_id.bytes, run.token.bytes)
    if row := connection.execute(_PROGRESS, values).fetchone():
        return Applied(row[0])
    known = connection.execute(
        "SELECT 1 FROM gantline_job WHERE id = ?", (run.job_id.bytes,)
    ).fetchone()
    return Stale() if known else NotFound()


def expired(
    connection: sqlite3.Connection, *, limit: int, after: UUID | None, now: int
) -> list[Run]:
    rows = connection.execute(
        f"{RUNS} WHERE lease.until <= ? AND lease.job_id > ? ORDER BY lease.job_id LIMIT ?",
        (now, after.bytes if after else b"", limit),
    )
    return [read_run(row) for row in rows]

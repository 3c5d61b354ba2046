"""renew and progress: the small writes about a run that is under way."""

import sqlite3
from collections.abc import Sequence

from windlass.contract.results import Applied, NotFound, ProgressResult, Renewal, Stale
from windlass.contract.snapshot import Progress, RunRef
from windlass.stores.sqlite.on_request import Standing, log_progressed
from windlass.stores.sqlite.rows import execute_in

_HELD = "SELECT job_id, token, session, cancel_requested FROM windlass_lease WHERE job_id IN {}"
_EXTEND = "UPDATE windlass_lease SET until = ? WHERE job_id = ? AND token = ?"
_PROGRESS = """
UPDATE windlass_lease SET percent = ?, phase = ?, version = version + 1
WHERE job_id = ? AND token = ? RETURNING version
"""
_STANDING = """
SELECT lease.job_id, lease.version, lease.token, lease.tenant, lease.lane, lease.attempt,
       lease.crashes, lease.snoozes, lease.fence, lease.priority, job.created_at, lease.session,
       lease.started_at, lease.percent, lease.phase
FROM windlass_lease AS lease JOIN windlass_job AS job ON job.id = lease.job_id
WHERE lease.job_id = ? AND lease.token = ?
"""


def renew(
    connection: sqlite3.Connection, session: str, runs: Sequence[RunRef], *, until: int
) -> Renewal:
    held = {
        row[0]: row[1:] for row in execute_in(connection, _HELD, [r.job_id.bytes for r in runs])
    }
    kept, lost, stopping = [], set(), set()
    for run in runs:
        token, owner, cancel_requested = held.get(run.job_id.bytes, (None, None, 0))
        if token != run.token.bytes or owner != session:
            lost.add(run.token)
            continue
        kept.append((until, run.job_id.bytes, token))
        if cancel_requested:
            stopping.add(run.token)
    connection.executemany(_EXTEND, kept)
    return Renewal(frozenset(lost), frozenset(stopping))


def progress(
    connection: sqlite3.Connection, updates: Sequence[Progress], now: int
) -> list[ProgressResult]:
    return [
        _logged(connection, update, now) if update.logged else _progress(connection, update)
        for update in updates
    ]


def _logged(connection: sqlite3.Connection, update: Progress, now: int) -> ProgressResult:
    before = _standing(connection, update.run)
    answer = _progress(connection, update)
    if before and (before.percent, before.phase) != (update.percent, update.phase):
        standing = before._replace(
            version=before.version + 1, percent=update.percent, phase=update.phase
        )
        log_progressed(connection, standing, now)
    return answer


def _standing(connection: sqlite3.Connection, run: RunRef) -> Standing | None:
    row = connection.execute(_STANDING, (run.job_id.bytes, run.token.bytes)).fetchone()
    return Standing(*row) if row else None


def _progress(connection: sqlite3.Connection, update: Progress) -> ProgressResult:
    run = update.run
    place = (update.percent, update.phase, run.job_id.bytes, run.token.bytes)
    if row := connection.execute(_PROGRESS, place).fetchone():
        return Applied(row[0])
    known = connection.execute(
        "SELECT 1 FROM windlass_job WHERE id = ?", (run.job_id.bytes,)
    ).fetchone()
    return Stale() if known else NotFound()

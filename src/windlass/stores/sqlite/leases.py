"""renew and progress: the small writes about a run that is under way."""

import sqlite3
from collections.abc import Sequence

from windlass.contract.results import Applied, NotFound, ProgressResult, Renewal, Stale
from windlass.contract.snapshot import Progress, RunRef
from windlass.stores.sqlite.rows import execute_in

_HELD = "SELECT job_id, token, session, cancel_requested FROM windlass_lease WHERE job_id IN {}"
_EXTEND = "UPDATE windlass_lease SET until = ? WHERE job_id = ? AND token = ?"
_PROGRESS = """
UPDATE windlass_lease SET percent = ?, phase = ?, version = version + 1
WHERE job_id = ? AND token = ? RETURNING version
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


def progress(connection: sqlite3.Connection, updates: Sequence[Progress]) -> list[ProgressResult]:
    return [_progress(connection, update) for update in updates]


def _progress(connection: sqlite3.Connection, update: Progress) -> ProgressResult:
    run = update.run
    place = (update.percent, update.phase, run.job_id.bytes, run.token.bytes)
    if row := connection.execute(_PROGRESS, place).fetchone():
        return Applied(row[0])
    known = connection.execute(
        "SELECT 1 FROM windlass_job WHERE id = ?", (run.job_id.bytes,)
    ).fetchone()
    return Stale() if known else NotFound()

"""renew and progress: the small writes about a run that is under way."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

from windlass.contract.results import Applied, NotFound, ProgressResult, Renewal, Stale
from windlass.contract.snapshot import Progress, RunRef
from windlass.stores.postgres.arrays import Uuids
from windlass.stores.postgres.sql import Sql

# Whoever has the row locked is about to end the run (or to ask it to stop): it is held, and waiting
# for that would make the other leases late.
_RENEW = """
WITH wanted AS (
    SELECT * FROM unnest(%s, %s) AS wanted (job_id, token)
), held AS (
    SELECT lease.job_id, lease.token, lease.cancel_requested
    FROM wanted CROSS JOIN LATERAL (
        SELECT * FROM windlass.lease
        WHERE lease.job_id = wanted.job_id AND lease.token = wanted.token AND lease.session = %s
        OFFSET 0
    ) AS lease
), free AS (
    SELECT lease.job_id FROM windlass.lease
    WHERE lease.job_id = ANY (ARRAY(SELECT job_id FROM held)) FOR UPDATE SKIP LOCKED
), renewed AS (
    UPDATE windlass.lease SET until = windlass.later(coalesce(%s, windlass.micros()), %s)
    FROM held
    WHERE lease.job_id = held.job_id AND lease.token = held.token
      AND lease.job_id = ANY (ARRAY(SELECT job_id FROM free))
)
SELECT held.token, held.cancel_requested,
       held.job_id = ANY (ARRAY(SELECT job_id FROM free)) AS was_free
FROM held
"""
# How long to wait for a lock that may be a reaper's: if it is, the run is lost and we want to know.
LOCK_WAITS_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2)
_PROGRESS = """
UPDATE windlass.lease SET percent = %s, phase = %s, version = version + 1
WHERE job_id = %s AND token = %s RETURNING version
"""
_LOGGED_PROGRESS = """
WITH before AS (
    SELECT percent, phase FROM windlass.lease
    WHERE job_id = %(job)s AND token = %(token)s FOR UPDATE
), moved AS (
    UPDATE windlass.lease
    SET percent = %(percent)s, phase = %(phase)s, version = version + 1
    FROM before WHERE job_id = %(job)s AND token = %(token)s
    RETURNING lease.*, (before.percent, before.phase) <> (lease.percent, lease.phase) AS is_new
), logged AS (
    INSERT INTO windlass.log (
        version, lane, fence, at, created_at, started_at, event, status, attempt, crashes, snoozes,
        priority, is_end, percent, job_id, change_id, tenant, reason, session, actor, phase)
    SELECT version, lane, fence, coalesce(%(now)s, windlass.micros()), created_at, started_at,
           'progressed', 'Running', attempt, crashes, snoozes, priority, false, percent, job_id,
           token, tenant, 'Progressed', session, '', phase
    FROM moved WHERE is_new
)
SELECT version FROM moved
"""


async def renew(
    sql: Sql, session: str, runs: Sequence[RunRef], *, now: int | None, lease_micros: int
) -> Renewal:
    held: dict[UUID, bool] = {}
    rest = sorted(runs, key=lambda run: run.job_id)
    for wait in (0.0, *LOCK_WAITS_SECONDS):
        if wait:
            await asyncio.sleep(wait)
        ids, tokens = Uuids([run.job_id for run in rest]), Uuids([run.token for run in rest])
        rows = await sql.rows(_RENEW, ids, tokens, session, now, lease_micros)
        found = {token: is_asked for token, is_asked, _ in rows}
        for run in rest:
            held.pop(run.token, None)
        held |= found
        locked = {token for token, _, was_free in rows if not was_free}
        rest = [run for run in rest if run.token in locked]
        if not rest:
            break
    return Renewal(
        lost=frozenset(run.token for run in runs if run.token not in held),
        cancel_requested=frozenset(token for token, is_asked in held.items() if is_asked),
    )


async def progress(
    sql: Sql, updates: Sequence[Progress], *, now: int | None
) -> list[ProgressResult]:
    return [await _progress(sql, update, now) for update in updates]


async def _progress(sql: Sql, update: Progress, now: int | None) -> ProgressResult:
    run = update.run
    if update.logged:
        values: dict[str, object] = {"job": run.job_id, "token": run.token, "now": now}
        values |= {"percent": update.percent, "phase": update.phase}
        rows = await sql.named(_LOGGED_PROGRESS, values)
    else:
        rows = await sql.rows(_PROGRESS, update.percent, update.phase, run.job_id, run.token)
    if rows:
        return Applied(rows[0][0])
    known = await sql.row("SELECT 1 FROM windlass.job WHERE id = %s", run.job_id)
    return Stale() if known else NotFound()

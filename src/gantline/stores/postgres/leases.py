"""Leases: renewed, ended, expired; and the progress of a run."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

from gantline.contract.results import Applied, NotFound, ProgressResult, Renewal, Stale
from gantline.contract.snapshot import Progress, Run, RunRef
from gantline.stores.postgres.arrays import Uuids
from gantline.stores.postgres.sql import Row, Sql, join_one, left_join_one
from gantline.stores.sql.rows import JOB_COLUMNS, RUN_COLUMNS, RUN_WIDTH, job_from_row, run_from_row

# A locked row belongs to a run that is about to end or to be cancelled: it counts as held. To wait
# for the lock would delay the other leases.
_RENEW = """
WITH given AS (
    SELECT * FROM unnest(%(jobs)s, %(tokens)s) AS given (job_id, token)
), held AS (
    SELECT lease.job_id, lease.token, lease.cancel_requested
    FROM given CROSS JOIN LATERAL (
        SELECT * FROM gantline.lease
        WHERE lease.job_id = given.job_id AND lease.token = given.token
          AND lease.session = %(session)s
        OFFSET 0
    ) AS lease
), free AS (
    SELECT lease.job_id FROM gantline.lease
    WHERE lease.job_id = ANY (ARRAY(SELECT job_id FROM held)) FOR UPDATE SKIP LOCKED
), renewed AS (
    UPDATE gantline.lease
    SET until = gantline.later(coalesce(%(now)s, gantline.micros()), %(length)s),
        length = %(length)s
    FROM held
    WHERE lease.job_id = held.job_id AND lease.token = held.token
      AND lease.job_id = ANY (ARRAY(SELECT job_id FROM free))
)
SELECT held.token, held.cancel_requested,
       held.job_id = ANY (ARRAY(SELECT job_id FROM free)) AS was_free
FROM held
"""
# How long to wait for a lock that the reaper may hold: if so, the run is lost, and we must know.
LOCK_WAITS_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2)
# A locked row belongs to a run that is being renewed or ended: the next attempt, or its end, takes
# care of it.
_EXPIRE_SESSION = """
WITH free AS (
    SELECT job_id FROM gantline.lease WHERE session = %(session)s FOR UPDATE SKIP LOCKED
), ended AS (
    UPDATE gantline.lease SET until = coalesce(%(now)s, gantline.micros())
    WHERE job_id = ANY (ARRAY(SELECT job_id FROM free))
)
SELECT lease.job_id = ANY (ARRAY(SELECT job_id FROM free)) FROM gantline.lease
WHERE lease.session = %(session)s
"""
# A lease that began later than now was given before the clock was set back.
_TOO_LONG = """
SELECT job_id FROM gantline.lease WHERE until - length > coalesce(%s, gantline.micros())
"""
_CUT = """
UPDATE gantline.lease SET until = coalesce(%(now)s, gantline.micros()) + length
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM gantline.lease
    WHERE job_id = ANY (%(jobs)s) AND until - length > coalesce(%(now)s, gantline.micros())
    FOR UPDATE SKIP LOCKED))
"""
_EXPIRED = f"""
SELECT {RUN_COLUMNS}, {JOB_COLUMNS}, lane.queue, lane.job_type, lease.job_id
FROM gantline.lease
{left_join_one("job", "id", "lease.job_id")}
{join_one("lane", "id", "lease.lane")}
WHERE lease.until <= coalesce(%s, gantline.micros()) AND lease.job_id > %s
ORDER BY lease.job_id LIMIT %s
"""  # noqa: S608  # constants only
_PROGRESS = """
UPDATE gantline.lease SET percent = %s, phase = %s, version = version + 1
WHERE job_id = %s AND token = %s RETURNING version
"""
_LOGGED_PROGRESS = """
WITH before AS (
    SELECT percent, phase FROM gantline.lease
    WHERE job_id = %(job)s AND token = %(token)s FOR UPDATE
), moved AS (
    UPDATE gantline.lease
    SET percent = %(percent)s, phase = %(phase)s, version = version + 1
    FROM before WHERE job_id = %(job)s AND token = %(token)s
    RETURNING lease.*, (before.percent, before.phase) <> (lease.percent, lease.phase) AS is_new
), logged AS (
    INSERT INTO gantline.log (
        version, lane, fence, at, created_at, started_at, event, status, attempt, crashes, snoozes,
        priority, is_end, percent, job_id, change_id, tenant, reason, session, actor, phase)
    SELECT version, lane, fence, coalesce(%(now)s, gantline.micros()), created_at, started_at,
           'progressed', 'Running', attempt, crashes, snoozes, priority, false, percent, job_id,
           token, tenant, 'Progressed', session, '', phase
    FROM moved WHERE is_new
)
SELECT version FROM moved
"""


# The key of a removed job is only in the table of keys.
FORGET = """
WITH gone AS (
    DELETE FROM gantline.{0}
    WHERE {1} AND NOT EXISTS (SELECT FROM gantline.job WHERE job.id = {0}.job_id OFFSET 0)
    RETURNING job_id, lane, tenant, keyed
), counted AS (
    INSERT INTO gantline.tally_delta (lane, live, completed, failed, poisoned, cancelled, tenant)
    SELECT lane, -count(*), 0, 0, 0, 0, tenant FROM gone GROUP BY tenant, lane
), freed AS (
    DELETE FROM gantline.dedupe AS held USING gone, gantline.lane
    WHERE gone.keyed AND lane.id = gone.lane AND held.tenant = gone.tenant
      AND held.scope = lane.job_type AND held.kind = 'job' AND held.job_id = gone.job_id
), freed_ids AS (
    DELETE FROM gantline.dedupe AS held USING gone
    WHERE held.tenant = gone.tenant AND held.scope = '' AND held.kind = 'id'
      AND held.job_id = gone.job_id
)
DELETE FROM gantline.log WHERE job_id = ANY (ARRAY(SELECT job_id FROM gone))
"""
_FORGET_LEASES = FORGET.format("lease", "job_id = ANY (%s)")


async def renew(
    sql: Sql, session: str, runs: Sequence[RunRef], *, now: int | None, lease_micros: int
) -> Renewal:
    held: dict[UUID, bool] = {}
    rest = sorted(runs, key=lambda run: run.job_id)
    for wait in (0.0, *LOCK_WAITS_SECONDS):
        if wait:
            await asyncio.sleep(wait)
        values: dict[str, object] = {"session": session, "now": now, "length": lease_micros}
        values["jobs"] = Uuids([run.job_id for run in rest])
        values["tokens"] = Uuids([run.token for run in rest])
        rows = await sql.named(_RENEW, values)
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


async def expire_session(sql: Sql, session: str, now: int | None) -> int:
    found: list[Row] = []
    for wait in (0.0, *LOCK_WAITS_SECONDS):
        if wait:
            await asyncio.sleep(wait)
        found = await sql.named(_EXPIRE_SESSION, {"session": session, "now": now})
        if all(was_free for (was_free,) in found):
            break
    return len(found)


async def expired(sql: Sql, *, limit: int, after: UUID | None, now: int | None) -> list[Run]:
    """Read expired runs. Removes what is left of jobs that were removed by hand."""
    if after is None:
        too_long = await sql.rows(_TOO_LONG, now)
        if too_long:
            jobs = Uuids([job_id for (job_id,) in too_long])
            await sql.run_with(_CUT, {"now": now, "jobs": jobs})
    while True:
        rows = await sql.rows(_EXPIRED, now, after or UUID(int=0), limit)
        removed = [row[-1] for row in rows if row[RUN_WIDTH] is None]
        if not removed:
            return [run_from_row(row, job_from_row(row[RUN_WIDTH:-3], row[-3:-1])) for row in rows]
        await forget(sql, removed)


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
    known = await sql.row("SELECT 1 FROM gantline.job WHERE id = %s", run.job_id)
    return Stale() if known else NotFound()


async def forget(sql: Sql, job_ids: Sequence[UUID]) -> None:
    """Remove the leases of jobs whose rows were removed by hand, and all that is left of them."""
    await sql.run(_FORGET_LEASES, Uuids(job_ids))

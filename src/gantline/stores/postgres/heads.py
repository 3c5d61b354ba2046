"""Heads: where jobs stand, read under a lock that keeps them there until the transaction ends."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from gantline.contract.errors import StoreCorrupt
from gantline.contract.status import JobStatus
from gantline.stores.postgres.arrays import Uuids
from gantline.stores.postgres.sql import Sql, looked_up
from gantline.stores.sql.head import Head

_HEAD = (
    "{0}.version, {0}.fence, {0}.attempt, {0}.crashes, {0}.snoozes, {0}.priority, {0}.lane, "
    "{0}.tenant, {0}.created_at, job.idempotency_key, job.fingerprint, lane.job_type"
)
_RUNNING = f"""
SELECT lease.job_id, 'Running', NULL, {_HEAD.format("lease")},
       lease.token, lease.session, lease.started_at, lease.until, lease.cancel_requested
FROM gantline.lease
{looked_up("job", "id", "lease.job_id")}
{looked_up("lane", "id", "lease.lane")}
WHERE lease.job_id = ANY (%s) ORDER BY lease.job_id FOR UPDATE OF lease
"""  # noqa: S608  # constants only
_QUEUED = f"""
SELECT ready.job_id, 'Queued', NULL, {_HEAD.format("ready")}
FROM gantline.ready
{looked_up("job", "id", "ready.job_id")}
{looked_up("lane", "id", "ready.lane")}
WHERE ready.job_id = ANY (%s) ORDER BY ready.job_id FOR UPDATE OF ready
"""  # noqa: S608  # constants only
_ENDED = f"""
SELECT log.job_id, log.status::text, log.id, {_HEAD.format("log")}
FROM gantline.log
{looked_up("job", "id", "log.job_id")}
{looked_up("lane", "id", "log.lane")}
WHERE log.is_end AND log.job_id = ANY (%s) ORDER BY log.job_id FOR UPDATE OF log
"""  # noqa: S608  # constants only
_KNOWN = "SELECT id FROM gantline.job WHERE id = ANY (%s)"
# A job may move on between two looks; it cannot do so this often unless it is nowhere.
_MOST_LOOKS: Final = 20


async def heads(sql: Sql, job_ids: Sequence[UUID]) -> dict[UUID, Head[UUID]]:
    """Find and lock where jobs stand; one that is not among the answers does not exist."""
    found: dict[UUID, Head[UUID]] = {}
    missing = sorted(set(job_ids))
    for _ in range(_MOST_LOOKS):
        for statement in (_RUNNING, _QUEUED, _ENDED):
            for row in await sql.rows(statement, Uuids(missing)) if missing else ():
                found[row[0]] = Head(JobStatus(row[1]), row[0], *row[2:])
            missing = [job_id for job_id in missing if job_id not in found]
        if not missing:
            return found
        missing = sorted(row[0] for row in await sql.rows(_KNOWN, Uuids(missing)))
        if not missing:
            return found
    raise StoreCorrupt(
        f"Job {missing[0]} is neither queued, running nor ended.",
        next_step="Restore a backup, or delete the job's row.",
    )

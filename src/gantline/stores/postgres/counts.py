"""Counts: how many jobs are in which lane and status.

Most are sums that are kept with every move. Only the jobs that are not due yet must be counted:
0.1 s for a million; and all groups looked at.
"""

from collections import Counter, defaultdict

from gantline.contract.clock import from_micros
from gantline.contract.flow import group_number
from gantline.contract.query import DeadCount, LaneCounts
from gantline.contract.status import JobStatus
from gantline.stores.postgres.sql import Sql
from gantline.stores.ranks import PRIORITIES
from gantline.stores.sql.rows import dead_count_from_row

_ADD = """
INSERT INTO gantline.tally_delta (lane, live, completed, failed, poisoned, cancelled, tenant)
VALUES (%s, %s, %s, %s, %s, %s, %s)
"""
_ROWS_AT_ONCE = 10_000
_LIVE = "live"
_COLUMNS = (_LIVE, "completed", "failed", "poisoned", "cancelled")


_COUNTS = """
WITH ended AS (
    SELECT lane, sum(live) AS live, sum(completed) AS completed, sum(failed) AS failed,
           sum(poisoned) AS poisoned, sum(cancelled) AS cancelled
    FROM (
        SELECT lane, live, completed, failed, poisoned, cancelled, tenant FROM gantline.tally
        UNION ALL
        SELECT lane, live, completed, failed, poisoned, cancelled, tenant
        FROM gantline.tally_delta
    ) AS part
    WHERE %(tenant)s::text IS NULL OR tenant = %(tenant)s
    GROUP BY lane
), running AS (
    SELECT lane, count(*) AS running FROM gantline.lease
    WHERE %(tenant)s::text IS NULL OR tenant = %(tenant)s
    GROUP BY lane
)
SELECT lane.id, lane.queue, lane.job_type, (ended.live - coalesce(running.running, 0))::bigint,
       coalesce(running.running, 0), ended.completed::bigint, ended.failed::bigint,
       ended.poisoned::bigint, ended.cancelled::bigint
FROM ended
JOIN gantline.lane ON lane.id = ended.lane
LEFT JOIN running ON running.lane = ended.lane
WHERE ended.live + ended.completed + ended.failed + ended.poisoned + ended.cancelled > 0
ORDER BY lane.queue COLLATE "C", lane.job_type COLLATE "C"
"""
_DEAD = """
SELECT lane.job_type, log.status::text, log.reason, count(*), max(log.at)
FROM gantline.log JOIN gantline.lane ON lane.id = log.lane
WHERE log.is_end AND log.status IN ('Failed', 'Poisoned')
  AND (%(tenant)s::text IS NULL OR log.tenant = %(tenant)s)
GROUP BY 1, 2, 3 ORDER BY lane.job_type COLLATE "C", 2, log.reason COLLATE "C"
"""
_WAITING = f"""
SELECT lane, sum(jobs)::bigint, min(run_at)
FROM (
    SELECT given.lane, later.jobs, first.run_at
    FROM unnest(%(lanes)s::bigint[]) AS given (lane)
    CROSS JOIN generate_series(0, {PRIORITIES - 1}) AS level (rank)
    CROSS JOIN LATERAL (
        SELECT 0 AS grp
        UNION ALL
        SELECT turn.grp FROM gantline.turn
        WHERE turn.lane = given.lane AND turn.rank = level.rank
          AND (%(number)s::bigint IS NULL OR turn.tenant = %(number)s)
        GROUP BY turn.tenant, turn.grp
    ) AS one
    CROSS JOIN LATERAL (
        SELECT count(*) AS jobs FROM gantline.ready
        WHERE ready.lane = given.lane AND ready.rank = level.rank AND ready.grp = one.grp
          AND ready.run_at > coalesce(%(now)s, gantline.micros())
          AND (%(tenant)s::text IS NULL OR ready.tenant = %(tenant)s)
    ) AS later
    LEFT JOIN LATERAL (
        SELECT ready.run_at FROM gantline.ready
        WHERE ready.lane = given.lane AND ready.rank = level.rank AND ready.grp = one.grp
          AND ready.run_at <= coalesce(%(now)s, gantline.micros())
          AND (%(tenant)s::text IS NULL OR ready.tenant = %(tenant)s)
        ORDER BY ready.run_at LIMIT 1
    ) AS first ON true
    UNION ALL
    SELECT lane, count(*) FILTER (WHERE run_at > coalesce(%(now)s, gantline.micros())),
           min(run_at) FILTER (WHERE run_at <= coalesce(%(now)s, gantline.micros()))
    FROM gantline.ready
    WHERE rank >= {PRIORITIES} AND lane = ANY (%(lanes)s::bigint[])
      AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
    GROUP BY lane
) AS waiting
GROUP BY lane
"""  # noqa: S608  # constants only


class Tally:
    """Collect moves and write their sum: one row per tenant and lane, not per job."""

    def __init__(self) -> None:
        self._changes: defaultdict[tuple[int, str], Counter[str]] = defaultdict(Counter)

    def move(
        self, tenant: str, lane: int, from_status: JobStatus | None, to_status: JobStatus | None
    ) -> None:
        """Count a job that changes its status; None means outside the store."""
        change = self._changes[(lane, tenant)]
        if from_status is not None:
            change[_column(from_status)] -= 1
        if to_status is not None:
            change[_column(to_status)] += 1

    async def write(self, sql: Sql) -> None:
        for (lane, tenant), change in sorted(self._changes.items()):
            if any(change.values()):
                await sql.run(_ADD, lane, *(change[column] for column in _COLUMNS), tenant)


async def fold(sql: Sql) -> None:
    """Add up what was counted since the last time."""
    await sql.rows("SELECT gantline.fold_tally(%s)", _ROWS_AT_ONCE)


def _column(status: JobStatus) -> str:
    return status.value.lower() if status.is_terminal else _LIVE


async def counts(sql: Sql, tenant_id: str | None, now: int | None) -> list[LaneCounts]:
    lanes: dict[int, LaneCounts] = {}
    for row in await sql.named(_COUNTS, {"tenant": tenant_id}):
        number, queue, job_type, queued, running, completed, failed, poisoned, cancelled = row
        lanes[number] = LaneCounts(
            queue=queue,
            job_type=job_type,
            queued=queued,
            running=running,
            completed=completed,
            failed=failed,
            poisoned=poisoned,
            cancelled=cancelled,
        )
    waiting = [number for number, counted in lanes.items() if counted.queued]
    values = {"lanes": waiting, "tenant": tenant_id, "now": now}
    values["number"] = None if tenant_id is None else group_number(tenant_id, "")
    for number, scheduled, oldest in await sql.named(_WAITING, values) if waiting else ():
        lanes[number].scheduled = scheduled
        lanes[number].oldest_due_at = None if oldest is None else from_micros(oldest)
    return list(lanes.values())


async def dead_counts(sql: Sql, tenant_id: str | None) -> list[DeadCount]:
    return [dead_count_from_row(row) for row in await sql.named(_DEAD, {"tenant": tenant_id})]

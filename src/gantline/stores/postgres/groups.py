"""What waits and runs of each group, and until when gates are closed."""

from collections.abc import Sequence
from typing import Final

from gantline.contract.clock import from_micros
from gantline.contract.flow import GateState, GroupPage, GroupState, group_number, read_position
from gantline.contract.text import is_storable
from gantline.stores.postgres.arrays import Texts
from gantline.stores.postgres.lanes import Lane
from gantline.stores.postgres.sql import Sql, join_one
from gantline.stores.ranks import PRIORITIES, RANKS

_MOST_COUNTED: Final = 1_000
_ALL_RANKS: Final = sum(map(len, RANKS.values()))
_LANE = "SELECT id FROM gantline.lane WHERE queue = %s AND job_type = %s"
# Turns are read group by group, whatever is added to one; a turn that is left over has no jobs.
# Plain jobs, suspects and runs have none. Jobs of any tenant are plain that were Queued before
# there were groups, so the plain group is not named after one of its jobs.
_GROUPS: Final = f"""
WITH RECURSIVE turns AS (
    SELECT level.rank, first.tenant, first.grp, 1 AS number
    FROM generate_series(0, {PRIORITIES - 1}) AS level (rank)
    CROSS JOIN LATERAL (
        SELECT turn.tenant, turn.grp FROM gantline.turn
        WHERE turn.lane = %(lane)s AND turn.rank = level.rank
          AND (%(tenant)s::bigint IS NULL OR turn.tenant = %(tenant)s)
          AND (turn.tenant, turn.grp) > (%(after_tenant)s, %(after)s)
        ORDER BY turn.tenant, turn.grp LIMIT 1) AS first
    UNION ALL
    SELECT turns.rank, next.tenant, next.grp, turns.number + 1
    FROM turns CROSS JOIN LATERAL (
        SELECT turn.tenant, turn.grp FROM gantline.turn
        WHERE turn.lane = %(lane)s AND turn.rank = turns.rank
          AND (%(tenant)s::bigint IS NULL OR turn.tenant = %(tenant)s)
          AND (turn.tenant, turn.grp) > (turns.tenant, turns.grp)
        ORDER BY turn.tenant, turn.grp LIMIT 1) AS next
    WHERE turns.number < %(limit)s
), found AS (
    SELECT tenant, grp FROM turns
    UNION
    SELECT CASE WHEN one.grp = 0 THEN 0 ELSE gantline.group_number(one.tenant, '') END, one.grp
    FROM (
        SELECT tenant, grp FROM gantline.lease WHERE lane = %(lane)s
        UNION
        SELECT tenant, grp FROM gantline.ready WHERE rank >= {PRIORITIES} AND lane = %(lane)s
    ) AS one
    UNION
    SELECT 0, 0
), page AS (
    SELECT tenant, grp FROM found
    WHERE (tenant, grp) > (%(after_tenant)s, %(after)s)
      AND (%(tenant)s::bigint IS NULL OR tenant = %(tenant)s)
    ORDER BY tenant, grp LIMIT %(limit)s
)
SELECT page.tenant, page.grp,
       CASE WHEN page.grp = 0 AND job.id IS NOT NULL THEN 'default' ELSE job.tenant END,
       CASE WHEN page.grp = 0 THEN '' ELSE job.group_name END,
       coalesce(ready.jobs, 0), running.jobs, ready.oldest
FROM page
LEFT JOIN LATERAL (
    SELECT least({_MOST_COUNTED}, sum(one.jobs)) AS jobs, min(one.oldest) AS oldest,
           min(one.job_id::text)::uuid AS job_id
    FROM generate_series(0, {_ALL_RANKS - 1}) AS level (rank)
    CROSS JOIN LATERAL (
        SELECT count(*) AS jobs, min(waits.job_id::text) AS job_id,
               min(waits.run_at) FILTER (
                   WHERE waits.run_at <= coalesce(%(now)s, gantline.micros())) AS oldest
        FROM (
            SELECT ready.run_at, ready.job_id FROM gantline.ready
            WHERE ready.lane = %(lane)s AND ready.rank = level.rank AND ready.grp = page.grp
            ORDER BY ready.run_at, ready.job_id LIMIT {_MOST_COUNTED}) AS waits
    ) AS one
) AS ready ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs, min(lease.job_id::text)::uuid AS job_id FROM gantline.lease
    WHERE lease.lane = %(lane)s AND lease.grp = page.grp
) AS running
LEFT JOIN LATERAL (
    SELECT * FROM gantline.job WHERE job.id = coalesce(ready.job_id, running.job_id) OFFSET 0
) AS job ON true
ORDER BY page.tenant, page.grp
"""  # noqa: S608  # constants only
_WAITING: Final = f"""
SELECT count(*) FROM (
    SELECT FROM generate_series(0, {_ALL_RANKS - 1}) AS level (rank)
    CROSS JOIN LATERAL (
        SELECT FROM gantline.ready
        WHERE ready.lane = %(lane)s AND ready.rank = level.rank AND ready.grp = %(group)s
        LIMIT %(most)s) AS one
    LIMIT %(most)s) AS waits
"""  # noqa: S608  # constants only
_GATES: Final = f"""
SELECT gate.name, nullif(gate.closed_until, 0), nullif(gate.tat, 0)
FROM unnest(%s) AS given (name) {join_one("gate", "name", "given.name")}
"""  # noqa: S608  # constants only


async def groups(
    sql: Sql, lane: Lane, *, tenant_id: str | None, limit: int, after: str, now: int | None
) -> GroupPage:
    """Read a page; `after` is the tenant and the group of the last, as numbers."""
    begin = read_position(after, 2) if after else (-1, -1)
    row = await sql.row(_LANE, *lane)
    if row is None or not limit:
        return GroupPage(())
    values = {
        "lane": row[0],
        "tenant": None if tenant_id is None else group_number(tenant_id, ""),
        "after_tenant": begin[0],
        "after": begin[1],
        "limit": limit,
        "now": now,
    }
    rows = await sql.named(_GROUPS, values)
    items = tuple(
        GroupState(
            tenant_id=tenant,
            group=group,
            waiting=int(waiting),
            running=running,
            oldest_due_at=None if oldest is None else from_micros(oldest),
        )
        for _, _, tenant, group, waiting, running, oldest in rows
        if tenant is not None
    )
    return GroupPage(items, f"{rows[-1][0]}:{rows[-1][1]}" if len(rows) == limit else "")


async def waiting(sql: Sql, lane: Lane, group: int, *, most: int) -> int:
    row = await sql.row(_LANE, *lane)
    if row is None or most <= 0:
        return 0
    values = {"lane": row[0], "group": group, "most": most}
    return int((await sql.named(_WAITING, values))[0][0])


async def gates(sql: Sql, names: Sequence[str]) -> list[GateState]:
    possible = [name for name in dict.fromkeys(names) if is_storable(name)]
    found = {
        name: GateState(name, closed and from_micros(closed), next_ and from_micros(next_))
        for name, closed, next_ in (await sql.rows(_GATES, Texts(possible)) if possible else ())
    }
    return [found.get(name, GateState(name)) for name in names]

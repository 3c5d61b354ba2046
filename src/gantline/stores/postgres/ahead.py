"""ahead: how many due jobs are claimed before one."""

from collections import Counter
from collections.abc import Collection
from typing import Final
from uuid import UUID

from gantline.contract.text import is_storable
from gantline.stores.postgres.sql import Sql
from gantline.stores.ranks import PRIORITIES, ranks_before

_FIRST_ID: Final = UUID(int=0)

_JOB = """
SELECT lane.queue, ready.rank, ready.run_at, ready.tenant, coalesce(%s, gantline.micros()),
       ready.grp
FROM gantline.ready JOIN gantline.lane ON lane.id = ready.lane
WHERE ready.job_id = %s
"""
# All groups of a rank and lane: by their turns; plain jobs and suspects have none.
_GROUPS = f"""
    SELECT one.grp FROM (
        SELECT 0 AS grp
        UNION
        (SELECT turn.grp FROM gantline.turn
         WHERE turn.lane = lane.id AND turn.rank = given.rank
         GROUP BY turn.tenant, turn.grp ORDER BY turn.tenant, turn.grp LIMIT %(limit)s)
        UNION
        (SELECT ready.grp FROM gantline.ready
         WHERE ready.rank >= {PRIORITIES} AND ready.rank = given.rank AND ready.lane = lane.id
         GROUP BY ready.grp LIMIT %(limit)s)) AS one
"""  # noqa: S608  # constants only
# Each range is read from its start, up to the position or the limit.
_BEFORE = f"""
SELECT before.rank, count(*), count(*) FILTER (
    WHERE %(tenant)s::text IS NULL OR before.tenant = %(tenant)s)
FROM (
    SELECT due.rank, due.tenant
    FROM unnest(%(ranks)s::smallint[], %(groups)s::bigint[], %(run_ats)s::bigint[], %(ids)s::uuid[])
        AS given (rank, grp, run_at, job_id)
    CROSS JOIN gantline.lane
    CROSS JOIN LATERAL (
        SELECT given.grp WHERE given.grp IS NOT NULL
        UNION ALL
        SELECT every.grp FROM ({_GROUPS}) AS every WHERE given.grp IS NULL
    ) AS one
    CROSS JOIN LATERAL (
        SELECT ready.rank, ready.tenant FROM gantline.ready
        WHERE ready.lane = lane.id AND ready.rank = given.rank AND ready.grp = one.grp
          AND (ready.run_at, ready.job_id) < (given.run_at, given.job_id)
        ORDER BY ready.run_at, ready.job_id LIMIT %(limit)s
    ) AS due
    WHERE lane.queue = %(queue)s AND lane.job_type = ANY (%(types)s)
    LIMIT %(limit)s
) AS before
GROUP BY before.rank
"""  # noqa: S608  # constants only
_OF_OTHER_GROUPS = f"""
SELECT count(*) FILTER (WHERE %(tenant)s::text IS NULL OR before.tenant = %(tenant)s)
FROM (
    SELECT due.tenant
    FROM (
        SELECT DISTINCT every.grp
        FROM (SELECT %(rank)s::smallint AS rank) AS given
        CROSS JOIN gantline.lane CROSS JOIN LATERAL ({_GROUPS}) AS every
        WHERE lane.queue = %(queue)s AND lane.job_type = ANY (%(types)s) AND every.grp <> %(group)s
    ) AS other
    CROSS JOIN LATERAL (
        SELECT one.tenant FROM gantline.lane
        CROSS JOIN LATERAL (
            SELECT ready.tenant FROM gantline.ready
            WHERE ready.lane = lane.id AND ready.rank = %(rank)s AND ready.grp = other.grp
              AND ready.run_at <= %(now)s
            ORDER BY ready.run_at, ready.job_id LIMIT %(most)s) AS one
        WHERE lane.queue = %(queue)s AND lane.job_type = ANY (%(types)s)
        LIMIT %(most)s
    ) AS due
    LIMIT %(limit)s
) AS before
"""  # noqa: S608  # constants only


async def ahead(
    sql: Sql,
    job_id: UUID,
    job_types: Collection[str],
    *,
    tenant_id: str | None,
    limit: int,
    now: int | None,
) -> dict[int, int] | None:
    row = await sql.row(_JOB, now, job_id)
    if row is None or tenant_id not in (None, row[3]):
        return None
    queue, own_rank, run_at, _, at, group = row
    everything_due = (at + 1, _FIRST_ID)
    takes_turns = own_rank < PRIORITIES
    ranges = [(rank, None, everything_due) for rank in ranks_before(own_rank)]
    position = min((run_at, job_id), everything_due)
    ranges.append((own_rank, group if takes_turns else None, position))
    values = {
        "ranks": [rank for rank, _, _ in ranges],
        "groups": [one for _, one, _ in ranges],
        "run_ats": [position[0] for _, _, position in ranges],
        "ids": [position[1] for _, _, position in ranges],
        "queue": queue,
        "types": [*filter(is_storable, job_types)],
        "tenant": tenant_id,
        "limit": limit,
    }
    found: Counter[int] = Counter()
    looked_at: Counter[int] = Counter()
    for rank, jobs, shown in await sql.named(_BEFORE, values):
        looked_at[rank] = jobs
        found[rank % PRIORITIES] += shown
    if takes_turns and looked_at[own_rank] and limit > looked_at.total():
        values |= {"rank": own_rank, "group": group, "now": at, "most": looked_at[own_rank]}
        values["limit"] = limit - looked_at.total()
        found[own_rank] += (await sql.named(_OF_OTHER_GROUPS, values))[0][0]
    return {priority: jobs for priority, jobs in found.items() if jobs}

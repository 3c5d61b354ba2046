"""ahead: how many due jobs are claimed before one."""

import sqlite3
from collections.abc import Collection
from uuid import UUID

import msgspec

from gantline.contract.flow import group_number
from gantline.contract.text import is_storable
from gantline.stores.ranks import PRIORITIES, ranks_before

_JOB = """
SELECT lane.queue, ready.rank, ready.grp, ready.run_at, ready.tenant
FROM gantline_ready AS ready JOIN gantline_lane AS lane ON lane.id = ready.lane
WHERE ready.job_id = ?
"""
_RANGES = """
FROM gantline_lane AS lane CROSS JOIN gantline_turn AS turn
    ON turn.lane = lane.id AND turn.rank = :rank AND turn.run_at <= :run_at
"""
_OF_TYPES = "lane.queue = :queue AND lane.job_type IN (SELECT value FROM json_each(:types))"
_READY = """
ready.lane = turn.lane AND ready.rank = turn.rank AND ready.grp = turn.grp
AND (ready.run_at, ready.job_id) < (:run_at, :job_id)
"""
# Each range is read from its start, up to the position or the limit: 10,000 rows take 1 ms.
_BEFORE = f"""
SELECT count(*), total(:tenant IS NULL OR tenant = :tenant) FROM (
    SELECT ready.tenant {_RANGES} CROSS JOIN gantline_ready AS ready ON {_READY}
    WHERE {_OF_TYPES} AND (:group IS NULL OR turn.grp = :group) LIMIT :limit)
"""  # noqa: S608  # constants only
# Of each other group as many as are before the job in its own.
_IN_TURNS = f"""
SELECT total(jobs) FROM (
    SELECT min(:each, sum(
        (SELECT count(*) FROM (SELECT 1 FROM gantline_ready AS ready WHERE {_READY} LIMIT :each))
    )) AS jobs {_RANGES}
    WHERE {_OF_TYPES} AND turn.grp <> :group AND (:number IS NULL OR turn.tenant = :number)
    GROUP BY turn.grp LIMIT :limit)
"""  # noqa: S608  # constants only


def ahead(
    connection: sqlite3.Connection,
    job_id: UUID,
    job_types: Collection[str],
    *,
    tenant_id: str | None,
    limit: int,
    now: int,
) -> dict[int, int] | None:
    row = connection.execute(_JOB, (job_id.bytes,)).fetchone()
    if row is None or tenant_id not in (None, row[4]):
        return None
    queue, own_rank, group, run_at, _ = row
    takes_turns = own_rank < PRIORITIES
    everything_due = (now + 1, b"")
    ranges: list[tuple[int, tuple[int, bytes], int | None]] = [
        (rank, everything_due, None) for rank in ranks_before(own_rank)
    ]
    own = min((run_at, job_id.bytes), everything_due)
    ranges.append((own_rank, own, group if takes_turns else None))
    asked = {
        "queue": queue,
        "types": msgspec.json.encode([*filter(is_storable, job_types)]).decode(),
        "tenant": tenant_id,
        "number": None if tenant_id is None else group_number(tenant_id, ""),
    }
    found: dict[int, int] = {}
    for rank, (before, before_id), only in ranges:
        asked |= {"rank": rank, "run_at": before, "job_id": before_id, "group": only}
        looked_at, jobs = connection.execute(_BEFORE, asked | {"limit": limit}).fetchone()
        limit -= looked_at
        if only is not None and looked_at and limit:
            asked |= {"run_at": now + 1, "job_id": b"", "each": looked_at}
            (others,) = connection.execute(_IN_TURNS, asked | {"limit": limit}).fetchone()
            jobs += min(limit, others)
        if jobs:
            found[rank % PRIORITIES] = found.get(rank % PRIORITIES, 0) + int(jobs)
    return found

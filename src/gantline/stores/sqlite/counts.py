"""Counts: how many jobs are in which lane and status. They are kept with every move."""

import sqlite3
from collections import Counter

from gantline.contract.clock import from_micros
from gantline.contract.query import DeadCount, LaneCounts
from gantline.contract.status import JobStatus
from gantline.stores.sql.rows import dead_count_from_row

_ADD = """
INSERT INTO gantline_tally (tenant, lane, status, jobs) VALUES (?, ?, ?, max(?, 0))
ON CONFLICT (tenant, lane, status) DO UPDATE SET jobs = max(0, jobs + ?)
"""


class Tally:
    """Collect moves and write their sum: one row per tenant, lane and status, not per job."""

    def __init__(self) -> None:
        self._moves: Counter[tuple[str, int, JobStatus | None, JobStatus | None]] = Counter()

    def move(
        self, tenant: str, lane: int, from_status: JobStatus | None, to_status: JobStatus | None
    ) -> None:
        """Count a job that changes its status; None means outside the store."""
        self._moves[tenant, lane, from_status, to_status] += 1

    def write(self, connection: sqlite3.Connection) -> None:
        changes: Counter[tuple[str, int, str]] = Counter()
        for (tenant, lane, from_status, to_status), jobs in self._moves.items():
            if from_status is not None:
                changes[tenant, lane, from_status] -= jobs
            if to_status is not None:
                changes[tenant, lane, to_status] += jobs
        rows = [(*key, change, change) for key, change in changes.items() if change]
        connection.executemany(_ADD, rows)


def counts(connection: sqlite3.Connection, tenant_id: str | None, now: int) -> list[LaneCounts]:
    lanes: dict[int, LaneCounts] = {}
    rows = connection.execute(
        """
        SELECT lane.id, lane.queue, lane.job_type, tally.status, sum(tally.jobs)
        FROM gantline_tally AS tally JOIN gantline_lane AS lane ON lane.id = tally.lane
        WHERE tally.jobs > 0 AND (:tenant IS NULL OR tally.tenant = :tenant)
        GROUP BY lane.id, tally.status ORDER BY lane.queue, lane.job_type
        """,
        {"tenant": tenant_id},
    )
    for lane, queue, kind, status, jobs in rows:
        counted = lanes.setdefault(lane, LaneCounts(queue=queue, job_type=kind))
        setattr(counted, status.lower(), jobs)
    for lane, counted in lanes.items():
        if counted.queued:
            counted.scheduled, oldest = _count_waiting(connection, lane, tenant_id, now)
            counted.oldest_due_at = None if oldest is None else from_micros(oldest)
    return list(lanes.values())


def _count_waiting(
    connection: sqlite3.Connection, lane: int, tenant_id: str | None, now: int
) -> tuple[int, int | None]:
    """Count the Queued jobs of a lane that are not due yet, and find since when the first is due.

    Every range that has jobs has a turn.
    """
    tenant = "" if tenant_id is None else "AND tenant = :tenant"
    row = connection.execute(
        f"""
        SELECT
            total((SELECT count(*) FROM gantline_ready AS ready
                   WHERE ready.lane = turn.lane AND ready.rank = turn.rank
                     AND ready.grp = turn.grp AND ready.run_at > :now {tenant})),
            min((SELECT ready.run_at FROM gantline_ready AS ready
                 WHERE ready.lane = turn.lane AND ready.rank = turn.rank
                   AND ready.grp = turn.grp AND ready.run_at <= :now {tenant}
                 ORDER BY ready.run_at LIMIT 1))
        FROM gantline_turn AS turn WHERE turn.lane = :lane
        """,  # noqa: S608  # built from constants; every value is a parameter
        {"lane": lane, "now": now, "tenant": tenant_id},
    ).fetchone()
    return int(row[0]), row[1]


def dead_counts(connection: sqlite3.Connection, tenant_id: str | None) -> list[DeadCount]:
    rows = connection.execute(
        """
        SELECT lane.job_type, log.status, log.reason, count(*), max(log.at)
        FROM gantline_log AS log JOIN gantline_lane AS lane ON lane.id = log.lane
        WHERE log.is_end = 1 AND log.status IN ('Failed', 'Poisoned')
          AND (:tenant IS NULL OR log.tenant = :tenant)
        GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
        """,
        {"tenant": tenant_id},
    )
    return [dead_count_from_row(row) for row in rows]

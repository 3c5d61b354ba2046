"""The tally: how many jobs of a tenant are in which lane and status, kept with every move."""

import sqlite3
from collections import Counter

from gantline.contract.status import JobStatus

_ADD = """
INSERT INTO gantline_tally (tenant, lane, status, jobs) VALUES (?, ?, ?, max(?, 0))
ON CONFLICT (tenant, lane, status) DO UPDATE SET jobs = max(0, jobs + ?)
"""


class Tally:
    """Collect moves and write their sum: one row per tenant, lane and status, not per job."""

    def __init__(self) -> None:
        self._moves: Counter[tuple[str, int, JobStatus | None, JobStatus | None]] = Counter()

    def move(
        self, tenant: str, lane: int, came_from: JobStatus | None, goes_to: JobStatus | None
    ) -> None:
        """Count a job out of one status and into another; None is outside the store."""
        self._moves[tenant, lane, came_from, goes_to] += 1

    def write(self, connection: sqlite3.Connection) -> None:
        changes: Counter[tuple[str, int, str]] = Counter()
        for (tenant, lane, came_from, goes_to), jobs in self._moves.items():
            if came_from is not None:
                changes[tenant, lane, came_from] -= jobs
            if goes_to is not None:
                changes[tenant, lane, goes_to] += jobs
        rows = [(*place, change, change) for place, change in changes.items() if change]
        connection.executemany(_ADD, rows)

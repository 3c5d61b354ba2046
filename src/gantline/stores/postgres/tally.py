"""The tally: how many jobs of a tenant and a lane have ended how, and how many live."""

from collections import Counter, defaultdict

from gantline.contract.status import JobStatus
from gantline.stores.postgres.sql import Sql

_ADD = """
INSERT INTO gantline.tally_delta (lane, live, completed, failed, poisoned, cancelled, tenant)
VALUES (%s, %s, %s, %s, %s, %s, %s)
"""
_ROWS_AT_ONCE = 10_000
_LIVE = "live"
_COLUMNS = (_LIVE, "completed", "failed", "poisoned", "cancelled")


class Tally:
    """Collect moves and write their sum: one row per tenant and lane, not per job."""

    def __init__(self) -> None:
        self._changes: defaultdict[tuple[int, str], Counter[str]] = defaultdict(Counter)

    def move(
        self, tenant: str, lane: int, came_from: JobStatus | None, goes_to: JobStatus | None
    ) -> None:
        """Count a job out of one status and into another; None is outside the store."""
        change = self._changes[(lane, tenant)]
        if came_from is not None:
            change[_column(came_from)] -= 1
        if goes_to is not None:
            change[_column(goes_to)] += 1

    async def write(self, sql: Sql) -> None:
        for (lane, tenant), change in sorted(self._changes.items()):
            if any(change.values()):
                await sql.run(_ADD, lane, *(change[column] for column in _COLUMNS), tenant)


async def fold(sql: Sql) -> None:
    """Add up what was counted since the last time."""
    await sql.rows("SELECT gantline.fold_tally(%s)", _ROWS_AT_ONCE)


def _column(status: JobStatus) -> str:
    return status.value.lower() if status.is_terminal else _LIVE

"""Sequencing: giving committed log rows their place in the order in which consumers read."""

import time
from collections.abc import Callable
from typing import Final

from gantline.stores.postgres.sql import Sql
from gantline.stores.postgres.tally import fold

# Most calls find nothing, since every worker makes them: those take no lock and write nothing. The
# look is as good as the function's own, for whatever was committed before the statement began.
_SEQUENCE: Final = """
SELECT CASE
    WHEN coalesce((SELECT max(log.id) FROM gantline.log AS log), 0) > cursor.high
         OR EXISTS (SELECT FROM gantline.event_gap)
    THEN gantline.sequence_events(%s)
    ELSE 0
END
FROM gantline.event_cursor AS cursor WHERE cursor.only_row = 1
"""
_FOLD_EVERY_SECONDS: Final = 5.0


class Sequencing:
    """Number rows. Now and then, those who do add up what was counted meanwhile."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._fold_at = 0.0

    async def number(self, sql: Sql, limit: int) -> int:
        numbered = int((await sql.rows(_SEQUENCE, limit))[0][0])
        # Without new rows there is little to add up; what there is, `prune` does.
        if numbered and self._monotonic() >= self._fold_at:
            self._fold_at = self._monotonic() + _FOLD_EVERY_SECONDS
            await fold(sql)
        return numbered


async def last_event(sql: Sql) -> int:
    rows = await sql.rows("SELECT last FROM gantline.event_cursor WHERE only_row = 1")
    return int(rows[0][0])

"""The log: the order in which consumers read it, history and events."""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from gantline.contract.errors import StoreBusy
from gantline.contract.snapshot import LogEntry, LoggedEvent
from gantline.runtime import monotonic
from gantline.stores.postgres.arrays import Bigints
from gantline.stores.postgres.counts import fold
from gantline.stores.postgres.rows import LOG_COLUMNS
from gantline.stores.postgres.sql import Row, Sql, left_join_one
from gantline.stores.sql.rows import log_from_row

# Every worker calls this, so most calls find nothing: these take no lock and write nothing. The
# check sees what was committed before the statement began, as the function itself would.
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


_HISTORY = f"""
SELECT {LOG_COLUMNS} FROM gantline.log
WHERE job_id = %(job)s AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s) ORDER BY version
"""  # noqa: S608  # constants only
# A batch whose rows were pruned gives no events, so the number of batches is limited separately.
_EVENTS = f"""
SELECT batch.last, batch.first + item.index - 1, log.tenant, lane.job_type, {LOG_COLUMNS}
FROM (
    SELECT * FROM gantline.event_batch
    WHERE last > %(after)s AND last <= %(upto)s ORDER BY last LIMIT %(most)s
) AS batch
CROSS JOIN LATERAL unnest(batch.log_ids) WITH ORDINALITY AS item (log_id, index)
{left_join_one("log", "id", "item.log_id")}
{left_join_one("lane", "id", "log.lane")}
WHERE batch.first + item.index - 1 > %(after)s
ORDER BY 2
"""  # noqa: S608  # constants only
_SPANS = "SELECT last, first FROM gantline.event_batch WHERE last > %s ORDER BY last LIMIT %s"


class Sequencer:
    """Numbers rows, and from time to time adds up the counts."""

    def __init__(self, monotonic: Callable[[], float] = monotonic) -> None:
        self._monotonic = monotonic
        self._fold_at = 0.0

    async def number_rows(self, sql: Sql, limit: int) -> int:
        numbered = int((await sql.rows(_SEQUENCE, limit))[0][0])
        # Without new rows there is little to add up, and `prune` does that.
        if numbered and self._monotonic() >= self._fold_at:
            self._fold_at = self._monotonic() + _FOLD_EVERY_SECONDS
            await fold(sql)
        return numbered


async def last_event(sql: Sql) -> int:
    rows = await sql.rows("SELECT last FROM gantline.event_cursor WHERE only_row = 1")
    return int(rows[0][0])


_ENDS = """
SELECT last, log_ids[cardinality(log_ids)] FROM gantline.event_batch
WHERE last > %s ORDER BY last LIMIT %s
"""
_IN_BATCHES = """
SELECT given.id, batch.first + array_position(batch.log_ids, given.id) - 1
FROM unnest(%s, %s) AS given (id, last)
CROSS JOIN LATERAL (
    SELECT * FROM gantline.event_batch AS batch WHERE batch.last = given.last OFFSET 0) AS batch
"""
_ANYWHERE = """
SELECT item.log_id, batch.first + item.index - 1
FROM gantline.event_batch AS batch
CROSS JOIN LATERAL unnest(batch.log_ids) WITH ORDINALITY AS item (log_id, index)
WHERE item.log_id = ANY (%s)
"""
_AT_ONCE: Final = 50_000


class Numbers:
    """Finds the number of an event by the id of its row; batches are made for the other direction.

    It keeps the end of every batch, 16 bytes each: reading them all for each page is too slow. The
    ids of a batch are above the ends of all batches before it, except for rows that came late.
    """

    def __init__(self) -> None:
        self._lasts = array("q")
        self._ends = array("q")

    async def read(self, sql: Sql) -> None:
        """Read the batches as they are now."""
        self._lasts, self._ends = array("q"), array("q")
        last, end = 0, 0
        while rows := await sql.rows(_ENDS, last, _AT_ONCE):
            for last, last_id in rows:
                end = max(end, last_id)  # a batch of late rows ends below the batches before it
                self._lasts.append(last)
                self._ends.append(end)

    async def find(self, sql: Sql, log_ids: Sequence[int]) -> dict[int, int]:
        """Find the numbers of rows; raise StoreBusy where one has none yet."""
        likely = [(log_id, bisect_left(self._ends, log_id)) for log_id in log_ids]
        likely = [(log_id, self._lasts[at]) for log_id, at in likely if at < len(self._lasts)]
        ids, lasts = Bigints([one[0] for one in likely]), Bigints([one[1] for one in likely])
        found = {
            log_id: number
            for log_id, number in (await sql.rows(_IN_BATCHES, ids, lasts) if likely else ())
            if number is not None
        }
        if late := [log_id for log_id in log_ids if log_id not in found]:
            found |= dict(await sql.rows(_ANYWHERE, Bigints(late)))
        if not found.keys() >= set(log_ids):
            raise StoreBusy("Events are still being written.", next_step="Try again.")
        return found


async def history(sql: Sql, job_id: UUID, tenant_id: str | None) -> list[LogEntry]:
    rows = await sql.named(_HISTORY, {"job": job_id, "tenant": tenant_id})
    return [log_from_row(row) for row in rows]


async def events(sql: Sql, *, after: int, limit: int) -> list[LoggedEvent]:
    """Read events. A batch has one event or a thousand: first find how many batches are enough."""
    found: list[LoggedEvent] = []
    while len(found) < limit:
        spans = await sql.rows(_SPANS, after, limit - len(found))
        if not spans:
            break
        upto = _find_end(spans, limit)
        found += [
            LoggedEvent(row[1], row[2], row[3], log_from_row(row[4:]))
            for row in await sql.named(_EVENTS, {"after": after, "upto": upto, "most": limit})
            if row[2] is not None
        ]
        after = upto
    return found[:limit]


def _find_end(spans: list[Row], limit: int) -> int:
    """Find the last number of the batch that completes so many events."""
    size = 0
    for last, first in spans:
        size += last - first + 1
        if size >= limit:
            return int(last)
    return int(spans[-1][0])

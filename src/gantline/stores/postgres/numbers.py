"""Which number an event has, by the id of its row: batches are made to be read the other way."""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from gantline.contract.errors import StoreBusy
from gantline.stores.postgres.arrays import Bigints
from gantline.stores.postgres.sql import Sql

_ENDS = """
SELECT last, log_ids[cardinality(log_ids)] FROM gantline.event_batch
WHERE last > %s ORDER BY last LIMIT %s
"""
_IN_BATCHES = """
SELECT wanted.id, batch.first + array_position(batch.log_ids, wanted.id) - 1
FROM unnest(%s, %s) AS wanted (id, last)
CROSS JOIN LATERAL (
    SELECT * FROM gantline.event_batch AS batch WHERE batch.last = wanted.last OFFSET 0) AS batch
"""
_ANYWHERE = """
SELECT item.log_id, batch.first + item.place - 1
FROM gantline.event_batch AS batch
CROSS JOIN LATERAL unnest(batch.log_ids) WITH ORDINALITY AS item (log_id, place)
WHERE item.log_id = ANY (%s)
"""
_AT_ONCE: Final = 50_000


class Numbers:
    """Remembers the end of every batch, 16 bytes each: to read them all for each page is too slow.

    What a batch has that was not late is behind the ends of all before it.
    """

    def __init__(self) -> None:
        self._lasts = array("q")
        self._ends = array("q")

    async def read(self, sql: Sql) -> None:
        """Learn the batches as they are now."""
        self._lasts, self._ends = array("q"), array("q")
        last, end = 0, 0
        while rows := await sql.rows(_ENDS, last, _AT_ONCE):
            for last, last_id in rows:
                end = max(end, last_id)  # one of late rows only ends before those before it
                self._lasts.append(last)
                self._ends.append(end)

    async def of(self, sql: Sql, log_ids: Sequence[int]) -> dict[int, int]:
        """The numbers of rows; raise StoreBusy where one has none yet."""
        places = [(log_id, bisect_left(self._ends, log_id)) for log_id in log_ids]
        likely = [(log_id, self._lasts[at]) for log_id, at in places if at < len(self._lasts)]
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

"""Lanes: the number of each queue and type, looked up once and remembered. They never change."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from psycopg.errors import LockNotAvailable

from windlass.stores.postgres.arrays import Texts
from windlass.stores.postgres.sql import Row, Sql

Place = tuple[str, str]
"""A queue and a type."""

_FIND = """
SELECT lane.queue, lane.job_type, lane.id
FROM unnest(%s, %s) AS wanted (queue, job_type)
JOIN windlass.lane ON lane.queue = wanted.queue AND lane.job_type = wanted.job_type
"""
_ADD = """
INSERT INTO windlass.lane (queue, job_type)
SELECT * FROM unnest(%s, %s) AS wanted (queue, job_type) ORDER BY queue, job_type
ON CONFLICT (queue, job_type) DO NOTHING
"""
_WAIT_AT_MOST = "SELECT set_config('lock_timeout', %s, true)"
_PATIENCE_MS: Final = 100


class Lanes:
    """What this process knows of the lanes of one database.

    Learnt outside of transactions: in one that is rolled back later, a new lane would be remembered
    that nobody else ever sees. And learnt again for each new connection: after a failover a number
    that was not yet replicated may be another lane's.
    """

    def __init__(self) -> None:
        self._numbers: dict[Place, int] = {}
        self._places: dict[int, Place] = {}
        self._learnt_on: dict[Place, int] = {}

    def __getitem__(self, place: Place) -> int:
        return self._numbers[place]

    def __contains__(self, place: Place) -> bool:
        return place in self._numbers

    def place_of(self, number: int) -> Place:
        return self._places[number]

    async def learn(self, sql: Sql, places: Iterable[Place]) -> None:
        """Know the numbers of these lanes; those that are new to the database are added."""
        if unknown := self._unknown(sql, places):
            self._remember(sql, await _learn(sql, unknown))

    async def learn_what_is_free(self, sql: Sql, places: Iterable[Place]) -> None:
        """The same, but for lanes whose first job is in a transaction that somebody has open."""
        if unknown := self._unknown(sql, places):
            with suppress(LockNotAvailable):
                async with sql.connection.transaction():
                    rows = await _learn_soon(sql, unknown)
                self._remember(sql, rows)  # when it is committed, not before

    def _unknown(self, sql: Sql, places: Iterable[Place]) -> list[Place]:
        learnt_on, now_on = self._learnt_on, sql.connection.number
        return sorted({place for place in places if learnt_on.get(place, -1) < now_on})

    def _remember(self, sql: Sql, rows: list[Row]) -> None:
        for queue, job_type, number in rows:
            self._numbers[(queue, job_type)] = number
            self._places[number] = (queue, job_type)
            self._learnt_on[(queue, job_type)] = sql.connection.number


async def _learn_soon(sql: Sql, unknown: list[Place]) -> list[Row]:
    await sql.rows(_WAIT_AT_MOST, str(_PATIENCE_MS))
    return await _learn(sql, unknown)


async def _learn(sql: Sql, unknown: list[Place]) -> list[Row]:
    rows = await sql.rows(_FIND, *_columns(unknown))
    if len(rows) < len(unknown):
        await sql.run(_ADD, *_columns(unknown))
        rows = await sql.rows(_FIND, *_columns(unknown))
    return rows


def _columns(places: list[Place]) -> tuple[Texts, Texts]:
    return Texts([place[0] for place in places]), Texts([place[1] for place in places])

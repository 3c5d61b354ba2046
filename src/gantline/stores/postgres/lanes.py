"""Lanes: the number of each queue and type, looked up once and remembered. They never change."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from psycopg.errors import LockNotAvailable

from gantline.stores.postgres.arrays import Texts
from gantline.stores.postgres.sql import Sql

Place = tuple[str, str]
"""A queue and a type."""

_FIND = """
SELECT lane.queue, lane.job_type, lane.id
FROM unnest(%s, %s) AS wanted (queue, job_type)
JOIN gantline.lane ON lane.queue = wanted.queue AND lane.job_type = wanted.job_type
"""
_ADD = """
INSERT INTO gantline.lane (queue, job_type)
SELECT * FROM unnest(%s, %s) AS wanted (queue, job_type) ORDER BY queue, job_type
ON CONFLICT (queue, job_type) DO NOTHING
"""
_WAIT_AT_MOST = "SELECT set_config('lock_timeout', %s, true)"
_PATIENCE_MS: Final = 100
_MOST_ASKED: Final = 100


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
        self._asked: dict[tuple[str, tuple[str, ...]], tuple[int, list[int]]] = {}

    def __getitem__(self, place: Place) -> int:
        return self._numbers[place]

    def place_of(self, number: int) -> Place:
        return self._places[number]

    def knows(self, places: Iterable[Place]) -> bool:
        return all(place in self._numbers for place in places)

    async def learn(self, sql: Sql, places: Iterable[Place]) -> None:
        """Know the numbers of these lanes; those that are new to the database are added."""
        if new := await self._find(sql, places):
            await sql.run(_ADD, *_columns(new))
            await self._find(sql, new)

    async def learn_what_is_free(self, sql: Sql, places: Iterable[Place]) -> None:
        """The same, but for lanes whose first job is in a transaction that somebody has open."""
        if new := await self._find(sql, places):
            with suppress(LockNotAvailable):
                async with sql.connection.transaction():
                    await sql.rows(_WAIT_AT_MOST, str(_PATIENCE_MS))
                    await sql.run(_ADD, *_columns(new))
                await self._find(sql, new)

    async def _find(self, sql: Sql, places: Iterable[Place]) -> list[Place]:
        """Learn what the database knows; return the lanes that it does not."""
        unknown = self._unknown(sql, places)
        if unknown:
            for queue, job_type, number in await sql.rows(_FIND, *_columns(unknown)):
                self._numbers[(queue, job_type)] = number
                self._places[number] = (queue, job_type)
                self._learnt_on[(queue, job_type)] = sql.connection.number
        return self._unknown(sql, unknown)

    def _unknown(self, sql: Sql, places: Iterable[Place]) -> list[Place]:
        learnt_on, now_on = self._learnt_on, sql.connection.number
        return sorted({place for place in places if learnt_on.get(place, -1) < now_on})

    async def numbers(self, sql: Sql, queue: str, job_types: tuple[str, ...]) -> list[int]:
        """The lanes of a queue, but for those whose first job is in an open transaction.

        A worker asks for the same types with every claim: a thousand cost 0.3 ms if not remembered.
        """
        asked = (queue, job_types)
        learnt_on, known = self._asked.get(asked, (-1, []))
        if learnt_on >= sql.connection.number:
            return known
        places = [(queue, job_type) for job_type in job_types]
        await self.learn_what_is_free(sql, places)
        unknown = set(self._unknown(sql, places))
        known = [self._numbers[place] for place in places if place not in unknown]
        if not unknown:
            if len(self._asked) >= _MOST_ASKED:
                self._asked.clear()
            self._asked[asked] = (sql.connection.number, known)
        return known


def _columns(places: list[Place]) -> tuple[Texts, Texts]:
    return Texts([place[0] for place in places]), Texts([place[1] for place in places])

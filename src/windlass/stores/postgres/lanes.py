"""Lanes: the number of each queue and type, looked up once and remembered. They never change."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from windlass.contract.errors import StoreBusy
from windlass.stores.postgres.arrays import Texts
from windlass.stores.postgres.calls import Calls
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
_MOST_ASKED: Final = 100


class Lanes:
    """What this process knows of the lanes of one database.

    Learnt by calls of their own: in a transaction that is rolled back later, a new lane would be
    remembered that nobody else ever sees.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._numbers: dict[Place, int] = {}
        self._places: dict[int, Place] = {}
        self._doubted: set[Place] = set()
        self._losses = 0
        self._asked: dict[tuple[str, tuple[str, ...]], list[int]] = {}

    def __getitem__(self, place: Place) -> int:
        return self._numbers[place]

    def place_of(self, number: int) -> Place:
        return self._places[number]

    async def learn(self, places: Iterable[Place]) -> None:
        """Know the numbers of these lanes; those that are new to the database are added."""
        if unknown := self._unknown(places):
            self._remember(await self._calls.run(lambda sql: _learn(sql, unknown)))

    async def learn_what_is_free(self, places: Iterable[Place]) -> None:
        """The same, but for lanes whose first job is in a transaction that somebody has open."""
        if unknown := self._unknown(places):
            with suppress(StoreBusy):
                # Remembered when it is committed, not before.
                self._remember(
                    await self._calls.run(lambda sql: _learn_soon(sql, unknown), atomic=True)
                )

    async def numbers(self, queue: str, job_types: tuple[str, ...]) -> list[int]:
        """The lanes of a queue, but for those whose first job is in an open transaction.

        A worker asks for the same types with every claim: a thousand cost 0.7 ms if not remembered.
        """
        asked = (queue, job_types)
        if self._losses != self._calls.losses:
            self._asked.clear()
        if (known := self._asked.get(asked)) is not None:
            return known
        places = [(queue, job_type) for job_type in job_types]
        await self.learn_what_is_free(places)
        known = [self._numbers[place] for place in places if place in self._numbers]
        if len(known) == len(places):
            if len(self._asked) >= _MOST_ASKED:
                self._asked.clear()
            self._asked[asked] = known
        return known

    def _unknown(self, places: Iterable[Place]) -> list[Place]:
        if self._losses != self._calls.losses:
            # After a failover a number that was not yet replicated may be another lane's.
            self._losses = self._calls.losses
            self._doubted = set(self._numbers)
        return sorted(
            {place for place in places if place not in self._numbers or place in self._doubted}
        )

    def _remember(self, rows: list[Row]) -> None:
        for queue, job_type, number in rows:
            self._numbers[(queue, job_type)] = number
            self._places[number] = (queue, job_type)
            self._doubted.discard((queue, job_type))


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

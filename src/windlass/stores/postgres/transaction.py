"""A transaction of a handler's own on the jobs' database, in which its run can be settled too."""

from typing import Any

import psycopg

from windlass.contract.results import ApplyResult
from windlass.contract.transition import Transition
from windlass.stores.postgres import failures
from windlass.stores.postgres.apply import apply
from windlass.stores.postgres.insert import places_of
from windlass.stores.postgres.lanes import Lanes
from windlass.stores.postgres.sql import Sql


class PostgresTransaction:
    """Its connection is psycopg's. The guard is checked in the transaction, under a lock."""

    def __init__(self, sql: Sql, lanes: Lanes, now: int | None) -> None:
        self._sql = sql
        self._lanes = lanes
        self._now = now

    @property
    def connection(self) -> Any:
        return self._sql.connection

    async def apply(self, transition: Transition) -> ApplyResult:
        await self._lanes.learn(places_of(transition.follow_ups))
        try:
            return (await apply(self._sql, [transition], lanes=self._lanes, now=self._now))[0]
        except psycopg.Error as error:
            raise failures.translate(error) from error

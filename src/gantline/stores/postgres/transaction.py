"""A transaction of a handler's own on the jobs' database, in which its run can be settled too."""

from typing import Any

from gantline.contract.results import ApplyResult
from gantline.contract.transition import Transition
from gantline.stores.postgres import failures
from gantline.stores.postgres.apply import apply
from gantline.stores.postgres.calls import Calls, nothing
from gantline.stores.postgres.insert import places_of
from gantline.stores.postgres.lanes import Lanes
from gantline.stores.postgres.sql import Sql


class PostgresTransaction:
    """Its connection is psycopg's. The guard is checked in the transaction, under a lock."""

    def __init__(self, sql: Sql, lanes: Lanes, calls: Calls, now: int | None) -> None:
        self._sql = sql
        self._lanes = lanes
        self._calls = calls
        self._now = now

    @property
    def connection(self) -> Any:
        return self._sql.connection

    async def apply(self, transition: Transition) -> ApplyResult:
        places = tuple(places_of(transition.follow_ups))
        if places:
            await self._calls.run(nothing, before=lambda sql: self._lanes.learn(sql, places))
        try:
            return await self._calls.in_time(self._apply(transition))
        except failures.RAISED as error:
            failed = failures.as_error(error)
        raise failures.told(failed)

    async def _apply(self, transition: Transition) -> ApplyResult:
        return (await apply(self._sql, [transition], lanes=self._lanes, now=self._now))[0]

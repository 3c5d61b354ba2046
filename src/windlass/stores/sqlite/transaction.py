"""A transaction of a handler's own on the jobs' file, in which its run can be settled too."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from windlass.contract.results import ApplyResult
from windlass.contract.transition import Transition
from windlass.stores.sqlite.apply import apply
from windlass.stores.sqlite.connection import connect_writer, translated, while_busy
from windlass.stores.sqlite.location import Location


class SqliteTransaction:
    """Holds the write lock of the file from its begin on, so it should be short."""

    def __init__(self, connection: sqlite3.Connection, now: Callable[[], int]) -> None:
        self.connection = connection
        self._now = now

    async def apply(self, transition: Transition) -> ApplyResult:
        return apply(self.connection, [transition], self._now())[0]


@asynccontextmanager
async def begun(location: Location, now: Callable[[], int]) -> AsyncIterator[SqliteTransaction]:
    """Begin on a connection of its own; commit at the end, roll back on an error."""
    connection = await asyncio.to_thread(_begin, location)
    try:
        with translated(location):
            yield SqliteTransaction(connection, now)
            await asyncio.to_thread(connection.execute, "COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        connection.close()


def _begin(location: Location) -> sqlite3.Connection:
    connection = connect_writer(location)
    with translated(location, connection):
        while_busy(location, lambda: connection.execute("BEGIN IMMEDIATE"))
    return connection

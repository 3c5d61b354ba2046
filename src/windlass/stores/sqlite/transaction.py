"""A transaction of a handler's own on the jobs' file, in which its run can be settled too."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing

from windlass.contract.results import ApplyResult
from windlass.contract.transition import Transition
from windlass.stores.sqlite.apply import apply
from windlass.stores.sqlite.connection import connect_writer, translated, while_busy
from windlass.stores.sqlite.handover import made_in_thread
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
    connection = await made_in_thread(lambda: _begin(location), let_go=_roll_back)
    with translated(location):
        try:
            yield SqliteTransaction(connection, now)
        except BaseException:
            _roll_back(connection)
            raise
        loop = asyncio.get_running_loop()
        # Shielded: a commit that has begun has the connection to itself until it is over.
        await asyncio.shield(loop.run_in_executor(None, _commit, connection))


def _begin(location: Location) -> sqlite3.Connection:
    connection = connect_writer(location)
    with translated(location, connection):
        while_busy(location, lambda: connection.execute("BEGIN IMMEDIATE"))
    return connection


def _commit(connection: sqlite3.Connection) -> None:
    try:
        connection.execute("COMMIT")
    finally:
        _roll_back(connection)


def _roll_back(connection: sqlite3.Connection) -> None:
    """End what is not committed, and let the file go."""
    with closing(connection):
        if connection.in_transaction:
            connection.execute("ROLLBACK")

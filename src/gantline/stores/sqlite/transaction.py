"""A transaction of a handler's own on the jobs' file, in which its run can be settled too."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from weakref import WeakKeyDictionary

from gantline.contract.errors import StoreBusy
from gantline.contract.results import ApplyResult
from gantline.contract.transition import Transition
from gantline.stores.sqlite.apply import apply
from gantline.stores.sqlite.connection import connect_writer, translated, while_busy
from gantline.stores.sqlite.handover import made_in_thread
from gantline.stores.sqlite.location import Location
from gantline.stores.sqlite.opened_file import OpenedFile


class SqliteTransaction:
    """Holds the write lock of the file from its begin on, so it should be short."""

    def __init__(self, connection: sqlite3.Connection, now: Callable[[], int]) -> None:
        self.connection = connection
        self._now = now

    async def apply(self, transition: Transition) -> ApplyResult:
        return apply(self.connection, [transition], self._now())[0]


class Turns:
    """Lets the transactions of an event loop wait for each other here, not for the file's lock.

    Who waits for that one does so in a thread of the loop's pool; if all of its threads waited,
    none would be left in which the holder of the lock could commit.
    """

    def __init__(self, location: Location) -> None:
        self._location = location
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            WeakKeyDictionary()
        )

    @asynccontextmanager
    async def begun(
        self, file: OpenedFile, now: Callable[[], int]
    ) -> AsyncIterator[SqliteTransaction]:
        """Begin when it is one's turn; raise StoreBusy where that takes too long."""
        turn = self._turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())
        try:
            async with asyncio.timeout(self._location.busy_seconds):
                await turn.acquire()
        except TimeoutError:
            raise StoreBusy(
                f"Another transaction of this process has had {self._location.path} for more than "
                f"{self._location.busy_seconds:g} s.",
                next_step="Fetch and compute before a transaction, and only write in it.",
            ) from None
        try:
            async with _begun(self._location, file, now) as transaction:
                yield transaction
        finally:
            turn.release()


@asynccontextmanager
async def _begun(
    location: Location, file: OpenedFile, now: Callable[[], int]
) -> AsyncIterator[SqliteTransaction]:
    """Begin on a connection of its own; commit at the end, roll back on an error."""
    connection = await made_in_thread(lambda: _begin(location, file), let_go=_roll_back)
    with translated(location):
        try:
            yield SqliteTransaction(connection, now)
        except BaseException:
            _roll_back(connection)
            raise
        loop = asyncio.get_running_loop()
        # Shielded: a commit that has begun has the connection to itself until it is over.
        await asyncio.shield(loop.run_in_executor(None, _commit, connection, file))


def _begin(location: Location, file: OpenedFile) -> sqlite3.Connection:
    file.check()  # first: where there is no file, SQLite would make one
    connection = connect_writer(location)
    with translated(location, connection):
        while_busy(location, lambda: connection.execute("BEGIN IMMEDIATE"))
    return connection


def _commit(connection: sqlite3.Connection, file: OpenedFile) -> None:
    try:
        file.check()
        connection.execute("COMMIT")
    finally:
        _roll_back(connection)


def _roll_back(connection: sqlite3.Connection) -> None:
    """End what is not committed, and let the file go."""
    with closing(connection):
        if connection.in_transaction:
            connection.execute("ROLLBACK")

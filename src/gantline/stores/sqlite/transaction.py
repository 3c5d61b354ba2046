"""Transactions of others on the jobs' file.

A caller submits in its own transaction; a handler completes its run in one of its own.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from gantline.contract.errors import StoreBusy, StoreMisconfigured
from gantline.contract.results import ApplyResult
from gantline.contract.transition import Transition
from gantline.stores.sqlite.apply import apply
from gantline.stores.sqlite.connection import (
    OpenedFile,
    connect_writer,
    retry_while_busy,
    translate_errors,
)
from gantline.stores.sqlite.location import Location


def check_caller(connection: Any, file: Path) -> None:
    """Raise StoreMisconfigured unless the connection is open on the jobs' file."""
    if not isinstance(connection, sqlite3.Connection):
        raise _wrong_driver(connection, file)
    try:
        is_there = _is_open_on(connection, file)
    except sqlite3.ProgrammingError as error:  # closed, or made in another thread
        raise StoreMisconfigured(
            f"The connection cannot be used here ({error}).",
            next_step="Give one that is open; for use in another thread, as by submit_sync, "
            "open it with check_same_thread=False.",
        ) from error
    if not is_there:
        raise StoreMisconfigured(
            f"The connection is not open on {file}, where the jobs are.",
            next_step="Open it on the same file, or submit without `connection`.",
        )


def _wrong_driver(connection: Any, file: Path) -> StoreMisconfigured:
    kind = type(connection)
    if kind.__module__.partition(".")[0] == "sqlalchemy":
        next_step = (
            "In `engine.begin()` give `connection.connection.driver_connection`, "
            "which is sqlite3's own; or submit without `connection`."
        )
    else:
        next_step = "Give a sqlite3.Connection on that file, or submit without `connection`."
    return StoreMisconfigured(
        f"The jobs are in the SQLite file {file}, and {kind.__module__}.{kind.__qualname__} is not "
        f"a connection of sqlite3.",
        next_step=next_step,
    )


def _is_open_on(connection: sqlite3.Connection, file: Path) -> bool:
    files = [row[2] for row in connection.execute("PRAGMA database_list") if row[1] == "main"]
    return any(name and Path(name).samefile(file) for name in files)


@contextmanager
def join_transaction(connection: sqlite3.Connection, location: Location) -> Iterator[None]:
    """Write in the caller's transaction: all or nothing, isolated from the first read on."""
    if not connection.in_transaction:
        if connection.isolation_level is None:
            raise StoreMisconfigured(
                "The connection has no transaction to join.", next_step="Execute BEGIN first."
            )
        # Python would begin one only at the first write, which is too late for our reads.
        with translate_errors(location):
            retry_while_busy(location, lambda: connection.execute("BEGIN IMMEDIATE"))
    connection.execute("SAVEPOINT gantline")
    try:
        with translate_errors(location):
            yield
    except BaseException:
        connection.execute("ROLLBACK TO gantline")
        raise
    finally:
        connection.execute("RELEASE gantline")


class SqliteTransaction:
    """Holds the write lock of the file from its beginning on, so it should be short."""

    def __init__(self, connection: sqlite3.Connection, now: Callable[[], int]) -> None:
        self.connection = connection
        self._now = now

    async def apply(self, transition: Transition) -> ApplyResult:
        return apply(self.connection, [transition], self._now())[0]


class TransactionQueue:
    """Makes the transactions of an event loop wait for each other here, not for the file's lock.

    A waiter for that lock waits in a thread of the loop's pool; if all of its threads waited,
    none would be left in which the holder of the lock could commit.
    """

    def __init__(self, location: Location) -> None:
        self._location = location
        self._transactions: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            WeakKeyDictionary()
        )

    @asynccontextmanager
    async def begin(
        self, file: OpenedFile, now: Callable[[], int]
    ) -> AsyncIterator[SqliteTransaction]:
        """Begin when no other has begun; raise StoreBusy where that takes too long."""
        turn = self._transactions.setdefault(asyncio.get_running_loop(), asyncio.Lock())
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
            async with _begin_alone(self._location, file, now) as transaction:
                yield transaction
        finally:
            turn.release()


@asynccontextmanager
async def _begin_alone(
    location: Location, file: OpenedFile, now: Callable[[], int]
) -> AsyncIterator[SqliteTransaction]:
    """Begin on a connection of its own; commit at the end, roll back on an error."""
    connection = await make_in_thread(lambda: _begin(location, file), release=_roll_back)
    with translate_errors(location):
        try:
            yield SqliteTransaction(connection, now)
        except BaseException:
            _roll_back(connection)
            raise
        loop = asyncio.get_running_loop()
        # Shielded: nothing else may use the connection until a commit that has begun is over.
        await asyncio.shield(loop.run_in_executor(None, _commit, connection, file))


def _begin(location: Location, file: OpenedFile) -> sqlite3.Connection:
    file.check()  # first: where there is no file, SQLite would create one
    connection = connect_writer(location)
    with translate_errors(location, connection):
        retry_while_busy(location, lambda: connection.execute("BEGIN IMMEDIATE"))
    return connection


def _commit(connection: sqlite3.Connection, file: OpenedFile) -> None:
    try:
        file.check()
        connection.execute("COMMIT")
    finally:
        _roll_back(connection)


def _roll_back(connection: sqlite3.Connection) -> None:
    """Roll back what is not committed, and close the connection."""
    with closing(connection):
        if connection.in_transaction:
            connection.execute("ROLLBACK")


T = TypeVar("T")


async def make_in_thread(make: Callable[[], T], *, release: Callable[[T], None]) -> T:
    """Make something in a thread. If the caller is cancelled meanwhile, release what was made."""
    handover = _Handover(make, release)
    try:
        return await asyncio.to_thread(handover.make)
    except asyncio.CancelledError:
        handover.cancel()
        raise


class _Handover(Generic[T]):
    """Needs no event loop to clean up: at the end of a program the loop ends first."""

    def __init__(self, make: Callable[[], T], release: Callable[[T], None]) -> None:
        self._make = make
        self._release = release
        self._lock = Lock()
        self._made: list[T] = []
        self._is_cancelled = False

    def make(self) -> T:
        made = self._make()
        with self._lock:
            self._made.append(made)
            self._clean_up()
        return made

    def cancel(self) -> None:
        with self._lock:
            self._is_cancelled = True
            self._clean_up()

    def _clean_up(self) -> None:
        while self._is_cancelled and self._made:
            self._release(self._made.pop())

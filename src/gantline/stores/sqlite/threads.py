"""The threads that own connections: one that writes, a few that read beside it.

Group commit: the writer puts all work that arrived during one commit into the next. Each piece of
work has a savepoint of its own, so that it fails alone. Its caller is answered only when the commit
is on the disk, in the file that others will read.
"""

import asyncio
import os
import sqlite3
import traceback
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from queue import LifoQueue
from threading import Lock
from typing import Any, Final, Generic, TypeVar

from gantline.contract.errors import InvalidInput, StoreError, StoreUnavailable
from gantline.runtime import start_inbox, thread_pool
from gantline.stores.sqlite.connection import (
    OpenedFile,
    connect_reader,
    connect_writer,
    retry_while_busy,
    translate_error,
    translate_errors,
)
from gantline.stores.sqlite.location import Location

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

# Short transactions, so that other processes can write in between.
_MOST_PER_COMMIT: Final = 64
_COMMITS_PER_CHECK: Final = 100
_LONGEST_LOG_BYTES: Final = 64 * 1024 * 1024
_CHECKPOINT_WAIT_MS: Final = 2_000


class _Task:
    __slots__ = ("error", "future", "loop", "value", "work")

    def __init__(self, work: Work[Any], loop: asyncio.AbstractEventLoop) -> None:
        self.work = work
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.value: Any = None
        self.error: BaseException | None = None


class Writer:
    """Runs pieces of work on the writing connection, in order; each returns when it is durable."""

    def __init__(
        self,
        location: Location,
        file: OpenedFile,
        *,
        name: str,
        before_commit: Callable[[], None] | None = None,
    ) -> None:
        self._location = location
        self._file = file
        self._before_commit = before_commit
        self._connection = connect_writer(location)
        self._closed = False
        self._lock = Lock()
        self._process = os.getpid()
        self._commits = 0
        self._log_file = location.path.with_name(f"{location.path.name}-wal")
        try:
            self._inbox = start_inbox(
                self._serve, most=_MOST_PER_COMMIT, at_end=self._close_connection, name=name
            )
        except BaseException:
            self._connection.close()
            raise

    async def run(self, work: Work[T]) -> T:
        """Do `work` in a transaction; return when it is committed. Any event loop may call."""
        task = _Task(work, asyncio.get_running_loop())
        future: asyncio.Future[T] = task.future
        with self._lock:
            if self._closed or os.getpid() != self._process:
                raise StoreUnavailable("The store is closed.", next_step="Open it again.")
            self._inbox.put(task)
        del task  # it refers to the error, which refers to this frame: a cycle with an open cursor
        return await future

    def close(self) -> None:
        """Finish the work that has been accepted, then close the file."""
        self.end()
        self._inbox.join()

    def end(self) -> None:
        """Close without waiting."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._inbox.end()

    # -- in the thread ----------------------------------------------------------------------------

    def _serve(self, tasks: list[_Task]) -> None:
        self._commit(tasks)
        _deliver_results(tasks)

    def _close_connection(self) -> None:
        self._connection.close()  # whichever it is by then

    def _commit(self, tasks: list[_Task]) -> None:
        try:
            retry_while_busy(self._location, lambda: self._connection.execute("BEGIN IMMEDIATE"))
            for task in tasks:
                # A caller that was cancelled before we began gets nothing: a claim would be lost.
                if not task.future.cancelled():
                    self._attempt(task)
            if self._before_commit:
                self._before_commit()
            self._file.check()
            self._connection.execute("COMMIT")
        except BaseException as error:  # whatever it is, the callers must get it
            cause = self._file.problem() or error
            for task in tasks:
                task.error = self._translate_error(cause)
            self._recover()
        else:
            self._truncate_log()

    def _recover(self) -> None:
        """Leave the failed transaction; by a new connection where a rollback fails."""
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            with suppress(sqlite3.Error, StoreError):
                self._connection.close()
                self._file.check()
                self._connection = connect_writer(self._location)

    def _truncate_log(self) -> None:
        """Truncate a long log. While readers overlap, SQLite never does, and the log would grow."""
        self._commits += 1
        if self._commits % _COMMITS_PER_CHECK:
            return
        with suppress(OSError, sqlite3.Error):
            if self._log_file.stat().st_size > _LONGEST_LOG_BYTES:
                self._connection.execute(f"PRAGMA busy_timeout = {_CHECKPOINT_WAIT_MS}")
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                self._connection.execute("PRAGMA busy_timeout = 0")

    def _attempt(self, task: _Task) -> None:
        self._connection.execute("SAVEPOINT task")
        try:
            task.value = task.work(self._connection)
        except BaseException as error:  # it is raised at the caller
            # Its frames may refer to an open cursor, which keeps its snapshot.
            traceback.clear_frames(error.__traceback__)
            if not self._connection.in_transaction:
                raise  # SQLite rolled back the whole transaction (disk full, I/O error)
            self._connection.execute("ROLLBACK TO task")
            task.error = self._translate_error(error)
        self._connection.execute("RELEASE task")

    def _translate_error(self, error: BaseException) -> BaseException:
        if isinstance(error, sqlite3.Error):
            return translate_error(error, self._location)
        if isinstance(error, UnicodeEncodeError | OverflowError):
            return InvalidInput(f"SQLite cannot keep this ({error}).")
        if isinstance(error, StopIteration):
            return RuntimeError(repr(error))  # a future cannot hold the other
        return error


def _deliver_results(tasks: list[_Task]) -> None:
    """Wake each event loop once, however many of its callers have results."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Task]] = defaultdict(list)
    for task in tasks:
        by_loop[task.loop].append(task)
    for loop, finished in by_loop.items():
        with suppress(RuntimeError):  # that loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_resolve_futures, finished)


def _resolve_futures(tasks: list[_Task]) -> None:
    for task in tasks:
        if task.future.done():
            continue  # its caller was cancelled
        if task.error is not None:
            task.future.set_exception(task.error)
        else:
            task.future.set_result(task.value)


_READERS: Final = 2
# More than a tenant may have under way in an API, or its searches would stop those of others.
_SEARCHERS: Final = 6
# How often a search looks whether anybody still waits for it: after a millisecond or so.
_STEPS_PER_LOOK: Final = 10_000


class Readers:
    """Run reading work; each piece sees one consistent snapshot of the database."""

    def __init__(
        self, location: Location, file: OpenedFile, *, threads: int = _READERS, name: str
    ) -> None:
        self._location = location
        self._file = file
        self._idle: LifoQueue[_Reader] = LifoQueue()
        self._threads = thread_pool(threads, name)
        self._closed = False
        try:
            for _ in range(threads):
                self._idle.put(_Reader(connect_reader(location)))
        except BaseException:
            self.close()
            raise

    @classmethod
    def of_searches(cls, location: Location, file: OpenedFile) -> "Readers":
        """Those for work that may look at all jobs: nobody who reads one job waits for it."""
        return cls(location, file, threads=_SEARCHERS, name="gantline-searcher")

    async def run(self, work: Work[T]) -> T:
        if self._closed:
            raise StoreUnavailable("The store is closed.", next_step="Open it again.")
        reading = _Reading(work)
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, self._read, reading)
        except asyncio.CancelledError:
            reading.is_given_up = True  # others wait for its thread
            raise

    def _read(self, reading: "_Reading[T]") -> T:
        self._file.check()
        reader = self._idle.get()
        connection, reader.reading = reader.connection, reading
        try:
            with translate_errors(self._location):
                connection.execute("BEGIN")
                try:
                    return reading.work(connection)
                except BaseException as error:
                    # Its frames may refer to an open cursor, which keeps its snapshot.
                    traceback.clear_frames(error.__traceback__)
                    raise
                finally:
                    reader.reading = None
                    connection.execute("COMMIT")
        finally:
            self._idle.put(reader)

    def close(self) -> None:
        """Finish what is being read, then close the file."""
        self._closed = True
        self._threads.shutdown()
        while not self._idle.empty():
            self._idle.get().connection.close()


class _Reading(Generic[T]):
    """A piece of work, and whether its caller has been cancelled."""

    __slots__ = ("is_given_up", "work")

    def __init__(self, work: Work[T]) -> None:
        self.work = work
        self.is_given_up = False


class _Reader:
    """A connection that ends what it reads when nobody waits for that any more."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.reading: _Reading[Any] | None = None
        connection.set_progress_handler(self._is_given_up, _STEPS_PER_LOOK)

    def _is_given_up(self) -> bool:
        return self.reading is not None and self.reading.is_given_up

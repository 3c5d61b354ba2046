"""The readers: a few threads with read-only connections, beside the writer and never in its way."""

import asyncio
import sqlite3
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import LifoQueue
from typing import Final, TypeVar

from gantline.contract.errors import StoreUnavailable
from gantline.stores.sqlite.connection import connect_reader, translated
from gantline.stores.sqlite.location import Location
from gantline.stores.sqlite.opened_file import OpenedFile

T = TypeVar("T")

_READERS: Final = 2


class Readers:
    """Run reading work; each piece sees one consistent snapshot of the database."""

    def __init__(self, location: Location, file: OpenedFile) -> None:
        self._location = location
        self._file = file
        self._idle: LifoQueue[sqlite3.Connection] = LifoQueue()
        self._threads = ThreadPoolExecutor(_READERS, thread_name_prefix="gantline-reader")
        self._closed = False
        try:
            for _ in range(_READERS):
                self._idle.put(connect_reader(location))
        except BaseException:
            self.close()
            raise

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            raise StoreUnavailable("The store is closed.", next_step="Open it again.")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read, work)

    def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        self._file.check()
        connection = self._idle.get()
        try:
            with translated(self._location):
                connection.execute("BEGIN")
                try:
                    return work(connection)
                except BaseException as error:
                    # Its frames may hold a cursor, and an open cursor holds its snapshot.
                    traceback.clear_frames(error.__traceback__)
                    raise
                finally:
                    connection.execute("COMMIT")
        finally:
            self._idle.put(connection)

    def close(self) -> None:
        """Finish what is being read, then let the file go."""
        self._closed = True
        self._threads.shutdown()
        while not self._idle.empty():
            self._idle.get().close()

"""Connections with the right pragmas, SQLite's errors as ours, and the check of the file."""

import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from gantline.contract.errors import (
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
)
from gantline.runtime import monotonic, random
from gantline.stores.diagnostics import Advice
from gantline.stores.sqlite.location import Location

_PRIVATE: Final = 0o600
_OTHERS: Final = 0o007
_SET_UP_BUSY_MS: Final = 5_000
# Measured with `make bench`: with fewer, larger checkpoints, commits wait less for their fsync.
_CHECKPOINT_PAGES: Final = 4_000
# The default of 2 MB makes a claim over a thousand types of a million jobs twice as slow.
_CACHE_KIB: Final = 16_000
_SHORTEST_WAIT_SECONDS: Final = 0.0002
_LONGEST_WAIT_SECONDS: Final = 0.02

T = TypeVar("T")


def connect_writer(location: Location) -> sqlite3.Connection:
    """Open a connection that writes. Its caller retries when busy, so SQLite must not wait."""
    connection = _connect(location)
    with translate_errors(location, connection):
        # SQLite's own timeout does not cover this: of two that switch together, both are refused.
        mode = retry_while_busy(
            location, lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        )
        if mode != "wal":
            raise StoreMisconfigured(
                f"{location.path} cannot use a write-ahead log (it stays in mode {mode!r}).",
                next_step="Put the file on an ordinary local disk.",
            )
        connection.execute(f"PRAGMA synchronous = {location.sync.upper()}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        connection.execute("PRAGMA busy_timeout = 0")
    return connection


def connect_reader(location: Location) -> sqlite3.Connection:
    """Open a connection that can only read."""
    connection = _connect(location)
    with translate_errors(location, connection):
        connection.execute("PRAGMA query_only = ON")
    return connection


def _connect(location: Location) -> sqlite3.Connection:
    _make_private(location.path)
    with translate_errors(location):
        connection = sqlite3.connect(
            location.path,
            isolation_level=None,
            check_same_thread=False,
            timeout=_SET_UP_BUSY_MS / 1000,
        )
        connection.text_factory = _decode_text
    return connection


def _make_private(path: Path) -> None:
    """Make a file that is not there yet, for its owner alone.

    SQLite gives its log and its index the mode of the file. Opening and closing the file here would
    drop the locks that other connections of this process have on it, so it is made without.
    """
    if sys.platform != "win32":
        with suppress(OSError):  # it is there; or SQLite says why it cannot be
            os.mknod(os.path.realpath(path), _PRIVATE)


def describe_mode(path: Path) -> Advice:
    """Say whether others than its owner and its group can read or write a file that was there."""
    mode = path.stat().st_mode & 0o777
    return Advice(
        f"the mode of {path} is {mode:03o}",
        not mode & _OTHERS,
        f"All users of this host can open it: chmod o-rwx {path}*",
    )


def retry_while_busy(location: Location, attempt: Callable[[], T]) -> T:
    """Try again after jittered waits while another process has the lock, as long as allowed."""
    give_up_at = monotonic() + location.busy_seconds
    wait = _SHORTEST_WAIT_SECONDS
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not is_busy or monotonic() >= give_up_at:
                raise
        time.sleep(wait * (0.5 + random()))  # noqa: TID251  # in a thread of its own
        wait = min(wait * 2, _LONGEST_WAIT_SECONDS)


def _decode_text(text: bytes) -> str:
    # One row with a bad text, written by another program, must not stop a sweep over all rows.
    return text.decode("utf-8", "replace")


@contextmanager
def translate_errors(
    location: Location, connection: sqlite3.Connection | None = None
) -> Iterator[None]:
    """Raise our errors for SQLite's, and close a connection that could not be set up."""
    try:
        yield
    except (sqlite3.Error, StoreError) as error:
        if connection is not None:
            connection.close()
        if isinstance(error, StoreError):
            raise
        raise translate_error(error, location) from error


def translate_error(error: sqlite3.Error, location: Location) -> StoreError:
    """Name the cause and the next step."""
    path = location.path
    primary = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    match primary:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreBusy(
                f"{path} is locked by another program for more than {location.busy_seconds:g} s.",
                next_step="Find what holds it open (a shell, a backup) and end that.",
            )
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return StoreCorrupt(
                f"{path} is damaged or is not a SQLite database ({error}).",
                next_step="Keep a copy, then restore a backup or use sqlite3's .recover.",
            )
        case sqlite3.SQLITE_FULL:
            return StoreUnavailable(f"The disk of {path} is full.", next_step="Free some space.")
        case sqlite3.SQLITE_IOERR:
            return StoreUnavailable(
                f"Reading or writing {path} failed ({error}).", next_step="Check the disk."
            )
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return StoreMisconfigured(
                f"{path} cannot be opened for writing ({error}).",
                next_step="Give the user write access to the file and to its folder.",
            )
        case _:
            return StoreError(f"SQLite refused a statement on {path} ({error}).")


# A removed log or index does the same harm: each process would continue with its own.
_BESIDE: Final = ("-wal", "-shm")

_Identity = tuple[int, int, bool]


class OpenedFile:
    """A database with its log and its index, as they were when the store was opened.

    SQLite does not notice when its files were removed or replaced: it continues to write to them,
    and these writes are lost. A check is three calls of stat: 9 µs alone, 18 µs of a commit of one
    job, which takes 200 µs without a sync of the disk.
    """

    def __init__(self, path: Path) -> None:
        # SQLite puts the other two beside the file itself, not beside a link to it.
        real = os.path.realpath(path)
        self._names = [os.path.abspath(path), *(f"{real}{suffix}" for suffix in _BESIDE)]
        self._known: list[_Identity | None] = []

    def remember(self) -> None:
        """Store the identity of the files as they are now. Call it after the first read."""
        self._known = self._identify()

    def check(self) -> None:
        """Raise StoreUnavailable where a file is not the one that was opened."""
        if problem := self.problem():
            raise problem

    def problem(self) -> StoreUnavailable | None:
        if not self._known:
            return None
        found = self._identify()
        if found == self._known:
            return None
        pairs = zip(self._names, self._known, found, strict=True)
        name = next(name for name, before, now in pairs if before != now)
        return StoreUnavailable(
            f"{name} was removed, replaced or emptied while it was open.",
            next_step="Put back the same file; or stop all that use it, restore it, start again.",
        )

    def _identify(self) -> list[_Identity | None]:
        database, *others = self._names
        return [_identity(database, True), *(_identity(name, False) for name in others)]


def _identity(name: str, is_database: bool) -> _Identity | None:
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_dev, found.st_ino, is_database and found.st_size == 0

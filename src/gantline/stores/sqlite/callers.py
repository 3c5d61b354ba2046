"""Submitting in the caller's own transaction, on a connection that it hands in."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gantline.contract.errors import StoreMisconfigured
from gantline.stores.sqlite.connection import translated, while_busy
from gantline.stores.sqlite.location import Location


def check_caller(connection: Any, file: Path) -> None:
    """Raise StoreMisconfigured unless a job can be written to the jobs' file through it."""
    if not isinstance(connection, sqlite3.Connection):
        raise _not_sqlite3(connection, file)
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


def _not_sqlite3(connection: Any, file: Path) -> StoreMisconfigured:
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
def joined(connection: sqlite3.Connection, location: Location) -> Iterator[None]:
    """Write in somebody else's transaction: all of it or nothing, and isolated from the look on."""
    if not connection.in_transaction:
        if connection.isolation_level is None:
            raise StoreMisconfigured(
                "The connection has no transaction to join.", next_step="Execute BEGIN first."
            )
        # Python would begin one at the first write only, too late for what is looked up before.
        with translated(location):
            while_busy(location, lambda: connection.execute("BEGIN IMMEDIATE"))
    connection.execute("SAVEPOINT gantline")
    try:
        with translated(location):
            yield
    except BaseException:
        connection.execute("ROLLBACK TO gantline")
        raise
    finally:
        connection.execute("RELEASE gantline")

"""The schema of a SQLite file: checked and migrated. Safe with several processes."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from gantline.contract.errors import SchemaMismatch, StoreMisconfigured
from gantline.stores.migrations import AppliedMigration, Migration, load_migrations, plan
from gantline.stores.sqlite.connection import (
    connect_reader,
    connect_writer,
    retry_while_busy,
    translate_errors,
)
from gantline.stores.sqlite.location import Location, check_location

PACKAGE: Final = "gantline.stores.sqlite"

HISTORY = """
CREATE TABLE IF NOT EXISTS gantline_migration (
    number     INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    checksum   TEXT NOT NULL,
    works_with INTEGER NOT NULL,
    applied_at TEXT NOT NULL
) STRICT
"""
_DONE = "INSERT INTO gantline_migration VALUES (?, ?, ?, ?, strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))"


def migrate(
    connection: sqlite3.Connection, known: list[Migration] | None = None
) -> list[Migration]:
    """Apply what is missing, in the transaction that the caller has begun, and say what it was."""
    known = load_migrations(PACKAGE) if known is None else known
    connection.execute(HISTORY)
    missing = plan(known, read_applied(connection))
    for step in missing:
        for statement in _split_statements(step.sql):
            connection.execute(statement)
        connection.execute(_DONE, (step.number, step.name, step.checksum, step.works_with))
    return missing


def is_up_to_date(connection: sqlite3.Connection) -> bool:
    """Whether nothing is to be applied; raise SchemaMismatch for a file we must not touch."""
    return has_history(connection) and not plan(load_migrations(PACKAGE), read_applied(connection))


def has_history(connection: sqlite3.Connection) -> bool:
    names = connection.execute("SELECT name FROM sqlite_schema WHERE name = 'gantline_migration'")
    return names.fetchone() is not None


def read_applied(connection: sqlite3.Connection) -> list[AppliedMigration]:
    rows = connection.execute(
        "SELECT number, name, checksum, works_with FROM gantline_migration ORDER BY number"
    )
    return [AppliedMigration(*row) for row in rows]


def read_applied_to(file: Path) -> list[AppliedMigration]:
    """Read which steps a file has had; none where it does not exist or has no schema yet."""
    try:
        if not file.is_file():
            return []
    except OSError as error:
        raise StoreMisconfigured(f"The path of the database cannot be used: {error}.") from None
    location = Location(file)
    with translate_errors(location), closing(connect_reader(location)) as connection:
        return read_applied(connection) if has_history(connection) else []


def check(location: Location) -> None:
    """Refuse a file that lacks a migration, where we must not apply it."""
    if missing := plan(load_migrations(PACKAGE), read_applied_to(location.path)):
        first = missing[0]
        raise SchemaMismatch(
            f"{location.path} lacks the migrations from {first.number} ({first.name}) on.",
            next_step="Run `gantline db migrate`, or what `gantline db sql` prints.",
        )


def _split_statements(script: str) -> list[str]:
    """Split a script where SQLite sees complete statements; executescript would commit first."""
    statements, start = [], ""
    for line in script.splitlines(keepends=True):
        start += line
        if sqlite3.complete_statement(start):
            statements.append(start)
            start = ""
    return statements


_SCRIPT = """\
BEGIN IMMEDIATE;
{history};
{steps}
COMMIT;
"""
_STEP = """
-- {step.number:04} {step.name}
{step.sql}
INSERT INTO gantline_migration VALUES (
    {step.number}, '{step.name}', '{step.checksum}', {step.works_with},
    strftime('%Y-%m-%dT%H:%M:%SZ', 'now'));
"""


class SqliteMigrator:
    """Reads and changes the schema of one file, on a connection of its own. For operators."""

    def __init__(self, location: Location) -> None:
        self._location = location

    @property
    def known(self) -> list[Migration]:
        return load_migrations(PACKAGE)

    async def applied(self) -> list[AppliedMigration]:
        return await asyncio.to_thread(read_applied_to, self._location.path)

    async def migrate(self) -> list[Migration]:
        return await asyncio.to_thread(self._migrate)

    def _migrate(self) -> list[Migration]:
        location = self._location
        check_location(location)
        with closing(connect_writer(location)) as connection, translate_errors(location):
            retry_while_busy(location, lambda: connection.execute("BEGIN IMMEDIATE"))
            done = migrate(connection)
            connection.execute("COMMIT")
        return done

    def script(self, steps: Sequence[Migration]) -> str:
        return _SCRIPT.format(
            history=HISTORY.strip(), steps="".join(_STEP.format(step=step) for step in steps)
        )

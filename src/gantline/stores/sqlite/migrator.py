"""The schema of a SQLite file from outside: for operators."""

import asyncio
from collections.abc import Sequence
from contextlib import closing

from gantline.stores.migrations import AppliedMigration, Migration, load_migrations
from gantline.stores.sqlite import schema
from gantline.stores.sqlite.connection import connect_writer, translated, while_busy
from gantline.stores.sqlite.location import Location, check_place

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
    """Looks at and changes one file, on a connection of its own."""

    def __init__(self, location: Location) -> None:
        self._location = location

    @property
    def known(self) -> list[Migration]:
        return load_migrations(schema.PACKAGE)

    async def applied(self) -> list[AppliedMigration]:
        return await asyncio.to_thread(schema.applied_to, self._location.path)

    async def migrate(self) -> list[Migration]:
        return await asyncio.to_thread(self._migrate)

    def _migrate(self) -> list[Migration]:
        location = self._location
        check_place(location)
        with closing(connect_writer(location)) as connection, translated(location):
            while_busy(location, lambda: connection.execute("BEGIN IMMEDIATE"))
            done = schema.migrate(connection)
            connection.execute("COMMIT")
        return done

    def script(self, steps: Sequence[Migration]) -> str:
        return _SCRIPT.format(
            history=schema.HISTORY.strip(),
            steps="".join(_STEP.format(step=step) for step in steps),
        )

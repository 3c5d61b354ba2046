"""The schema of a PostgreSQL database: checked and migrated. Safe with several processes."""

from collections.abc import Sequence
from typing import Final

from gantline.contract.errors import SchemaMismatch, StoreMisconfigured
from gantline.stores.migrations import AppliedMigration, Migration, load_migrations, plan
from gantline.stores.postgres.calls import Calls, T, Work
from gantline.stores.postgres.location import Location
from gantline.stores.postgres.sql import Sql

PACKAGE: Final = "gantline.stores.postgres"

_IS_THERE = "SELECT to_regclass(%s), quote_ident(%s) = %s"
HISTORY = """
CREATE TABLE IF NOT EXISTS gantline.migration (
    number     integer PRIMARY KEY,
    name       text NOT NULL,
    checksum   text NOT NULL,
    works_with integer NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""
_DONE = """
INSERT INTO gantline.migration (number, name, checksum, works_with) VALUES (%s, %s, %s, %s)
"""
_APPLIED = "SELECT number, name, checksum, works_with FROM gantline.migration ORDER BY number"


async def read_applied(sql: Sql, location: Location) -> list[AppliedMigration]:
    """Read which steps the database has had; none where our schema does not exist yet."""
    name = location.schema
    ((history, is_plain),) = await sql.rows(_IS_THERE, f"{name}.migration", name, name)
    if not is_plain:
        raise StoreMisconfigured(
            f"{name!r} cannot be the schema of the jobs: it is a word of SQL.",
            next_step="Use another name.",
        )
    if history is None:
        return []
    return [AppliedMigration(*row) for row in await sql.rows(_APPLIED)]


async def find_pending(
    sql: Sql, location: Location, known: list[Migration] | None = None
) -> list[Migration]:
    """Find what is still to be applied."""
    known = load_migrations(PACKAGE) if known is None else known
    return plan(known, await read_applied(sql, location))


async def migrate(
    sql: Sql, location: Location, known: list[Migration] | None = None
) -> list[Migration]:
    """Apply what is missing, in the transaction that the caller has begun, and say what it was."""
    if not await find_pending(sql, location, known):
        return []
    await sql.run("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", location.schema)
    # Not IF NOT EXISTS, which needs the right to create one even where a DBA has created it.
    ((name,),) = await sql.rows("SELECT to_regnamespace(%s)::text", location.schema)
    if name is None:
        await sql.script(f"CREATE SCHEMA {location.schema}")
    await sql.script(HISTORY)
    missing = await find_pending(sql, location, known)
    for step in missing:
        await sql.script(step.sql)
        await sql.run(_DONE, step.number, step.name, step.checksum, step.works_with)
    return missing


async def check(sql: Sql, location: Location) -> None:
    """Refuse a database that lacks a migration, where we must not apply it."""
    if missing := await find_pending(sql, location):
        raise SchemaMismatch(
            f"The schema {location.schema!r} lacks the migrations from {missing[0].number} "
            f"({missing[0].name}) on.",
            next_step="Run `gantline db migrate`, or let a DBA run `gantline db sql`.",
        )


_SCRIPT = """\
BEGIN;
CREATE SCHEMA IF NOT EXISTS {schema};
{history};
{steps}
COMMIT;
"""
_STEP = """
-- {step.number:04} {step.name}
{step.sql}
INSERT INTO gantline.migration (number, name, checksum, works_with)
VALUES ({step.number}, '{step.name}', '{step.checksum}', {step.works_with});
"""


class PostgresMigrator:
    """Reads and changes one schema, on a connection of its own. For operators and DBAs."""

    def __init__(self, location: Location) -> None:
        self._location = location

    @property
    def known(self) -> list[Migration]:
        return load_migrations(PACKAGE)

    async def applied(self) -> list[AppliedMigration]:
        return await self._run(lambda sql: read_applied(sql, self._location))

    async def migrate(self) -> list[Migration]:
        return await self._run(lambda sql: migrate(sql, self._location))

    async def _run(self, work: Work[T]) -> T:
        calls = Calls(self._location)
        try:
            return await calls.run(work, atomic=True)
        finally:
            await calls.close()

    def script(self, steps: Sequence[Migration]) -> str:
        text = _SCRIPT.format(
            schema=self._location.schema,
            history=HISTORY.strip(),
            steps="".join(_STEP.format(step=step) for step in steps),
        )
        return self._location.sql(text).decode()

"""The schema of a PostgreSQL database from outside: for operators and DBAs."""

from collections.abc import Sequence

from gantline.stores.migrations import AppliedMigration, Migration, load_migrations
from gantline.stores.postgres import schema
from gantline.stores.postgres.calls import Calls, T, Work
from gantline.stores.postgres.location import Location

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
    """Looks at and changes one schema, on a connection of its own."""

    def __init__(self, location: Location) -> None:
        self._location = location

    @property
    def known(self) -> list[Migration]:
        return load_migrations(schema.PACKAGE)

    async def applied(self) -> list[AppliedMigration]:
        return await self._run(lambda sql: schema.applied_migrations(sql, self._location))

    async def migrate(self) -> list[Migration]:
        return await self._run(lambda sql: schema.migrate(sql, self._location))

    async def _run(self, work: Work[T]) -> T:
        calls = Calls(self._location)
        try:
            return await calls.run(work, atomic=True)
        finally:
            await calls.close()

    def script(self, steps: Sequence[Migration]) -> str:
        text = _SCRIPT.format(
            schema=self._location.schema,
            history=schema.HISTORY.strip(),
            steps="".join(_STEP.format(step=step) for step in steps),
        )
        return self._location.sql(text).decode()

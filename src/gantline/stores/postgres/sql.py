"""Statements on one connection: they name the schema `gantline`, and rows are tuples."""

from collections.abc import Mapping, Sequence

from psycopg import AsyncCursor
from psycopg.pq import Format
from psycopg.rows import tuple_row

from gantline.stores.postgres.connection import Connection
from gantline.stores.postgres.connection import Row as Row
from gantline.stores.postgres.location import Location


def join_one(table: str, column: str, value: str) -> str:
    """Write a join that the planner can only execute as a look-up of one row after the other.

    Otherwise it may read all of a table that is empty by its statistics.
    """
    return (
        f"CROSS JOIN LATERAL (SELECT * FROM gantline.{table} "  # noqa: S608  # constants only
        f"WHERE {table}.{column} = {value} OFFSET 0) AS {table}"
    )


def left_join_one(table: str, column: str, value: str) -> str:
    """Write the same join, with NULLs where there is no row."""
    inner = join_one(table, column, value).removeprefix("CROSS JOIN")
    return f"LEFT JOIN {inner} ON true"


class Sql:
    """Runs statements, each in one round trip."""

    def __init__(
        self, connection: Connection, location: Location, *, is_repeated: bool = False
    ) -> None:
        """`is_repeated`: the same work may have been done already, and its response was lost."""
        self.connection = connection
        self.is_repeated = is_repeated
        self._location = location

    async def rows(self, text: str, *values: object) -> list[Row]:
        """Run a statement; return all its rows."""
        async with self._cursor() as cursor:
            await cursor.execute(self._location.sql(text), values or None)
            return await cursor.fetchall()

    async def named(self, text: str, values: Mapping[str, object]) -> list[Row]:
        """The same with values by name, for those that come more than once."""
        async with self._cursor() as cursor:
            await cursor.execute(self._location.sql(text), values)
            return await cursor.fetchall()

    async def row(self, text: str, *values: object) -> Row | None:
        found = await self.rows(text, *values)
        return found[0] if found else None

    async def run(self, text: str, *values: object) -> int:
        """Run a statement that gives no rows; return how many it touched."""
        async with self._cursor() as cursor:
            await cursor.execute(self._location.sql(text), values or None)
            return cursor.rowcount

    async def run_with(self, text: str, values: Mapping[str, object]) -> None:
        """The same with values by name."""
        async with self._cursor() as cursor:
            await cursor.execute(self._location.sql(text), values)

    async def script(self, text: str) -> None:
        """Run statements without values, many at once."""
        await self.connection.execute(self._location.sql(text), prepare=False)

    async def each(self, text: str, rows: Sequence[Sequence[object]]) -> None:
        """Run a statement once per row, without waiting for each."""
        if not rows:
            return
        async with self._cursor() as cursor:
            await cursor.executemany(self._location.sql(text), rows)

    def _cursor(self) -> AsyncCursor[Row]:
        # Not the connection's own cursor: a handler may have set another kind of rows.
        cursor = AsyncCursor(self.connection, row_factory=tuple_row)
        cursor.format = Format.BINARY
        return cursor

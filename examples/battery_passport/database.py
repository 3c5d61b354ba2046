"""The database of the application: the queue's own, or one beside a queue that is not SQL."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import psycopg

from examples.battery_passport.books import Books
from windlass import Context, JobType

_SCHEMA: Final = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")
_SQLITE: Final = "sqlite:///"
_BUSY_SECONDS: Final = 30


class Step:
    """What one handler writes: rows, and the jobs that follow, all together or not at all."""

    def __init__(self, books: Books) -> None:
        self.books = books
        self.followers: list[tuple[JobType[Any, Any], Any]] = []

    def follow_up(self, job_type: JobType[Any, Any], payload: Any) -> None:
        self.followers.append((job_type, payload))


class Database:
    """Opens a connection for each use; in earnest put a pooler in front of PostgreSQL."""

    def __init__(self, url: str, *, has_queue: bool) -> None:
        """`has_queue`: the jobs are in this database too, so a job ends with its own writes."""
        # Behind the question mark are options of Windlass, which no driver knows.
        self._url = url.partition("?")[0]
        self._has_queue = has_queue

    async def create_tables(self) -> None:
        async with self.transaction() as (_, connection):
            if isinstance(connection, sqlite3.Connection):
                for statement in _SCHEMA.split(";\n"):
                    connection.execute(statement)
                return
            # IF NOT EXISTS is not safe against another process that does the same.
            await connection.execute("SELECT pg_advisory_xact_lock(827001)")
            await connection.execute(_SCHEMA.replace("BLOB", "BYTEA").encode())

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Books]:
        async with self.transaction() as (books, _):
            yield books

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[tuple[Books, Any]]:
        """A transaction of our own; jobs can be submitted in it by `connection=`."""
        if not self._url.startswith(_SQLITE):
            async with await psycopg.AsyncConnection.connect(self._url) as connection:
                yield Books(connection), connection
            return
        connect = sqlite3.connect(
            unquote(self._url.removeprefix(_SQLITE)), timeout=_BUSY_SECONDS, isolation_level=None
        )
        with closing(connect) as file:
            await asyncio.to_thread(file.execute, "BEGIN")
            yield Books(file), file
            file.execute("COMMIT")

    @asynccontextmanager
    async def step(self, ctx: Context, result: Any = None) -> AsyncIterator[Step]:
        """Write, and say what follows, in one transaction. To be a handler's last act."""
        raise NotImplementedError

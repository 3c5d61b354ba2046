"""The application's database: where the jobs are or, beside a queue that is not SQL, the outbox's.

A handler reads, computes, and then takes one step: its rows, the jobs that follow and the end of
its run are written together.
"""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from examples.battery_passport.books import Books
from gantline import Context, Gantline, JobType

_SCHEMA: Final = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")


class Step:
    """What a handler writes in the end."""

    def __init__(self, books: Books) -> None:
        self.books = books
        self.followers: list[tuple[JobType[..., Any], Any]] = []

    def follow_up(self, job_type: JobType[..., Any], payload: Any) -> None:
        """Have another job done, if this step is."""
        self.followers.append((job_type, payload))


class Database:
    """Transactions on the application's tables."""

    def __init__(self, jobs: Gantline) -> None:
        self._jobs = jobs

    async def create_tables(self) -> None:
        async with self._jobs.transaction() as connection:
            if isinstance(connection, sqlite3.Connection):
                for statement in _SCHEMA.split(";\n"):
                    connection.execute(statement)
            else:
                # IF NOT EXISTS does not protect from another process that does the same.
                await connection.execute("SELECT pg_advisory_xact_lock(827001)")
                await connection.execute(_SCHEMA.replace("BLOB", "BYTEA"))

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Books]:
        """A short transaction, mostly to read. On SQLite it holds the file's write lock."""
        async with self._jobs.transaction() as connection:
            yield Books(connection)

    @asynccontextmanager
    async def step(self, ctx: Context, result: Any) -> AsyncIterator[Step]:
        """Write all, or nothing. To be the last act of a handler, which then returns `result`."""
        if self._jobs.outbox is None:
            async with ctx.transaction(result) as connection:
                step = Step(Books(connection))
                yield step
                for job_type, payload in step.followers:
                    ctx.follow_up(job_type, payload)
        else:
            # The run ends when the handler returns. Killed in between, it is done once more: rows
            # that are there stay as they are, and followers are known by their idempotency keys.
            async with self._jobs.transaction() as connection:
                step = Step(Books(connection))
                yield step
                for job_type, payload in step.followers:
                    await job_type.submit(
                        payload,
                        tenant=ctx.job.tenant_id,
                        owner=ctx.job.created_by,
                        parent=ctx.job_id,
                        connection=connection,
                    )

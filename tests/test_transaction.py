"""jobs.transaction(): your own writes and submits, in the database where submits can join."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from gantline import Context, Gantline, JobType
from gantline.contract.errors import JobNotFound, StoreMisconfigured
from tests.servers.postgres import PostgresServer


@pytest.fixture(params=["sqlite", "postgres", "outbox on sqlite", "outbox on postgres"])
async def jobs(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Gantline]:
    if request.param.endswith("sqlite"):
        url = f"sqlite:///{tmp_path}/gantline.db"
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.url(schema=f"w{uuid4().hex}")
    is_outbox = request.param.startswith("outbox")
    async with Gantline("memory://", outbox=url) if is_outbox else Gantline(url) as jobs:
        yield jobs


@pytest.fixture
def order(jobs: Gantline) -> JobType[[int], int]:
    @jobs.job("order")
    async def order(number: int, ctx: Context) -> int:
        return number

    return order


async def execute(connection: Any, sql: str) -> None:
    """As each driver wants it."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute(sql)
    else:
        await connection.execute(sql)


async def test_what_is_submitted_in_it_runs_once_it_is_committed(
    jobs: Gantline, order: JobType[[int], int]
) -> None:
    async with jobs.running():
        async with jobs.transaction() as connection:
            await execute(connection, "CREATE TEMPORARY TABLE mine (n integer)")
            parent = uuid4()
            handle = await order.submit(7, connection=connection, parent=parent)
        assert await handle.result(timeout=30) == 7
        assert (await handle.status()).job.parent_job_id == parent


async def test_an_error_in_it_takes_all_back(jobs: Gantline, order: JobType[[int], int]) -> None:
    job_id = uuid4()

    async def submit_and_fail() -> None:
        async with jobs.transaction() as connection:
            await order.submit(7, job_id=job_id, connection=connection)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await submit_and_fail()
    async with jobs.transaction() as connection:
        later = await order.submit(8, connection=connection)
    async with jobs.running():
        assert await later.result(timeout=30) == 8
    with pytest.raises(JobNotFound):
        await jobs.get(job_id)


async def test_without_a_database_that_can_there_is_none() -> None:
    async with Gantline("memory://") as jobs:
        with pytest.raises(StoreMisconfigured, match="no transactions"):
            async with jobs.transaction():
                pass

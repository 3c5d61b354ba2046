"""Submitting in the caller's own transaction on SQLite: what cannot carry it is told."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
import sqlalchemy

from gantline import Gantline, JobType
from gantline.contract.errors import StoreMisconfigured


@pytest.fixture
def order(tmp_path: Path) -> JobType[[int], None]:
    jobs = Gantline(f"sqlite:///{tmp_path / 'gantline.db'}")

    @jobs.job("order")
    async def order(value: int) -> None: ...

    return order


@pytest.mark.parametrize(
    "handed_in",
    [
        psycopg.sql.SQL("SELECT 1"),
        sqlalchemy.create_engine("sqlite://"),
        object(),
    ],
    ids=["psycopg", "sqlalchemy", "nothing"],
)
async def test_what_is_no_connection_of_sqlite3_is_refused_with_the_next_step(
    order: JobType[[int], None], handed_in: object
) -> None:
    async with order.app:
        with pytest.raises(StoreMisconfigured, match=r"gantline\.db.*not a connection") as refused:
            await order.submit(1, connection=handed_in)
        assert "submit without `connection`" in refused.value.next_step


async def test_sqlalchemy_on_sqlite_carries_a_submit_as_the_refusal_says(
    order: JobType[[int], None], tmp_path: Path
) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'gantline.db'}")
    async with order.app as jobs:
        with engine.begin() as connection:
            with pytest.raises(StoreMisconfigured, match=r"connection\.driver_connection"):
                await order.submit(1, connection=connection)
            kept = await order.submit(1, connection=connection.connection.driver_connection)
        with engine.connect() as connection, connection.begin() as transaction:
            lost = await order.submit(1, connection=connection.connection.driver_connection)
            transaction.rollback()
        found = await jobs.store.get([kept.job_id, lost.job_id], tenant_id=None)
        assert [job is not None for job in found] == [True, False]
    engine.dispose()


async def test_a_connection_that_is_closed_or_of_another_thread_is_told(
    order: JobType[[int], None], tmp_path: Path
) -> None:
    async with order.app:
        with (
            closing(sqlite3.connect(tmp_path / "gantline.db")) as connection,
            pytest.raises(StoreMisconfigured, match="check_same_thread=False"),
        ):
            await asyncio.to_thread(order.submit_sync, 1, connection=connection)
        with pytest.raises(StoreMisconfigured, match="closed"):
            await order.submit(1, connection=connection)


async def test_a_transaction_of_one_s_own_may_be_the_first_use_of_a_store(
    order: JobType[[int], None], tmp_path: Path
) -> None:
    """Opening must not wait for the lock that the caller holds."""
    async with order.app:
        pass
    with closing(sqlite3.connect(tmp_path / "gantline.db", isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        kept = await order.submit(1, connection=connection)
        connection.execute("COMMIT")
    async with order.app as jobs:
        assert (await jobs.store.get([kept.job_id], tenant_id=None))[0] is not None

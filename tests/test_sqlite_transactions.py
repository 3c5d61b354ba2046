"""Transactions of handlers' own on SQLite: many at once take turns, whatever threads there are."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from gantline import Gantline
from gantline.contract.errors import StoreBusy


@pytest.fixture
async def jobs(tmp_path: Path) -> AsyncIterator[Gantline]:
    path = tmp_path / "gantline.db"
    async with Gantline(f"sqlite:///{path}?busy_seconds=1") as jobs:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE booking (n INTEGER)")
        yield jobs


async def test_those_who_wait_for_the_lock_leave_its_holder_a_thread_to_commit(
    jobs: Gantline,
) -> None:
    """Each waited in a thread once, and with all threads waiting nobody could commit."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))

    async def book(number: int) -> None:
        async with jobs.transaction() as connection:
            connection.execute("INSERT INTO booking VALUES (?)", [number])
            await asyncio.sleep(0)

    async with asyncio.timeout(20):
        await asyncio.gather(*map(book, range(20)))
    async with jobs.transaction() as connection:
        assert connection.execute("SELECT count(*) FROM booking").fetchone() == (20,)


async def test_who_waits_for_longer_than_is_allowed_is_told(jobs: Gantline) -> None:
    async with jobs.transaction():
        with pytest.raises(StoreBusy, match="more than 1 s"):
            async with jobs.transaction():
                pass
    async with jobs.transaction():
        pass

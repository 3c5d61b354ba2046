"""Searches on SQLite: nobody who reads one job waits for who looks at all of them."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gantline.contract.clock import SystemClock
from gantline.contract.query import JobFilter
from gantline.stores.sqlite import SqliteStore, open_store, query
from gantline.stores.sqlite.threads import _SEARCHERS

_ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = open_store(f"sqlite:///{tmp_path / 'gantline.db'}", clock=SystemClock())
    await store.open()
    yield store
    await store.close()


async def test_a_job_is_read_while_more_is_searched_than_there_are_threads(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key without any role searched its own jobs, and everybody's statuses took seconds."""
    may_end = threading.Event()

    def search(*_: Any, **__: Any) -> None:
        may_end.wait(60)

    monkeypatch.setattr(query, "find", search)
    searches = [
        asyncio.create_task(store.find(JobFilter(), limit=1)) for _ in range(2 * _SEARCHERS)
    ]
    try:
        async with asyncio.timeout(30):
            await store.ping()
            assert await store.get([], tenant_id=None) == []
        assert not any(one.done() for one in searches)
    finally:
        may_end.set()
        await asyncio.gather(*searches)


async def test_a_search_that_nobody_waits_for_ends(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a request that was given up after 30 s would keep its thread from others."""
    begun, ended = threading.Event(), threading.Event()

    def search(connection: sqlite3.Connection, *_: Any, **__: Any) -> None:
        begun.set()
        try:
            connection.execute(_ENDLESS).fetchall()
        finally:
            ended.set()

    monkeypatch.setattr(query, "find", search)
    searching = asyncio.create_task(store.find(JobFilter(), limit=1))
    assert await asyncio.to_thread(begun.wait, 30)
    searching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await searching
    assert await asyncio.to_thread(ended.wait, 30)

"""SQLite stores and their files, as the benchmarks use them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gantline.contract.clock import SystemClock
from gantline.stores.sqlite import SqliteStore
from gantline.stores.sqlite.location import Location


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqliteStore]:
    """A store with its defaults, so with a synced disk behind every answer."""
    store = SqliteStore(Location(path, sync="full"), clock=SystemClock())
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def remove_database(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)

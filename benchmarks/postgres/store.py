"""The PostgreSQL store itself, for what is measured or prepared without a worker."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from windlass.stores.postgres import PostgresStore
from windlass.stores.postgres.location import parse_url


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(parse_url(url))
    await store.open()
    try:
        yield store
    finally:
        await store.close()

"""The PostgreSQL store as an application opens it, for what is done without a worker."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from windlass import Windlass
from windlass.contract.store import JobStore


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[JobStore]:
    async with Windlass(url) as app:
        yield app.store

"""The PostgreSQL store as an application opens it, for what is done without a worker."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gantline import Gantline
from gantline.contract.store import JobStore


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[JobStore]:
    async with Gantline(url) as app:
        yield app.store

"""A prefix of its own for every test in the server that all share; and a server to break."""

import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest

from gantline.contract.clock import SystemClock
from gantline.stores.redis import RedisStore, open_store
from tests.servers.redis import RedisServer


@pytest.fixture
def prefix() -> str:
    return f"w{uuid4().hex}"


@pytest.fixture
def url(redis: RedisServer, prefix: str) -> str:
    return redis.url(prefix=prefix)


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    """One that may be killed, and that keeps what it has acknowledged."""
    server = RedisServer(appendonly="yes", appendfsync="always")
    yield server
    server.resume()
    server.stop()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[RedisStore]:
    store = open_store(url, clock=SystemClock())
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """What a test leaves open is complained of when it is collected: now, not in a later one."""
    yield
    gc.collect()

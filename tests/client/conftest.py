"""A served API, and both clients behind one face, so that every test is about both."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gantline.client.async_client import AsyncClient
from gantline.client.blocking import Client
from gantline.client.exchange import Retries
from tests.servers.http_api import ApiProcess

HASTY = Retries(first_pause_seconds=0.01, longest_pause_seconds=2)
KINDS = ("blocking", "awaiting")


class Asker:
    """One of the two clients; the blocking one is called in a thread."""

    def __init__(self, kind: str, url: str, api_key: str | None = None, **options: Any) -> None:
        make: Any = Client if kind == "blocking" else AsyncClient
        options.setdefault("retries", HASTY)
        self.client = make(url, api_key=api_key, **options)
        self._is_blocking = kind == "blocking"

    async def __call__(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        method = getattr(self.client, verb)
        if self._is_blocking:
            return await asyncio.to_thread(method, *args, **kwargs)
        return await method(*args, **kwargs)

    async def listed(self, verb: str, **kwargs: Any) -> list[Any]:
        found = getattr(self.client, verb)(**kwargs)
        if self._is_blocking:
            return await asyncio.to_thread(list, found)
        return [one async for one in found]

    async def close(self) -> None:
        if self._is_blocking:
            self.client.close()
        else:
            await self.client.close()


@asynccontextmanager
async def asking(kind: str, url: str, api_key: str | None = None, **options: Any) -> Any:
    asker = Asker(kind, url, api_key, **options)
    try:
        yield asker
    finally:
        await asker.close()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    """An API on SQLite that nobody works for: tests play the worker themselves."""
    store = f"sqlite:///{tmp_path_factory.mktemp('store')}/gantline.db"
    served = ApiProcess("tests.client.served:app", store=store)
    yield served
    served.stop()


@pytest.fixture(scope="module")
def working(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    """An API on SQLite with a worker beside it."""
    store = f"sqlite:///{tmp_path_factory.mktemp('store')}/gantline.db"
    served = ApiProcess("tests.client.served:app", store=store, GANTLINE_TEST_WORKER="yes")
    yield served
    served.stop()


@pytest.fixture
async def ask(kind: str, server: ApiProcess) -> AsyncIterator[Asker]:
    """The operator of `acme`."""
    async with asking(kind, server.url, "operator") as asker:
        yield asker

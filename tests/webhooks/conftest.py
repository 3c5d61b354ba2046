"""A receiver, and a shop that tells it about its jobs."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.servers.postgres import PostgresServer
from tests.servers.receiver import Receiver
from tests.webhooks.shop import Shop, open_shop


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.stop()


@pytest.fixture
async def shop(receiver: Receiver) -> AsyncIterator[Shop]:
    async with open_shop(receiver) as shop:
        yield shop


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/gantline.db?busy_seconds=30"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.url(schema=f"w{uuid4().hex}")

"""A schema of its own for every test, in the server that all of them share."""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest
from psycopg import AsyncConnection
from psycopg.errors import DeadlockDetected

from tests.servers.postgres import PostgresServer


@pytest.fixture
async def schema(postgres: PostgresServer) -> AsyncIterator[str]:
    name = f"w{uuid4().hex}"
    yield name
    async with await AsyncConnection.connect(postgres.url(), autocommit=True) as connection:
        await _drop(connection, name)


@pytest.fixture
def url(postgres: PostgresServer, schema: str) -> str:
    return postgres.url(schema=schema)


async def _drop(connection: AsyncConnection[Any], schema: str) -> None:
    """Again where a statement that a test has left behind is in the way: one of the two ends."""
    for _ in range(5):
        with suppress(DeadlockDetected):
            await connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())
            return

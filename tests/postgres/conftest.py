"""A schema of its own for every test, in the server that all of them share."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from psycopg import AsyncConnection

from tests.servers.postgres import PostgresServer


@pytest.fixture
async def schema(postgres: PostgresServer) -> AsyncIterator[str]:
    name = f"w{uuid4().hex}"
    yield name
    async with await AsyncConnection.connect(postgres.url(), autocommit=True) as connection:
        await connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE".encode())


@pytest.fixture
def url(postgres: PostgresServer, schema: str) -> str:
    return postgres.url(schema=schema)

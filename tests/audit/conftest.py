"""Chains in every store, and ways to write and verify them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from psycopg import AsyncConnection

from gantline.audit.chain import AuditChains, AuditEvent, FaultyEntry, NewAuditEvent
from gantline.audit.chain_writer import ChainWriter
from gantline.audit.verification import ChainReport, Checkpoint, verify_chain
from gantline.contract.store import JobStore
from gantline.stores import store_from_url
from gantline.testing.clock import FakeClock
from gantline.testing.faults import Call, intercepted
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

TENANT = "acme"


class Trail:
    """The audit trail of a store, as tests use it."""

    def __init__(self, store: JobStore, clock: FakeClock, url: str) -> None:
        self.store = store
        self.clock = clock
        self.url = url
        self.chains = AuditChains(store)
        self.writer = ChainWriter(store)

    async def append(self, count: int = 1, *, tenant_id: str = TENANT) -> list[AuditEvent]:
        """One block for each event."""
        return [
            await self.writer.append(tenant_id, draft(number)) for number in range(1, count + 1)
        ]

    async def verified(
        self, tenant_id: str = TENANT, checkpoint: Checkpoint | None = None
    ) -> ChainReport:
        return await verify_chain(
            tenant_id,
            self.chains.events(tenant_id),
            now=await self.store.ping(),
            checkpoint=checkpoint,
        )

    async def events(self, tenant_id: str = TENANT) -> list[AuditEvent]:
        """All that can be read, oldest first."""
        found = [event async for event in self.chains.events(tenant_id)]
        return [event for event in reversed(found) if not isinstance(event, FaultyEntry)]


def slow(store: JobStore) -> JobStore:
    """Every call lets others go first, so that what can come in between does."""

    async def around(verb: str, call: Call) -> Any:
        await asyncio.sleep(0)
        answer = await call()
        await asyncio.sleep(0)
        return answer

    return intercepted(store, around)


def draft(number: int = 1, **facts: Any) -> NewAuditEvent:
    payload = {"id": uuid4().hex, "number": number, **facts}
    return NewAuditEvent(
        aggregate=f"queue:q{number}", type="pauseQueue", actor="user:operator", payload=payload
    )


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
async def trail(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock
) -> AsyncIterator[Trail]:
    """In each store."""
    async for made in _trail(request.param, request, tmp_path, clock):
        yield made


@pytest.fixture(params=["sqlite", "postgres"])
async def sql_trail(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock
) -> AsyncIterator[Trail]:
    """In each store that somebody can reach past us."""
    async for made in _trail(request.param, request, tmp_path, clock):
        yield made


async def _trail(
    kind: str, request: pytest.FixtureRequest, folder: Path, clock: FakeClock
) -> AsyncIterator[Trail]:
    schema = f"w{uuid4().hex}"
    if kind == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.url(schema=schema)
    elif kind == "redis":
        redis: RedisServer = request.getfixturevalue("redis")
        url = redis.url(prefix=schema)
    else:
        url = {"memory": "memory://", "sqlite": f"sqlite:///{folder}/audit.db"}[kind]
    store = store_from_url(url, clock=clock)
    await store.open()
    yield Trail(store, clock, url)
    await store.close()
    if kind == "postgres":
        async with await AsyncConnection.connect(server.url(), autocommit=True) as connection:
            await connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())

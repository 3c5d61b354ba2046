"""The harnesses of our own stores, for the conformance suite."""

import os
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Literal, cast
from uuid import uuid4

from psycopg import AsyncConnection

from gantline.contract.store import JobStore
from gantline.stores.memory import MemoryStore
from gantline.stores.postgres import PostgresStore
from gantline.stores.postgres.location import parse_url
from gantline.stores.redis import RedisStore
from gantline.stores.redis.claim import new_tokens
from gantline.stores.redis.location import parse_url as parse_redis_url
from gantline.stores.slow_counts import SlowCounts
from gantline.stores.sqlite import SqliteStore
from gantline.stores.sqlite.location import Location
from gantline.testing.clock import FakeClock
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.servers.redis_cluster import RedisCluster


class MemoryHarness:
    """One memory store; every handle is the same object."""

    def __init__(self, make: Callable[..., JobStore] = MemoryStore) -> None:
        self.clock = FakeClock()
        self._store = make(clock=self.clock)

    async def open(self, *, before_commit: Callable[[], None] | None = None) -> JobStore:
        return self._store

    async def close(self) -> None:
        """Nothing to remove."""


class PostgresHarness:
    """A schema of its own in a server that many tests share; every handle has its connections."""

    def __init__(self, server: PostgresServer | PgBouncer, **options: str) -> None:
        self.clock = FakeClock()
        self._handles: list[PostgresStore] = []
        self.location = parse_url(server.url(schema=f"w{uuid4().hex}", **options))

    async def open(self, *, before_commit: Callable[[], None] | None = None) -> JobStore:
        store = PostgresStore(self.location, clock=self.clock, before_commit=before_commit)
        await store.open()
        # No time passes while it counts, so that it counts every time, on a slow machine too.
        store._parts.counts = SlowCounts(lambda: 0.0, lambda: 0.0)
        store._parts.dead_counts = SlowCounts(lambda: 0.0, lambda: 0.0)
        self._handles.append(store)
        return store

    async def close(self) -> None:
        for store in self._handles:
            await store.close()
        async with await AsyncConnection.connect(
            self.location.conninfo, autocommit=True
        ) as connection:
            await connection.execute(f"DROP SCHEMA {self.location.schema} CASCADE".encode())


class RedisHarness:
    """A prefix of its own in a server that many tests share; every handle has its connections."""

    def __init__(self, server: RedisServer | RedisCluster) -> None:
        self.clock = FakeClock()
        self._handles: list[RedisStore] = []
        self.location = parse_redis_url(server.url(prefix=f"w{uuid4().hex}"))

    async def open(
        self,
        *,
        before_commit: Callable[[], None] | None = None,
        tokens: Callable[[int], bytes] = new_tokens,
    ) -> JobStore:
        store = RedisStore(self.location, clock=self.clock, tokens=tokens)
        await store.open()
        self._handles.append(store)
        return store

    async def close(self) -> None:
        for store in self._handles:
            await store.close()


class SqliteHarness:
    """One file in a folder of its own; every handle has its own connections and threads."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self._folder = Path(mkdtemp(prefix="gantline-test-"))
        self._handles: list[SqliteStore] = []

    async def open(self, *, before_commit: Callable[[], None] | None = None) -> JobStore:
        location = Location(self._folder / "gantline.db", sync=sqlite_sync())
        store = SqliteStore(location, clock=self.clock, before_commit=before_commit)
        await store.open()
        self._handles.append(store)
        return store

    async def close(self) -> None:
        for store in self._handles:
            await store.close()
        rmtree(self._folder)


def sqlite_sync() -> Literal["full", "normal"]:
    """The matrix runs the suite again with the weaker setting."""
    return cast("Literal['full', 'normal']", os.environ.get("GANTLINE_TEST_SQLITE_SYNC", "full"))

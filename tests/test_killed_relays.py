"""Orders in a SQL database, their jobs on Redis, and relays that are killed: each job once."""

import asyncio
import random
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from gantline import Gantline
from gantline.contract.job import DEFAULT_QUEUE
from gantline.contract.query import JobFilter
from gantline.manager.relay import OUTBOX
from gantline.testing.liveness import watching
from tests.killed_relay import LEASE, application
from tests.redis.books import check_books, say
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(600)]

STEPS = (
    "after-claim",
    *(f"{when}-{verb}" for verb in ("insert", "apply", "delete") for when in ("before", "after")),
)
PATIENCE_SECONDS = 120
# All workers may be killed at once, and Redis with them: a lease, a new start on a slow machine,
# and what it takes to connect.
STARTS_WITHIN = LEASE + timedelta(seconds=15)


class Shop:
    """Takes orders in its own database, and has them shipped by jobs on Redis."""

    def __init__(self, outbox: str, connect: Callable[[], Any], store: str) -> None:
        self._urls = (outbox, store)
        self._connect = connect
        self.jobs: Gantline = application(outbox, store)
        (self._ship,) = self.jobs.job_types
        self.committed: dict[UUID, int] = {}
        self._rolled_back: set[UUID] = set()
        connection = connect()
        connection.execute("CREATE TABLE orders (number INTEGER)")
        connection.commit()
        connection.close()

    async def take_orders(self, first: int, count: int, *, is_kept: bool) -> None:
        connection, taken = self._connect(), dict[UUID, int]()
        for number in range(first, first + count):
            connection.execute(f"INSERT INTO orders VALUES ({number})")  # noqa: S608  # ours
            handle = await self._ship.submit(number, connection=connection)
            taken[handle.job_id] = number
        if is_kept:
            connection.commit()
            self.committed |= taken
        else:
            connection.rollback()
            self._rolled_back |= taken.keys()
        connection.close()

    async def relay(self, step: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.killed_relay", *self._urls, step),
            stdout=asyncio.subprocess.PIPE,
        )

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Orders leave the outbox, and are shipped, all the while."""
        assert self.jobs.outbox is not None
        outbox, store = self.jobs.outbox.store, self.jobs.store
        ship = (DEFAULT_QUEUE, self._ship.name)
        async with (
            watching(outbox, within=STARTS_WITHIN, lanes=[(OUTBOX, OUTBOX)]) as moving,
            watching(store, within=STARTS_WITHIN, lanes=[ship]) as shipping,
        ):
            yield
        moving.check()
        shipping.check()

    async def waiting(self) -> int:
        assert self.jobs.outbox is not None
        page = await self.jobs.outbox.store.find(JobFilter(tenant_id=None), limit=1)
        return len(page.items)

    async def has_orders(self) -> list[int]:
        connection = self._connect()
        rows = connection.execute("SELECT number FROM orders ORDER BY number").fetchall()
        connection.close()
        return [row[0] for row in rows]

    async def check_moved(self) -> None:
        """Whatever was committed is on Redis, once; what was not is nowhere."""
        moved = Counter[UUID]()
        after = None
        while True:
            job_filter = JobFilter(tenant_id=None)
            page = await self.jobs.store.find(job_filter, limit=500, after=after)
            for found in page.items:
                assert found.job.data() == self.committed[found.job.job_id]
                moved[found.job.job_id] += 1
            after = page.next
            if after is None:
                break
        assert moved == Counter(self.committed.keys())
        assert not self._rolled_back & moved.keys()
        assert sorted(self.committed.values()) == await self.has_orders()


@pytest.fixture
def durable_redis() -> Iterator[RedisServer]:
    server = RedisServer(appendonly="yes", appendfsync="always")
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", "postgres"])
async def shop(
    request: pytest.FixtureRequest, tmp_path: Path, durable_redis: RedisServer
) -> AsyncIterator[Shop]:
    if request.param == "sqlite":
        file = tmp_path / "shop.db"
        outbox = f"sqlite:///{file}?busy_seconds=60"
        shop = Shop(outbox, lambda: sqlite3.connect(file, timeout=60), durable_redis.url())
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        schema = f"s{uuid4().hex}"
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {schema}_shop".encode())
        outbox = server.url(schema=schema)
        options = f"-c search_path={schema}_shop"
        shop = Shop(
            outbox, lambda: psycopg.connect(server.url(), options=options), durable_redis.url()
        )
    async with shop.jobs:
        yield shop


@pytest.mark.chaos
async def test_a_relay_that_is_killed_at_any_step_loses_and_doubles_nothing(shop: Shop) -> None:
    """One outbox and one store for all steps: each relay meets what the one before has left."""
    for number, step in enumerate(STEPS):
        await shop.take_orders(100 * number, 5, is_kept=True)
        await shop.take_orders(100 * number + 50, 5, is_kept=False)
        process = await shop.relay(step)
        assert await process.wait() == -signal.SIGKILL, step
        await asyncio.sleep(LEASE.total_seconds())
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await shop.waiting():
            assert await (await shop.relay("never")).wait() == 0
    await shop.check_moved()


class Killing:
    """Workers that relay and run jobs, killed at random and started anew."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._is_over = False
        self.killed = 0

    @asynccontextmanager
    async def going_on(self, processes: int) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self._keep_one_running()) for _ in range(processes)]
        yield
        self._is_over = True
        await asyncio.gather(*tasks)

    async def _keep_one_running(self) -> None:
        while not self._is_over:
            process = await self._shop.relay("work")
            assert process.stdout is not None
            await process.stdout.readline()
            await asyncio.sleep(random.uniform(0.2, 3))
            process.kill()
            await process.wait()
            self.killed += 1


@pytest.mark.chaos
async def test_each_order_is_shipped_once_whatever_is_killed(
    shop: Shop, durable_redis: RedisServer
) -> None:
    killing = Killing(shop)
    async with killing.going_on(processes=4), shop.watched():
        for number in range(400):
            await shop.take_orders(10 * number, 5, is_kept=number % 4 != 3)
            if number % 40 == 39:
                await asyncio.to_thread(durable_redis.kill)
                await asyncio.to_thread(durable_redis.start)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await shop.waiting() or await _unfinished(shop):  # noqa: ASYNC110  # elsewhere
                await asyncio.sleep(0.1)
    await shop.check_moved()
    accepted = list(shop.committed)
    events = await check_books(durable_redis.url(), accepted, some_given_up=True)
    say(
        f"{len(shop.committed)} orders, {killing.killed} workers killed, 10 restarts of Redis, "
        f"events {dict(events)}"
    )


async def _unfinished(shop: Shop) -> bool:
    counts = await shop.jobs.store.counts(tenant_id=None)
    return any(lane.queued or lane.running for lane in counts)

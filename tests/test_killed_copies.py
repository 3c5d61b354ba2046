"""Copies in processes that are killed: run again, they end equal, and no job can run twice."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from gantline.contract.clock import SystemClock
from gantline.contract.store import JobStore
from gantline.contract.stored import Part, StoredJob
from gantline.moving.closing import read_closing
from gantline.stores import store_from_url
from gantline.testing.conformance.moving import read_out
from gantline.testing.factories import make_new
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(180)]

JOBS = 1200
"""More than two pages."""
POINTS = (
    "closing",
    "waiting",
    "emptying",
    "copying jobs",
    "comparing jobs of the target",
    "comparing jobs of the source",
    "copying keys",
    "comparing records of the source",
    "handing",
)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[JobStore]:
    store = store_from_url(url, clock=SystemClock())
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def run_copy(source: str, target: str, point: str) -> int:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.killed_copy", source, target, point)
    )
    return await process.wait()


async def jobs_of(store: JobStore) -> dict[str, StoredJob]:
    return {item.name: item for item in await read_out(store) if isinstance(item, StoredJob)}


@pytest.mark.parametrize(
    "pair",
    [
        ("redis", "sqlite"),
        pytest.param(("sqlite", "postgres"), marks=pytest.mark.chaos),
        pytest.param(("postgres", "redis"), marks=pytest.mark.chaos),
    ],
    ids=" to ".join,
)
async def test_a_copy_that_is_killed_anywhere_can_be_run_again(
    pair: tuple[str, str], tmp_path: Path, postgres: PostgresServer, redis: RedisServer
) -> None:
    """One source and one target for all points: each run meets what the one before has left."""
    urls = {
        "sqlite": f"sqlite:///{tmp_path}/gantline.db",
        "postgres": postgres.url(schema=f"w{uuid4().hex}"),
        "redis": redis.url(prefix=f"w{uuid4().hex}"),
    }
    source, target = (urls[kind] for kind in pair)
    async with AsyncExitStack() as stack:
        here, there = [await stack.enter_async_context(opened(url)) for url in (source, target)]
        new = [make_new(number, idempotency_key=f"k{number}") for number in range(JOBS)]
        await here.insert(new)
        for point in POINTS:
            assert await run_copy(source, target, point) == -signal.SIGKILL, point
            closed = await read_closing(here)
            assert closed is not None or point == "closing"
            if (await there.dump(Part.JOBS, limit=1)).items:
                assert await read_closing(there) is not None, point
        assert await run_copy(source, target, "never") == 0
        assert await jobs_of(there) == await jobs_of(here)
        assert len(await jobs_of(there)) == JOBS
        assert await read_closing(there) is None
        closed = await read_closing(here)
        assert closed is not None
        assert closed.has_moved

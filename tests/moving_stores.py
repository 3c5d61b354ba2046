"""Two empty stores of any kinds on one clock, and a furnished one to be copied."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import msgspec

from gantline.contract.records import RecordWrite
from gantline.contract.store import JobStore
from gantline.manager.cursors import ConsumerCursor, write_cursor
from gantline.manager.switches import CLOSED, SWITCHES, Closed
from gantline.moving.closing import StoreNames
from gantline.moving.store_copy import Copied, StoreCopy
from gantline.stores.memory import MemoryStore
from gantline.testing.clock import FakeClock
from gantline.testing.conformance.bench import Bench
from gantline.testing.conformance.moving import furnish
from tests.harness import MemoryHarness, PostgresHarness, RedisHarness, SqliteHarness
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

KINDS = ("memory", "sqlite", "postgres", "redis")
NAMES = StoreNames("the old place", "the new place")
AT_ONCE = timedelta(0)
NO_GRACE = timedelta(microseconds=1)


@asynccontextmanager
async def opened_harness(
    kind: str, clock: FakeClock, postgres: PostgresServer | None, redis: RedisServer | None
) -> AsyncIterator[Bench]:
    harness: Any
    match kind:
        case "memory":
            harness = MemoryHarness(lambda **_: MemoryStore(clock=clock))
        case "sqlite":
            harness = SqliteHarness()
        case "postgres":
            assert postgres is not None
            harness = PostgresHarness(postgres)
        case _:
            assert redis is not None
            harness = RedisHarness(redis)
    harness.clock = clock
    try:
        yield await Bench.on(harness)
    finally:
        await harness.close()


async def furnished(bench: Bench) -> None:
    """With what a running system has beside its jobs."""
    await furnish(bench)
    await write_cursor(
        bench.store, f"consumer-{uuid4().hex[:4]}", ConsumerCursor(position=3), expected=0
    )


async def close(store: JobStore) -> None:
    """As a copy does that is under way."""
    closed = Closed(
        copied_from=NAMES.source,
        copied_to=NAMES.target,
        copy="c",
        by="op",
        since=await store.ping(),
    )
    await store.write_records([RecordWrite(SWITCHES, CLOSED, msgspec.json.encode(closed))])


def copy_of(source: JobStore, target: JobStore, **options: Any) -> StoreCopy:
    options.setdefault("grace", NO_GRACE)
    return StoreCopy(source, target, options.pop("names", NAMES), actor="op", **options)


async def copied(source: JobStore, target: JobStore, **options: Any) -> Copied:
    how = {name: options.pop(name) for name in ("force", "replace") if name in options}
    wait = options.pop("wait", AT_ONCE)
    return await copy_of(source, target, **options).run(wait=wait, **how)

"""A hundred thousand jobs of all kinds, from store to store: what comes home is the same."""

from datetime import timedelta
from uuid import uuid4

import pytest

from gantline.contract.outcome import Outcome, Snoozed, Success
from gantline.contract.query import LaneRequest
from gantline.contract.records import RecordWrite
from gantline.contract.stored import Part, StoredRecord
from gantline.contract.submission import DedupeKey, KeyKind, NewJob
from gantline.manager.manager import Ending
from gantline.moving.closing import StoreNames, reopen
from gantline.moving.comparing import Checksums, read_pages
from gantline.moving.store_copy import NOT_COPIED
from gantline.testing.clock import FakeClock
from gantline.testing.conformance.bench import HOUR, LEASE, PERMANENT, RETRYABLE, Bench
from gantline.testing.factories import make_new, register_sessions
from tests.moving_stores import copied, furnished, opened_harness
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

JOBS = 100_000
BATCH = 1000
TENANTS, TYPES = 20, 7


async def fill(bench: Bench, jobs: int) -> None:
    """Jobs in every status but Running, with keys, owners, schedules, histories; and records."""
    await furnished(bench)
    for first in range(0, jobs, BATCH):
        await bench.store.insert([_new(number) for number in range(first, first + BATCH)])
    outcomes: list[Outcome] = [
        Success(b'{"done":true}'),
        PERMANENT,
        RETRYABLE,
        Snoozed(2000 * HOUR),
        Success(
            once=(DedupeKey(KeyKind.ONCE, "tenant-0", "type-0", "once", b"", 1000 * HOUR),),
            records=(RecordWrite("made", "by-a-job", b"x"),),
        ),
    ]
    kinds = tuple(f"type-{number}" for number in range(TYPES - 1))
    for turn in range(3 * jobs // 4 // BATCH):
        requests = [LaneRequest("default", kinds, BATCH, kinds[:1])]
        await register_sessions(bench.store, "worker")
        runs = await bench.store.claim("worker", uuid4(), requests, lease=LEASE)
        endings = [
            Ending(run, outcomes[(turn + number) % len(outcomes)])
            for number, run in enumerate(runs)
        ]
        await bench.manager.settle(endings)
        bench.clock.advance(timedelta(minutes=10, microseconds=1))
    found = await bench.store.dump(Part.JOBS, limit=300)
    queued = [item.job.job_id for item in found.items if item.status == "Queued"]  # type: ignore[union-attr]  # they are jobs
    await bench.manager.cancel(queued[:100], tenant_id=None, actor="op")
    await bench.store.write_records(
        [RecordWrite(f"space-{number % 9}", str(number), b"v") for number in range(5000)]
    )


def _new(number: int) -> NewJob:
    key = DedupeKey(KeyKind.REQUEST, "tenant-1", "caller", f"r{number}", b"f", 5000 * HOUR)
    return make_new(
        {"number": number, "text": "x" * (number % 200)},
        tenant_id=f"tenant-{number % TENANTS}",
        job_type=f"type-{number % TYPES}",
        priority=number % 4,
        created_by=f"user-{number % 100}" if number % 3 else "",
        subject_id=f"subject-{number % 1000}" if number % 5 else "",
        idempotency_key=f"k{number}" if number % 4 == 0 else "",
        request_key=key if number % 10 == 0 else None,
        delay=timedelta(days=number % 30) if number % 6 == 0 else timedelta(0),
        logged=number % 8 == 0,
    )


async def sums_of(bench: Bench) -> list[list[int]]:
    found = []
    for part in (Part.JOBS, Part.KEYS, Part.RECORDS):
        sums = Checksums()
        async for page in read_pages(bench.store, part, BATCH):
            for item in page:
                is_left = isinstance(item, StoredRecord) and item.record.namespace in NOT_COPIED
                if "closed" not in item.name and not is_left:
                    sums.add(item)
        found.append(sums.sums)
    return found


@pytest.mark.chaos
async def test_a_hundred_thousand_jobs_come_home_as_they_left(
    postgres: PostgresServer, redis: RedisServer
) -> None:
    clock = FakeClock()
    async with (
        opened_harness("sqlite", clock, postgres, redis) as first,
        opened_harness("postgres", clock, postgres, redis) as second,
        opened_harness("redis", clock, postgres, redis) as third,
        opened_harness("sqlite", clock, postgres, redis) as last,
    ):
        await fill(first, JOBS)
        way = (first, second, third, last)
        names = ("sqlite", "postgres", "redis", "sqlite again")
        for here, there, *place in zip(way, way[1:], names, names[1:], strict=False):
            done = await copied(here.store, there.store, names=StoreNames(*place))
            print(f"{place[0]} → {place[1]}: {done}")  # noqa: T201  # what was measured
            assert done.jobs > JOBS
        assert await sums_of(last) == await sums_of(first)
        assert await last.store.counts(tenant_id=None) == await first.store.counts(tenant_id=None)
        assert await last.store.dead_counts(tenant_id=None) == await first.store.dead_counts(
            tenant_id=None
        )
        assert await last.store.last_event() == await first.store.last_event() > JOBS // 2
        assert await reopen(last.store) is None

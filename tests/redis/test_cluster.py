"""A cluster of three primaries and three replicas: found, followed, and never half written."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import pytest

from gantline import Gantline
from gantline.contract.clock import SystemClock
from gantline.contract.errors import StoreMisconfigured, StoreUnavailable
from gantline.contract.outcome import Success
from gantline.contract.results import Applied
from gantline.contract.transition import Transition
from gantline.stores.redis import RedisStore, open_store
from gantline.testing.factories import lane_requests, make_new, register_sessions
from tests.redis.conftest import opened
from tests.servers.redis import RedisServer
from tests.servers.redis_cluster import RedisCluster

pytestmark = [
    pytest.mark.matrix,
    pytest.mark.xdist_group("redis-cluster"),
    pytest.mark.timeout(120),
]

LEASE = timedelta(seconds=60)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    cluster = RedisCluster()
    yield cluster
    cluster.stop()


async def works(store: RedisStore) -> None:
    new = make_new(1)
    assert await store.insert([new]) == [Applied(1)]
    await register_sessions(store, "w")
    runs = await store.claim("w", uuid4(), lane_requests(), lease=LEASE)
    done = [Transition.completed(run, Success(), hold_key=timedelta(0)) for run in runs]
    assert Applied(3) in await store.apply(done)


@pytest.mark.parametrize("prefix", ["a", "b", "c", "shop"])
async def test_whoever_has_the_slot_of_a_prefix_is_found(
    cluster: RedisCluster, prefix: str
) -> None:
    async with opened(cluster.url(prefix=prefix)) as store:
        await works(store)
        assert (
            cluster.primary_of(f"{{{prefix}}}:x").call("EXISTS", f"{{{prefix}}}:jobs") == b":1\r\n"
        )


async def test_one_server_of_a_cluster_is_told_to_be_one(cluster: RedisCluster) -> None:
    others = [
        server for server in cluster.servers[:3] if server is not cluster.primary_of("{gantline}:x")
    ]
    with pytest.raises(StoreMisconfigured, match=r"redis\+cluster"):
        await open_store(others[0].url(), clock=SystemClock()).open()


async def test_a_server_alone_is_no_cluster(redis: RedisServer) -> None:
    url = redis.url().replace("redis://", "redis+cluster://")
    with pytest.raises(StoreMisconfigured, match="no part of a cluster"):
        await open_store(url, clock=SystemClock()).open()


async def test_while_a_slot_is_moved_nothing_is_half_written(cluster: RedisCluster) -> None:
    """A script would meet a key that is not here any more in the middle of its writes."""
    prefix = f"w{uuid4().hex}"
    async with opened(cluster.url(prefix=prefix, deadline="1")) as store:
        await works(store)
        slot = str(cluster.slot_of(f"{{{prefix}}}"))
        here = cluster.primary_of(f"{{{prefix}}}")
        there = next(server for server in cluster.servers[:3] if server is not here)
        here.call("CLUSTER", "SETSLOT", slot, "MIGRATING", there.id)
        try:
            before = here.call("DBSIZE")
            with pytest.raises(StoreUnavailable):
                await store.insert([make_new(1)])
            assert here.call("DBSIZE") == before
        finally:
            here.call("CLUSTER", "SETSLOT", slot, "STABLE")
        assert [lane.queued for lane in await store.counts(tenant_id=None)] == [0]
        await works(store)


async def test_an_application_works_and_its_wake_ups_reach_it(
    cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gantline.worker.claimer._FIRST_WAIT_SECONDS", 3600.0)
    url = cluster.url(prefix=f"w{uuid4().hex}")
    working, submitting, ran = Gantline(url), Gantline(url), asyncio.Queue[int]()

    async def note(value: int) -> None:
        ran.put_nowait(value)

    for jobs in (working, submitting):
        jobs.job("note")(note)
    async with working, submitting, working.running():
        for value in (1, 2):
            await submitting.job_types[0].submit(value)
            async with asyncio.timeout(60):
                assert await ran.get() == value


async def test_after_a_failover_its_successor_is_found() -> None:
    cluster = RedisCluster()
    try:
        url = cluster.url(prefix="shop", durability="replicated")
        async with opened(url) as store:
            jobs = [make_new(number) for number in range(50)]
            assert await store.insert(jobs) == [Applied(1)] * 50
        async with opened(cluster.url(prefix="shop", deadline="60")) as store:
            await asyncio.to_thread(cluster.primary_of("{shop}").kill)
            assert sum(lane.queued for lane in await store.counts(tenant_id=None)) == 50
            await works(store)
    finally:
        cluster.stop()

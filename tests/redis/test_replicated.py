"""durability=replicated: what is answered is on a replica too, and outlives the primary."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID, uuid4

import pytest

from gantline.contract.errors import StoreUnavailable
from gantline.contract.outcome import Success
from gantline.contract.results import Applied, Duplicate, Stale
from gantline.contract.snapshot import Run
from gantline.contract.transition import Transition
from gantline.stores.redis import RedisStore
from gantline.testing.factories import lane_requests, make_new, register_sessions
from tests.redis.conftest import opened
from tests.servers.redis import RedisServer

LEASE = timedelta(seconds=60)

pytestmark = [
    pytest.mark.matrix,
    pytest.mark.xdist_group("redis-kills"),
    pytest.mark.timeout(300),
]


class Pair(NamedTuple):
    primary: RedisServer
    replica: RedisServer

    def url(self, **options: str) -> str:
        """Both, so that the one that takes writes is found."""
        both = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.replica.port}"
        return self.primary.url(**options).replace(f"127.0.0.1:{self.primary.port}", both)


@pytest.fixture
def pair() -> Iterator[Pair]:
    primary = RedisServer(repl_diskless_sync_delay="0")
    replica = RedisServer(replicaof=f"127.0.0.1 {primary.port}")
    replica.wait_for("master_link_status:up")
    yield Pair(primary, replica)
    primary.resume()
    for server in (primary, replica):
        server.stop()


async def test_a_write_that_no_replica_takes_is_told_and_can_be_repeated(pair: Pair) -> None:
    new = make_new(1)
    async with opened(pair.url(durability="replicated", deadline="3")) as store:
        assert store.capabilities.durability == "replicated"
        pair.replica.pause()
        try:
            with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
                await store.insert([new])
            # Nothing is written now, and still it is not answered before the replica has it.
            with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
                await store.insert([new])
        finally:
            pair.replica.resume()
    async with opened(pair.url(durability="replicated")) as store:
        assert await store.insert([new]) == [Duplicate(new.job.job_id)]


async def test_without_a_replica_every_write_fails_and_reading_works(redis: RedisServer) -> None:
    url = redis.url(prefix="lonely", durability="replicated", deadline="3")
    async with opened(url) as store:
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
            await store.insert([make_new(1)])
        assert not all(one.is_good for one in await store.advice())
        await store.counts(tenant_id=None)


class Submitter:
    """Submits one after the other, and notes what was answered."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self.accepted: list[UUID] = []
        self._enough = asyncio.Event()

    async def submit_for_ever(self) -> None:
        while True:
            new = make_new(len(self.accepted))
            while True:
                with suppress(StoreUnavailable):
                    answers = await self._store.insert([new])
                    assert answers[0] in (Applied(1), Duplicate(new.job.job_id))
                    break
            self.accepted.append(new.job.job_id)
            self._enough.set()

    async def submit_more(self, jobs: int) -> None:
        wanted = len(self.accepted) + jobs
        async with asyncio.timeout(60):
            while len(self.accepted) < wanted:
                self._enough.clear()
                await self._enough.wait()


async def lost_by_failover(pair: Pair, **options: str) -> tuple[int, int]:
    """Kill the primary under load and promote the replica; tell the accepted and the lost jobs."""
    async with opened(pair.url(deadline="5", **options)) as store:
        submitters = [Submitter(store) for _ in range(8)]
        tasks = [asyncio.create_task(one.submit_for_ever()) for one in submitters]
        await asyncio.gather(*(one.submit_more(50) for one in submitters))
        await asyncio.to_thread(pair.primary.kill)
        pair.replica.call("REPLICAOF", "NO", "ONE")
        # There is no other replica to wait for: what comes now is not answered where it is asked.
        waited = [] if options else [one.submit_more(10) for one in submitters]
        await asyncio.gather(*waited)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    accepted = [job_id for one in submitters for job_id in one.accepted]
    async with opened(f"redis://127.0.0.1:{pair.replica.port}/0") as store:
        found = await store.get(accepted, tenant_id=None)
    return len(accepted), found.count(None)


async def test_a_failover_loses_nothing_that_was_answered(pair: Pair) -> None:
    accepted, lost = await lost_by_failover(pair, durability="replicated")
    assert accepted >= 400
    assert lost == 0


async def test_a_failover_without_waiting_goes_on_and_its_losses_are_counted(pair: Pair) -> None:
    accepted, lost = await lost_by_failover(pair)
    print(f"{lost} of {accepted} accepted jobs were lost")  # noqa: T201  # shown with -rP
    assert accepted >= 480
    assert lost < accepted


async def test_a_replica_that_lags_behind_shows_what_a_failover_costs(pair: Pair) -> None:
    """The loss that the capabilities speak of, made certain."""
    kept, late = make_new("kept"), make_new("late")
    async with opened(pair.primary.url(durability="replicated")) as store:
        assert await store.insert([kept]) == [Applied(1)]
    async with opened(pair.primary.url()) as store:
        pair.replica.call("REPLICAOF", "127.0.0.1", "1")  # where nobody is
        assert await store.insert([late]) == [Applied(1)]
    pair.primary.kill()
    pair.replica.call("REPLICAOF", "NO", "ONE")
    async with opened(pair.replica.url()) as store:
        found = await store.get([kept.job.job_id, late.job.job_id], tenant_id=None)
    assert [job is not None for job in found] == [True, False]


async def test_a_connection_that_is_lost_does_not_lead_to_a_replica_that_answers_reads(
    pair: Pair,
) -> None:
    """It may lack what was answered, and it has nothing before it is first in step."""
    new = make_new("kept")
    async with opened(pair.url()) as store:
        pair.replica.call("REPLICAOF", "127.0.0.1", "1")  # where nobody is
        assert await store.insert([new]) == [Applied(1)]
        for _ in range(3):
            pair.primary.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            (found,) = await store.get([new.job.job_id], tenant_id=None)
            assert found is not None


async def test_a_run_that_a_failover_forgot_is_refused_though_its_fence_is_handed_out_again(
    pair: Pair,
) -> None:
    async with opened(pair.primary.url(durability="replicated")) as store:
        await store.insert([make_new(1)])
    async with opened(pair.primary.url()) as store:
        pair.replica.call("REPLICAOF", "127.0.0.1", "1")  # where nobody is
        await register_sessions(store, "one")
        (forgotten,) = await store.claim("one", uuid4(), lane_requests(), lease=LEASE)
    pair.primary.kill()
    pair.replica.call("REPLICAOF", "NO", "ONE")
    async with opened(pair.replica.url()) as store:
        assert await store.apply([completed(forgotten)]) == [Stale()]
        await register_sessions(store, "two")
        (heir,) = await store.claim("two", uuid4(), lane_requests(), lease=LEASE)
        assert heir.fence == forgotten.fence
        assert await store.apply([completed(forgotten)]) == [Stale()]
        assert (await store.renew("one", [forgotten.ref], lease=LEASE)).lost == {forgotten.token}
        assert await store.apply([completed(heir)]) == [Applied(3)]


def completed(run: Run) -> Transition:
    return Transition.completed(run, Success(), hold_key=timedelta(0))

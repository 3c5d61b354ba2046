"""A server that is away, frozen, loading, a replica, full, or somebody else's: what a verb does."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from uuid import uuid4

import pytest

from gantline.contract.clock import SystemClock
from gantline.contract.errors import (
    InvalidInput,
    SchemaMismatch,
    StoreMisconfigured,
    StoreUnavailable,
)
from gantline.contract.outcome import Success
from gantline.contract.query import PruneRule
from gantline.contract.results import Applied
from gantline.contract.snapshot import RunRef
from gantline.contract.status import JobStatus
from gantline.contract.transition import Transition
from gantline.stores.redis import RedisStore, open_store, scripts
from gantline.stores.redis.store import FORMAT
from gantline.testing.factories import lane_requests, make_new, register_sessions
from tests.redis.conftest import opened
from tests.servers.redis import RedisServer

pytestmark = pytest.mark.matrix

LEASE = timedelta(seconds=60)
# What a call may take beyond its deadline.
GRACE_SECONDS = 3.0


async def works(store: RedisStore) -> None:
    """A job can be stored, run and ended."""
    new = make_new(1)
    assert await store.insert([new]) == [Applied(1)]
    await register_sessions(store, "w")
    (run,) = await store.claim("w", uuid4(), lane_requests(), lease=LEASE)
    done = Transition.completed(run, Success(), hold_key=timedelta(0))
    assert await store.apply([done]) == [Applied(3)]


async def test_scripts_that_the_server_has_forgotten_are_sent_again(
    own_server: RedisServer,
) -> None:
    async with opened(own_server.url()) as store:
        await works(store)
        own_server.call("SCRIPT", "FLUSH")
        await works(store)


async def test_a_connection_that_was_ended_is_nothing_to_tell_of(own_server: RedisServer) -> None:
    async with opened(own_server.url()) as store:
        for _ in range(3):
            own_server.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            await works(store)


async def test_a_connection_that_was_ended_while_it_was_idle_is_not_used(
    own_server: RedisServer,
) -> None:
    async with opened(own_server.url()) as store:
        await works(store)
        own_server.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        for _ in range(10):  # the loop hears of it
            await asyncio.sleep(0)
        # An attempt that failed would make it a repeated one: then who was there first is not told.
        assert not (await store._calls.run_each(scripts.PING, [[b""]])).is_repeated


async def test_a_verb_waits_for_a_server_that_is_being_restarted(own_server: RedisServer) -> None:
    async with opened(own_server.url()) as store:
        own_server.kill()
        storing = asyncio.create_task(works(store))
        await asyncio.sleep(0)
        await asyncio.to_thread(own_server.start)
        await storing


async def test_a_server_that_stays_away_is_told_without_the_password(
    own_server: RedisServer,
) -> None:
    url = own_server.url(deadline="0.3").replace("redis://", "redis://default:hush@")
    own_server.halt()
    store = open_store(url, clock=SystemClock())
    with pytest.raises(StoreUnavailable) as told:
        await store.open()
    assert "hush" not in f"{told.value} {told.value.__cause__}"
    assert told.value.next_step


@contextmanager
def standing_still(server: RedisServer) -> Iterator[None]:
    server.pause()
    try:
        yield
    finally:
        server.resume()


async def test_no_verb_waits_for_a_frozen_server_beyond_its_deadline(
    own_server: RedisServer,
) -> None:
    async with opened(own_server.url(deadline="2")) as store:
        verbs: list[Callable[[], Awaitable[object]]] = [
            lambda: store.insert([make_new(1)]),
            lambda: store.claim("w", uuid4(), lane_requests(), lease=LEASE),
            lambda: store.renew("w", [RunRef(uuid4(), uuid4())], lease=LEASE),
            lambda: store.get([uuid4()], tenant_id=None),
            store.ping,
        ]
        with standing_still(own_server):
            began = time.monotonic()
            answers = await asyncio.gather(*(verb() for verb in verbs), return_exceptions=True)
            took = time.monotonic() - began
        assert [type(answer) for answer in answers] == [StoreUnavailable] * len(verbs)
        assert took < 2 + GRACE_SECONDS
        await works(store)


async def test_who_gives_up_waiting_gets_no_answer_of_another(own_server: RedisServer) -> None:
    """A connection on which an answer is still to come must not be used again."""
    async with opened(own_server.url(connections="1")) as store:
        with standing_still(own_server):
            given_up = asyncio.create_task(store.last_event())
            await asyncio.sleep(0.05)
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up
        assert await store.get([uuid4()], tenant_id=None) == [None]


async def test_a_server_that_loads_its_data_is_waited_for(own_server: RedisServer) -> None:
    async with opened(own_server.url()) as store:
        await store.insert([make_new(number) for number in range(200)])
        # It answers others after every thousand commands that it loads.
        own_server.call("EVAL", "for n = 1, 5000 do redis.call('SET', 'k' .. n, n) end", "0")
        own_server.kill()
        own_server.settings["key-load-delay"] = "200"  # microseconds for each command
        own_server.start(wait=False)
        said = b""
        while not said.startswith(b"-LOADING"):
            said = await asyncio.to_thread(own_server.call_if_there, "GET", "x")
            assert not said.startswith(b"$-1"), "it was too quick to be met while it loads"
        assert sum(lane.queued for lane in await store.counts(tenant_id=None)) == 200


# -- replicas -------------------------------------------------------------------------------------


async def test_a_replica_takes_no_writes_and_says_so(
    own_server: RedisServer, redis: RedisServer
) -> None:
    async with opened(own_server.url(deadline="2")) as store:
        own_server.call("REPLICAOF", "127.0.0.1", str(redis.port))
        with pytest.raises(StoreUnavailable, match=r"no writes here|not ready"):
            await store.insert([make_new(1)])
        own_server.call("REPLICAOF", "NO", "ONE")
        await works(store)


async def test_of_several_servers_the_one_that_takes_writes_is_found(
    own_server: RedisServer, redis: RedisServer, prefix: str
) -> None:
    own_server.call("REPLICAOF", "127.0.0.1", str(redis.port))
    url = f"redis://127.0.0.1:{own_server.port},127.0.0.1:{redis.port}/0?prefix={prefix}"
    async with opened(url) as store:
        await works(store)


# -- a full memory --------------------------------------------------------------------------------


async def test_with_a_full_memory_submits_are_refused_and_what_runs_can_end_and_be_removed(
    own_server: RedisServer,
) -> None:
    async with opened(own_server.url()) as store:
        await store.insert([make_new(number) for number in range(300)])
        await register_sessions(store, "w")
        runs = await store.claim("w", uuid4(), lane_requests(limit=300), lease=LEASE)
        limit_memory(own_server, "1")
        with pytest.raises(StoreUnavailable, match="out of memory"):
            await store.insert([make_new(1)])
        renewal = await store.renew("w", [run.ref for run in runs], lease=LEASE)
        assert not renewal.lost
        done = [Transition.completed(run, Success(), hold_key=timedelta(0)) for run in runs]
        assert await store.apply(done) == [Applied(3)] * 300
        assert await store.lead("maintenance", "me", lease=LEASE) is not None
        later = await store.ping() + timedelta(seconds=1)
        pruned = await store.prune([PruneRule(JobStatus.COMPLETED, later)], limit=1000)
        assert pruned.jobs == 300
        limit_memory(own_server, "0")
        await works(store)


async def test_a_worker_that_starts_while_the_memory_is_full_can_work_it_off(
    own_server: RedisServer,
) -> None:
    async with opened(own_server.url()) as store:
        await store.insert([make_new(1)])
    limit_memory(own_server, "1")
    async with opened(own_server.url()) as store:
        await register_sessions(store, "w")
        (run,) = await store.claim("w", uuid4(), lane_requests(), lease=LEASE)
        done = Transition.completed(run, Success(), hold_key=timedelta(0))
        assert await store.apply([done]) == [Applied(3)]


def limit_memory(server: RedisServer, most: str) -> None:
    assert server.call("CONFIG", "SET", "maxmemory", most) == b"+OK\r\n"


# -- somebody else's ------------------------------------------------------------------------------


async def test_a_wrong_password_is_told_at_once_and_not_repeated(own_server: RedisServer) -> None:
    own_server.call("CONFIG", "SET", "requirepass", "secret")
    store = open_store(own_server.url().replace("redis://", "redis://:hush@"), clock=SystemClock())
    began = time.monotonic()
    with pytest.raises(StoreMisconfigured, match="does not let us in") as refused:
        await store.open()
    assert "hush" not in f"{refused.value} {refused.value.__cause__}"
    assert time.monotonic() - began < 10
    async with opened(own_server.url().replace("redis://", "redis://:secret@")) as let_in:
        await works(let_in)


async def test_a_user_without_rights_is_told_which_are_missing(own_server: RedisServer) -> None:
    own_server.call("ACL", "SETUSER", "weak", "on", ">pw", "~other:*", "+@all")
    url = own_server.url().replace("redis://", "redis://weak:pw@")
    with pytest.raises(StoreMisconfigured, match="lacks a right"):
        await open_store(url, clock=SystemClock()).open()


@pytest.mark.parametrize("layout", [FORMAT - 1, FORMAT + 1])
async def test_another_layout_is_left_alone(own_server: RedisServer, layout: int) -> None:
    own_server.call("SET", "{gantline}:format", str(layout))
    with pytest.raises(SchemaMismatch, match=f"format {layout}"):
        await open_store(own_server.url(), clock=SystemClock()).open()
    assert own_server.call("DBSIZE") == b":1\r\n"


async def test_a_text_that_is_none_is_refused(url: str) -> None:
    async with opened(url) as store:
        with pytest.raises(InvalidInput):
            await store.lead("role", "a\ud800b", lease=LEASE)
        await works(store)


async def test_two_prefixes_do_not_see_each_other(redis: RedisServer, prefix: str) -> None:
    async with (
        opened(redis.url(prefix=prefix)) as one,
        opened(redis.url(prefix=f"{prefix}2")) as two,
    ):
        await one.insert([make_new(1)])
        assert await two.counts(tenant_id=None) == []

"""Leases by length and session, and suspects by rank: what is looked at, and how much of it."""

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError

from gantline.contract.clock import LAST
from gantline.contract.outcome import LEASE_EXPIRED, Released
from gantline.contract.snapshot import SUSPECT_AFTER_CRASHES
from gantline.contract.status import JobStatus
from gantline.contract.transition import Transition
from gantline.stores.redis import scripts
from gantline.stores.redis.calls import Calls
from gantline.stores.redis.connection import Command, Connection
from gantline.testing.conformance.bench import HOUR, LEASE, Bench
from gantline.testing.factories import lane_requests, register_sessions
from tests.harness import RedisHarness
from tests.servers.redis import RedisServer


@pytest.fixture
async def bench(redis: RedisServer) -> AsyncIterator[Bench]:
    bench = await Bench.on(RedisHarness(redis))
    yield bench
    await bench.close()


async def start_many(bench: Bench, count: int) -> None:
    await bench.submit_many(count)
    for _ in range(0, count, 1000):
        await bench.claim(limit=1000)


async def test_a_session_with_thousands_of_leases_can_end(bench: Bench) -> None:
    """Lua hands 8,000 words at most to a command."""
    await start_many(bench, 5000)
    assert await bench.store.expire_session("worker-1") == 5000
    assert len(await bench.store.expired(limit=6000)) == 5000


async def test_thousands_of_leases_are_cut_when_the_clock_is_set_back(bench: Bench) -> None:
    await start_many(bench, 5000)
    bench.clock.shift(-HOUR)
    assert await bench.store.expired(limit=1) == []
    bench.clock.advance(LEASE)
    assert len(await bench.store.expired(limit=6000)) == 5000


async def test_expired_leases_of_all_sessions_and_lengths_are_found(bench: Bench) -> None:
    """More than are read at once, so that a page begins within a group."""
    await bench.submit_many(6000)
    started = []
    for number in range(12):
        started += await bench.claim(limit=500, session=f"worker-{number % 4}")
    for number in range(4):
        session = f"worker-{number}"
        own = [run.ref for run in started if run.session == session]
        await bench.store.renew(session, own[::2], lease=LEASE / 2)
    await bench.let_leases_expire()
    late = await bench.store.expired(limit=10_000)
    assert [run.job.job_id for run in late] == sorted(run.job.job_id for run in started)
    assert (await bench.recount())[JobStatus.RUNNING] == 6000


async def test_a_lease_may_last_for_ever(bench: Bench) -> None:
    await bench.submit()
    await register_sessions(bench.store, "worker-1")
    (run,) = await bench.store.claim("worker-1", uuid4(), lane_requests(), lease=timedelta.max)
    assert run.lease_until == LAST
    await bench.store.renew(run.session, [run.ref], lease=timedelta.max)
    bench.clock.shift(-HOUR)
    assert await bench.store.expired(limit=1) == []
    job = await bench.snapshot(run.job.job_id)
    assert job.run is not None
    assert job.run.lease_until == LAST
    await bench.finish(run)


async def test_a_suspect_that_is_cancelled_leaves_no_trace_among_suspects(bench: Bench) -> None:
    first, second = await bench.submit_many(2)
    for _ in range(SUSPECT_AFTER_CRASHES):
        runs = await bench.claim()
        await bench.store.expire_session("worker-1")
        crashes = [Transition.crashed(run, LEASE_EXPIRED, delay=timedelta(0)) for run in runs]
        await bench.store.apply(crashes)
    assert await key_exists(bench, "suspects")
    await bench.cancel(first)
    assert await key_exists(bench, "suspects")
    await bench.cancel(second)
    assert not await key_exists(bench, "suspects")


async def key_exists(bench: Bench, name: str) -> bool:
    assert isinstance(bench.harness, RedisHarness)
    calls = Calls(bench.harness.location)
    found = await calls.ask("EXISTS", b"%b:%b" % (bench.harness.location.tag, name.encode()))
    await calls.close()
    return bool(found)


def commands(server: RedisServer) -> dict[str, int]:
    """How often each command was called since the last reset."""
    found = re.findall(rb"cmdstat_(\w+):calls=(\d+)", server.call("INFO", "commandstats"))
    return {name.decode(): int(calls) for name, calls in found}


@pytest.fixture
async def own() -> AsyncIterator[tuple[RedisServer, Bench]]:
    """A server whose commands can be counted."""
    server = RedisServer()
    bench = await Bench.on(RedisHarness(server))
    yield server, bench
    await bench.close()
    server.stop()


async def test_a_claim_of_suspects_looks_at_no_lane_while_there_are_none(
    own: tuple[RedisServer, Bench],
) -> None:
    server, bench = own
    kinds = [f"type-{number}" for number in range(50)]
    for kind in kinds:
        await bench.submit(job_type=kind)
    await bench.claim(*kinds, limit=1, suspects=(1,))
    server.call("CONFIG", "RESETSTAT")
    assert await bench.claim(*kinds, suspects=(8, 4, 2, 1)) == []
    made = commands(server)
    made.pop("config", None)
    assert made.pop("evalsha") == 1
    assert sum(made.values()) <= 3, made


async def test_a_sweep_looks_at_no_run_whose_lease_holds(own: tuple[RedisServer, Bench]) -> None:
    server, bench = own
    await start_many(bench, 1000)
    await bench.store.expired(limit=10)
    server.call("CONFIG", "RESETSTAT")
    assert await bench.store.expired(limit=10) == []
    made = commands(server)
    made.pop("config", None)
    assert sum(made.values()) < 10, made


async def test_an_attempt_of_a_claim_that_comes_late_has_tokens_of_its_own(
    bench: Bench, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy may hold one back until the runs of the next attempt are over."""
    ask, held = Connection.ask, list[Command]()

    async def hold_the_first(self: Connection, *commands: Command) -> list[Any]:
        if commands[0][1:2] == (scripts.CLAIM.digest,) and not held:
            held.extend(commands)
            raise ConnectionError("lost")
        return await ask(self, *commands)

    job_id = await bench.submit()
    with monkeypatch.context() as patched:
        patched.setattr(Connection, "ask", hold_the_first)
        (run,) = await bench.claim()
    await bench.finish(run, Released())
    async with Redis.from_url(redis.url()) as server:
        await server.execute_command(*held[0])  # type: ignore[no-untyped-call]  # the driver's

    assert await bench.status(job_id) is JobStatus.RUNNING
    assert run.token in (await bench.store.renew(run.session, [run.ref], lease=LEASE)).lost

"""A server that is killed, cut off and paused under load, and workers that are killed: nothing
accepted is lost, nothing ends twice, and work goes on by itself."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from gantline.contract.outcome import Success
from gantline.contract.results import Applied, Stale
from gantline.contract.snapshot import Run
from gantline.contract.transition import Transition
from gantline.manager.reaper import Reaper
from gantline.stores.redis import RedisStore
from gantline.testing.factories import lane_requests, make_new, register_sessions
from tests.fleet import Fleet
from tests.postgres.load import Load
from tests.redis.books import check_books, say
from tests.redis.conftest import opened
from tests.servers.redis import RedisServer

pytestmark = [pytest.mark.xdist_group("redis-kills"), pytest.mark.timeout(300)]

# Short in every run of the suite, long in the proofs.
short_and_long = pytest.mark.parametrize(
    "rounds", [pytest.param(3), pytest.param(40, marks=pytest.mark.chaos)]
)


@short_and_long
async def test_a_server_that_is_killed_under_load_loses_nothing_with_aof_always(
    own_server: RedisServer, rounds: int
) -> None:
    load, seconds = Load(own_server.url()), []
    async with load.running():
        for _ in range(rounds):
            await load.run_more(200)
            await asyncio.to_thread(own_server.kill)
            await asyncio.to_thread(own_server.start)
            began = time.monotonic()
            await load.run_more(1)
            seconds.append(time.monotonic() - began)
        await load.run_more(200)
    events = await check_books(own_server.url(), load.accepted)
    say(
        f"{rounds} kills, {len(load.accepted)} jobs accepted, {load.ran} runs, "
        f"events {dict(events)}, work went on after {max(seconds):.2f} s at most"
    )
    assert max(seconds) < 10


@short_and_long
async def test_connections_cut_in_the_middle_cost_nothing(
    own_server: RedisServer, rounds: int
) -> None:
    load = Load(own_server.url())
    async with load.running():
        await load.run_more(100)
        for _ in range(10 * rounds):
            await asyncio.to_thread(own_server.call, "CLIENT", "KILL", "TYPE", "normal")
            await load.run_more(20)
    events = await check_books(own_server.url(), load.accepted)
    say(f"{len(load.accepted)} jobs accepted, {load.ran} runs, events {dict(events)}")
    assert load.unavailable == 0, "a connection that is lost alone is nothing to tell of"


async def test_a_stale_run_is_refused_before_and_after_a_restart(own_server: RedisServer) -> None:
    async with opened(own_server.url()) as store:
        await store.insert([make_new(1)])
        await register_sessions(store, "one")
        (stale,) = await store.claim("one", uuid4(), lane_requests(), lease=timedelta(0))
        await Reaper(store, jitter=lambda: 0.0).run_once()
        own_server.kill()
        own_server.start()
        assert await store.apply([completed(stale)]) == [Stale()]
        assert (await store.renew("one", [stale.ref], lease=timedelta(60))).lost == {stale.token}
        heir = await claimed(store, "two")
        assert heir.fence > stale.fence
        assert await store.apply([completed(stale), completed(heir)]) == [Stale(), Applied(5)]


def completed(run: Run) -> Transition:
    return Transition.completed(run, Success(), hold_key=timedelta(0))


async def claimed(store: RedisStore, session: str) -> Run:
    async with asyncio.timeout(60):
        while True:
            await register_sessions(store, session)
            if runs := await store.claim(session, uuid4(), lane_requests(), lease=timedelta(60)):
                return runs[0]
            await asyncio.sleep(0.05)


class Restarts:
    """Kills the server now and then while others work, and starts it again."""

    def __init__(self, server: RedisServer, most: int) -> None:
        self._server = server
        self._left = most
        self.made = 0

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        restarting = asyncio.create_task(self._restart())
        yield
        self._left = 0
        await restarting

    async def _restart(self) -> None:
        while self._left > 0:
            await asyncio.sleep(random.uniform(1, 4))
            if self._left > 0:
                await asyncio.to_thread(self._server.kill)
                await asyncio.to_thread(self._server.start)
                self._left -= 1
                self.made += 1


@pytest.mark.parametrize(
    ("jobs", "processes", "kills", "freezes", "restarts"),
    [
        pytest.param(300, 2, 4, 0, 0, id="short"),
        pytest.param(60_000, 10, 100, 20, 10, marks=pytest.mark.chaos, id="long"),
    ],
)
async def test_workers_that_are_killed_finish_each_job_once(
    own_server: RedisServer,
    tmp_path: Path,
    jobs: int,
    processes: int,
    kills: int,
    freezes: int,
    restarts: int,
) -> None:
    new = [make_new(number) for number in range(jobs)]
    async with opened(own_server.url()) as store:
        assert await store.insert(new) == [Applied(1)] * jobs
    fleet, restarted = Fleet(own_server.url(), tmp_path), Restarts(own_server, restarts)
    async with restarted.going_on():
        await fleet.run(processes=processes, kills=kills, freezes=freezes)
    accepted = [one.job.job_id for one in new]
    events = await check_books(own_server.url(), accepted, some_given_up=True)
    say(
        f"{jobs} jobs, {processes} processes, {fleet.killed} workers killed, "
        f"{fleet.frozen} frozen beyond their leases, {restarted.made} restarts of the server, "
        f"{len(fleet.accepted())} runs told, {len(fleet.refused())} refused, "
        f"events {dict(events)}"
    )
    assert fleet.killed == kills or kills < 10, "the work was over before"
    assert len(fleet.accepted()) == len(set(fleet.accepted())) <= jobs
    assert not set(fleet.accepted()) & set(fleet.refused())

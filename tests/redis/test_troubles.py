"""Whatever befalls the server under load: the same workers go on, and the books are right."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import pytest

from tests.postgres.load import LEASE, Load
from tests.redis.books import check_books, say
from tests.servers.redis import RedisServer

pytestmark = [pytest.mark.xdist_group("redis-kills"), pytest.mark.timeout(300)]

_DEADLINE: Final = "1"
_PATIENCE_SECONDS: Final = 30
_NOBODY: Final = ("127.0.0.1", "1")

Trouble = Callable[[RedisServer, Load], Awaitable[None]]


async def cut(server: RedisServer, load: Load) -> None:
    for kind in ("normal", "pubsub"):
        server.call("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")


async def forget_scripts(server: RedisServer, load: Load) -> None:
    server.call("SCRIPT", "FLUSH")


async def fill_up(server: RedisServer, load: Load) -> None:
    server.call("CONFIG", "SET", "maxmemory", "1")
    await load.be_refused()
    server.call("CONFIG", "SET", "maxmemory", "0")


async def take_no_writes(server: RedisServer, load: Load) -> None:
    server.call("REPLICAOF", *_NOBODY)
    await load.be_refused()
    server.call("REPLICAOF", "NO", "ONE")


async def stand_still(server: RedisServer, load: Load) -> None:
    server.pause()
    try:
        await load.be_refused()
    finally:
        server.resume()


async def stand_still_beyond_all_leases(server: RedisServer, load: Load) -> None:
    server.pause()
    try:
        await asyncio.sleep(LEASE.total_seconds() + 1)
    finally:
        server.resume()


async def load_slowly(server: RedisServer, load: Load) -> None:
    # It answers others after every thousand commands that it loads.
    server.call("EVAL", "for n = 1, 5000 do redis.call('SET', 'k' .. n, n) end", "0")
    await asyncio.to_thread(server.kill)
    server.settings["key-load-delay"] = "50"  # microseconds for each command
    server.start(wait=False)
    said = b""
    while not said.startswith(b"-LOADING"):
        said = await asyncio.to_thread(server.call_if_there, "GET", "x")
        assert not said.startswith(b"$-1"), "it was too quick to be met while it loads"
    await asyncio.to_thread(server.wait)


TROUBLES: Final[tuple[Trouble, ...]] = (
    cut,
    forget_scripts,
    fill_up,
    take_no_writes,
    stand_still,
    load_slowly,
)


@pytest.mark.parametrize(
    "troubles",
    [
        pytest.param(TROUBLES, id="each"),
        pytest.param(
            (*TROUBLES, stand_still_beyond_all_leases) * 10, marks=pytest.mark.chaos, id="often"
        ),
    ],
)
async def test_work_goes_on_after_any_trouble(
    own_server: RedisServer, troubles: tuple[Trouble, ...]
) -> None:
    load, seconds = Load(own_server.url(deadline=_DEADLINE)), dict[str, float]()
    async with load.running():
        await load.run_more(100)
        for trouble in random.sample(troubles, len(troubles)):
            await trouble(own_server, load)
            began = time.monotonic()
            await load.run_more(100)
            took = time.monotonic() - began
            seconds[trouble.__name__] = max(took, seconds.get(trouble.__name__, 0.0))
    is_often = stand_still_beyond_all_leases in troubles
    events = await check_books(own_server.url(), load.accepted, some_given_up=is_often)
    say(
        f"{len(load.accepted)} jobs accepted, {load.ran} runs, events {dict(events)}, "
        f"100 more had run within { ({name: round(took, 2) for name, took in seconds.items()}) } s"
    )


# -- failovers ------------------------------------------------------------------------------------


class Trio:
    """A primary and two replicas, of which one can be lost at a time."""

    def __init__(self) -> None:
        self.servers = [RedisServer(repl_diskless_sync_delay="0") for _ in range(3)]
        self.primary = self.servers[0]
        self._follow(self.servers[1:])

    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self.servers)
        return f"redis://{hosts}/0?durability=replicated&deadline={_DEADLINE}"

    def fail_over(self) -> None:
        """Kill the primary; promote the replica that is furthest; bring the dead one back."""
        dead, replicas = self.primary, [one for one in self.servers if one is not self.primary]
        dead.kill()
        self.primary = max(replicas, key=lambda one: one.replication_offset)
        self.primary.call("REPLICAOF", "NO", "ONE")
        self._follow([one for one in replicas if one is not self.primary])
        dead.settings["replicaof"] = f"127.0.0.1 {self.primary.port}"
        dead.start(wait=False)  # it answers when it is in step

    def wait_until_in_step(self) -> None:
        for server in self.servers:
            server.wait()
            if server is not self.primary:
                server.wait_for("master_link_status:up")

    def _follow(self, replicas: list[RedisServer]) -> None:
        for replica in replicas:
            replica.call("REPLICAOF", "127.0.0.1", str(self.primary.port))
        for replica in replicas:
            replica.wait_for("master_link_status:up")
        self.primary.wait_for_replicas(len(replicas))

    def stop(self) -> None:
        for server in self.servers:
            server.stop()


@pytest.fixture
def trio() -> Iterator[Trio]:
    trio = Trio()
    yield trio
    trio.stop()


@pytest.mark.parametrize("rounds", [pytest.param(2), pytest.param(30, marks=pytest.mark.chaos)])
async def test_workers_follow_failovers_and_lose_nothing_that_replicas_have(
    trio: Trio, rounds: int
) -> None:
    load, seconds = Load(trio.url()), []
    async with load.running():
        for _ in range(rounds):
            await load.run_more(100)
            await asyncio.to_thread(trio.fail_over)
            began = time.monotonic()
            await load.run_more(100)
            seconds.append(time.monotonic() - began)
            await asyncio.to_thread(trio.wait_until_in_step)
    events = await check_books(trio.url(), load.accepted)
    say(
        f"{rounds} failovers, {len(load.accepted)} jobs accepted, {load.ran} runs, "
        f"events {dict(events)}, 100 more had run within {max(seconds):.2f} s"
    )

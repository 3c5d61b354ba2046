"""A tenant at full misuse: another one on the same server works as if he were alone.

Both use one `gantline api` with its defaults, on PostgreSQL. The bad neighbour is one process with
a lower priority, and the worker of his jobs has it too: on a machine of two cores the load would
otherwise take the time that the server needs, which no server can prevent. Fair turns between
*runs* of tenants are not what is shown here, so each has a queue and a worker of his own.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final
from uuid import uuid4

import pytest

from gantline.audit.chain import AuditChains, AuditEvent
from gantline.audit.verification import verify_chain
from gantline.auth.api_key import KeyGrant
from gantline.auth.api_keys import ApiKeys
from gantline.auth.peppers import Peppers
from gantline.auth.principal import Role
from gantline.contract.clock import SystemClock
from gantline.stores import store_from_url
from tests.chaos.bad_neighbour import Connection
from tests.proof import say
from tests.servers.api import BY_GANTLINE, REPOSITORY, ApiProcess
from tests.servers.postgres import PostgresServer
from tests.servers.receiver import Received, Receiver

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(900)]

SECONDS_VARIABLE: Final = "GANTLINE_NEIGHBOUR_SECONDS"
_TARGET: Final = "tests.chaos.neighbours_app:jobs"
_PEPPER: Final = "1:0123456789abcdefghijklmnopqrstuvwxyz"
_GOOD, _BAD = "good", "bad"
_EACH_SECONDS: Final = 0.05
_CANCEL_EVERY: Final = 10
_SLOWEST_SECONDS: Final = 0.050
_PATIENCE_SECONDS: Final = 60
_LOWER_PRIORITY: Final = 5


class GoodNeighbour:
    """Submits and asks at an even pace, cancels now and then, and follows all of his jobs."""

    def __init__(self, url: str, key: str) -> None:
        self._connection = Connection(url, key)
        self._stream = Connection(url, key)
        self.seconds: dict[str, list[float]] = {"submit": [], "status": []}
        self.ended: set[str] = set()
        self.completed: set[str] = set()
        self.cancelled = 0

    async def work(self, seconds: float) -> None:
        """Raise where anything at all is not answered as it should be."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        for number in range(int(seconds / _EACH_SECONDS)):
            await asyncio.sleep(begun + number * _EACH_SECONDS - loop.time())
            body = {"jobType": "tidy", "payload": str(uuid4())}
            accepted = await self._timed("submit", 202, "POST", "/api/jobs", body)
            await self._timed("status", 200, "GET", accepted["statusUrl"])
            self.completed.add(accepted["jobId"])
            if number % _CANCEL_EVERY == 0:
                await self._cancel_one()

    async def _timed(self, what: str, status: int, *asked: Any) -> Any:
        begun = time.perf_counter()
        answer = await self._connection.ask(*asked)
        self.seconds[what].append(time.perf_counter() - begun)
        assert answer.status == status, answer
        return answer.data

    async def _cancel_one(self) -> None:
        """A cancel is audited, and writes the chain of the tenant."""
        body = {"jobType": "tidy", "payload": "later", "delaySeconds": 3600}
        job_id = (await self._connection.ask("POST", "/api/jobs", body)).data["jobId"]
        answer = await self._connection.ask("POST", f"/api/jobs/{job_id}/cancel")
        assert answer.status == 200, answer
        self.cancelled += 1

    async def follow(self) -> None:
        """Hear of all ends, and come back with the last id where a stream has ended."""
        last: dict[str, str] = {}
        while True:
            reader = await self._stream.begin("GET", "/api/events", headers=last)
            answer = await self._stream.answer(reader)
            assert answer.status == 200, answer
            while line := await reader.readline():
                name, _, value = line.decode().strip().partition(": ")
                if name == "id":
                    last = {"Last-Event-ID": value}
                elif name == "data" and '"status":"Completed"' in value:
                    self.ended.add(json.loads(value)["jobId"])
            self._stream.close()

    async def heard_all(self) -> None:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while not self.completed <= self.ended:  # noqa: ASYNC110  # a stream is read beside it
                await asyncio.sleep(0.05)

    def p99(self, what: str) -> float:
        times = sorted(self.seconds[what])
        return times[int(len(times) * 0.99)]

    def close(self) -> None:
        self._connection.close()
        self._stream.close()


@contextmanager
def process(
    *words: str, environment: Mapping[str, str], is_bad: bool, is_heard: bool = False
) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", *words],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE if is_heard else subprocess.DEVNULL,
        stderr=None if is_heard else subprocess.DEVNULL,
        preexec_fn=lambda: os.nice(_LOWER_PRIORITY if is_bad else 0),  # no thread holds a lock here
        text=True,
    ) as child:
        try:
            yield child
        finally:
            child.terminate()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.stop()


class Neighbours:
    """Two tenants on one server."""

    def __init__(self, url: str, receiver: Receiver) -> None:
        self._store = store_from_url(url, clock=SystemClock())
        self._receiver = receiver
        self.environment = {
            "GANTLINE_STORE": url,
            "GANTLINE_KEY_PEPPER": _PEPPER,
            "GANTLINE_WEBHOOK_KEY": _PEPPER,
            "GANTLINE_WEBHOOK_ALLOW": "127.0.0.0/8",
            "PYTHONPATH": f"{REPOSITORY / 'src'}{os.pathsep}{REPOSITORY}",
        }
        self.api = ApiProcess(_TARGET, by=BY_GANTLINE, **self.environment)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        await self._store.open()
        await asyncio.to_thread(self.api.start)
        try:
            with self._worker("quiet,webhooks"), self._worker("loud", is_bad=True):
                yield
        finally:
            self.api.close()
            await self._store.close()

    @contextmanager
    def _worker(self, queues: str, *, is_bad: bool = False) -> Iterator[None]:
        words = ("gantline.cli.main", "worker", _TARGET, "--queue", queues, "--drain", "5s")
        with process(*words, environment=self.environment, is_bad=is_bad):
            yield

    async def key(self, tenant: str) -> str:
        """Of an administrator of the tenant: it may do most."""
        keys = ApiKeys(self._store, Peppers.read(_PEPPER), clock=SystemClock())
        grant = KeyGrant(name=tenant, tenant_id=tenant, roles=frozenset({Role.ADMIN}))
        return (await keys.create(grant)).text

    async def measured(self, key: str, seconds: float) -> GoodNeighbour:
        """The good neighbour at work, until all of his jobs are heard of and delivered."""
        good = GoodNeighbour(self.api.url, key)
        following = asyncio.create_task(good.follow())
        working = asyncio.create_task(good.work(seconds))
        try:
            await asyncio.wait({following, working}, return_when=asyncio.FIRST_COMPLETED)
            assert not following.done(), following.result()
            working.result()
            await good.heard_all()
            await asyncio.to_thread(self._delivered, good.completed)
        finally:
            working.cancel()
            following.cancel()
            await asyncio.gather(working, following, return_exceptions=True)
            good.close()
        return good

    def _delivered(self, job_ids: set[str]) -> None:
        missing, looked = set(job_ids), 0

        def are_all_there(received: list[Received]) -> bool:
            nonlocal looked
            for one in received[looked:]:
                if one.path == "/good":
                    missing.discard(json.loads(one.body)["data"]["jobId"])
            looked = len(received)
            return not missing

        self._receiver.wait_for(are_all_there)

    async def cancels_audited(self, tenant: str) -> int:
        """How many there are in the tenant's chain, which must be whole."""
        chains = AuditChains(self._store)
        report = await verify_chain(tenant, chains.events(tenant), now=SystemClock().now())
        assert not report.findings, report
        events = [event async for event in chains.events(tenant)]
        return sum(isinstance(one, AuditEvent) and one.type == "cancelJob" for one in events)


async def _misuse(
    neighbours: Neighbours, keys: Sequence[str], receiver: Receiver, seconds: float
) -> None:
    words = (
        "tests.chaos.bad_neighbour",
        *(neighbours.api.url, *keys, receiver.url("/bad"), str(seconds)),
    )
    environment = neighbours.environment
    with process(*words, environment=environment, is_bad=True, is_heard=True) as child:
        assert child.stdout is not None
        said = await asyncio.to_thread(child.stdout.read)
    say(f"the bad neighbour was answered {said}")
    answers = json.loads(said)
    expected = ("submit 202", "batch 202", "slow body 408", "wrong key 401", "stream 429")
    assert all(answers.get(what, 0) > 0 for what in expected), said


async def _one_harms_no_other(postgres: PostgresServer, receiver: Receiver, seconds: float) -> None:
    neighbours = Neighbours(postgres.url(schema=f"n{uuid4().hex}"), receiver)
    async with neighbours.open():
        good = await neighbours.key(_GOOD)
        bad = [await neighbours.key(_BAD) for _ in range(2)]
        connection = Connection(neighbours.api.url, good)
        made = await connection.ask("POST", "/api/webhooks", {"url": receiver.url("/good")})
        assert made.status == 201, made
        connection.close()
        first = await neighbours.measured(good, 2.0)  # all is loaded then
        quiet = await neighbours.measured(good, min(seconds, 30.0))
        misuse = asyncio.create_task(_misuse(neighbours, bad, receiver, seconds + 2.0))
        await asyncio.sleep(1.0)
        loaded = await neighbours.measured(good, seconds)
        for what in ("submit", "status"):
            alone, beside = quiet.p99(what), loaded.p99(what)
            say(f"p99 of {what}: {1000 * alone:.1f} ms alone, {1000 * beside:.1f} ms beside him")
        await misuse
        cancelled = first.cancelled + quiet.cancelled + loaded.cancelled
        assert await neighbours.cancels_audited(_GOOD) == cancelled
        for what in ("submit", "status"):
            assert loaded.p99(what) <= max(2 * quiet.p99(what), _SLOWEST_SECONDS), what


@pytest.mark.chaos
async def test_one_tenant_at_full_misuse_harms_no_other(receiver: Receiver) -> None:
    postgres = PostgresServer()
    try:
        seconds = float(os.environ.get(SECONDS_VARIABLE, "300"))
        await _one_harms_no_other(postgres, receiver, seconds)
    finally:
        postgres.stop()


@pytest.mark.chaos
async def test_one_tenant_at_misuse_for_a_moment_harms_no_other(
    postgres: PostgresServer, receiver: Receiver
) -> None:
    await _one_harms_no_other(postgres, receiver, 15.0)

"""Proofs with real processes: leaders that are killed at every step, a server that is restarted;
and how late and how costly ten thousand schedules are."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path
from statistics import quantiles
from typing import Any
from uuid import uuid4

import pytest

from gantline import Gantline, WorkerSettings
from gantline.contract.clock import SystemClock
from gantline.contract.errors import StoreUnavailable
from gantline.contract.store import JobStore
from gantline.manager.manager import JobManager
from gantline.manager.observer import Observer
from gantline.schedules.recurrence import Every
from gantline.schedules.schedule import Schedule, ScheduleRecord
from gantline.schedules.scheduler import Scheduler
from gantline.schedules.schedules import definition_of, entry_of, key_of
from gantline.stores import store_from_url
from gantline.testing.liveness import watching
from gantline.testing.readiness import of_worker
from tests.schedules.schedule_bench import Bench, check_none_doubled_none_missed
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

pytestmark = pytest.mark.xdist_group("schedule-proofs")

# A worker that fires runs jobs as well: it polls each second; the machine may be slow.
STARTS_WITHIN = timedelta(seconds=10)
QUIET = WorkerSettings(queues={"default": 1}, drain=timedelta(0))


def say(text: str) -> None:
    print(text)  # noqa: T201  # the figures of a proof; pytest shows them with -rP


class Place:
    """A store that outlives processes; where it is a server, it can crash."""

    def __init__(self, url: str, server: PostgresServer | RedisServer | None = None) -> None:
        self.url = url
        self.server = server

    def cpu_seconds(self) -> float:
        """What its server has taken; where it has none, that is the worker's."""
        return 0.0 if self.server is None else self.server.cpu_seconds()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[JobStore]:
        store = store_from_url(self.url, clock=SystemClock())
        await store.open()
        try:
            yield store
        finally:
            await store.close()


@pytest.fixture(scope="module")
def synced_postgres() -> Iterator[PostgresServer]:
    """One that may be killed, and that keeps what it has acknowledged."""
    server = PostgresServer(synced=True)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def synced_redis() -> Iterator[RedisServer]:
    """Likewise."""
    server = RedisServer(appendonly="yes", appendfsync="always")
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    name = f"w{uuid4().hex}"
    match request.param:
        case "sqlite":
            return Place(f"sqlite:///{tmp_path}/gantline.db")
        case "redis":
            redis: RedisServer = request.getfixturevalue("synced_redis")
            return Place(redis.url(prefix=name), redis)
        case _:
            postgres: PostgresServer = request.getfixturevalue("synced_postgres")
            return Place(postgres.url(schema=name), postgres)


class RealTime:
    """A bench in real time: the clock is the store's own."""

    clock: Any = None

    async def open(self) -> JobStore:
        raise NotImplementedError


def start_leader(url: str, step: int, when: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.schedule_leader", url, str(step), when]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


async def _killed(
    place: Place, *, schedules: int, deaths: Sequence[tuple[int, str]], restarts: int
) -> int:
    """Two leaders at a time, each dying at its step; then one that lives. Count what was fired."""
    async with place.opened() as store:
        bench = Bench(RealTime(), store)
        made = [await bench.add(f"s{number}", Every(1)) for number in range(schedules)]
        left = list(deaths)
        leaders: list[subprocess.Popen[bytes]] = []
        restart_at = [len(left) * number // (restarts + 1) for number in range(1, restarts + 1)]
        end = time.monotonic() + 1200
        while (left or leaders) and time.monotonic() < end:
            leaders = [one for one in leaders if one.poll() is None]
            while left and len(leaders) < 2:
                leaders.append(start_leader(place.url, *left.pop()))
                if place.server is not None and len(left) in restart_at:
                    await asyncio.to_thread(place.server.crash)
            await asyncio.sleep(0.05)
        for one in leaders:
            one.kill()
            one.wait()
        await _caught_up(store)
        return await check_none_doubled_none_missed(bench, made)


async def _caught_up(store: JobStore) -> None:
    """Let one that lives take over, and fire until nothing is due."""
    last = Scheduler(store, JobManager(store), "last")
    async with asyncio.timeout(300):
        while True:
            try:
                if (await last.run_once()).leads:
                    return
            except StoreUnavailable:
                pass
            await asyncio.sleep(0.1)


async def test_leaders_are_killed_at_some_steps(place: Place) -> None:
    deaths = [(8, "before"), (10, "after"), (14, "before"), (12, "after")]
    fired = await _killed(place, schedules=5, deaths=deaths, restarts=1)
    assert fired > 5


@pytest.mark.chaos
@pytest.mark.timeout(1800)
async def test_leaders_are_killed_at_every_step_and_the_server_is_restarted(place: Place) -> None:
    deaths = list(product(range(1, 41), ("before", "after")))
    fired = await _killed(place, schedules=200, deaths=deaths, restarts=5)
    say(f"{len(deaths)} leaders killed, {fired} fired, none doubled, none missed")
    assert fired >= 10_000


# -- ten thousand schedules ---------------------------------------------------------------------


async def _fill(store: JobStore, *, count: int, begin: datetime, phase: timedelta) -> None:
    """Store schedules whose first instants are spread evenly over the phase."""
    records = []
    for number in range(count):
        anchor = begin + phase * number / count
        schedule = Schedule(
            name=f"s{number:05d}",
            recurrence=Every(3600, anchor),
            job_type="work",
        )
        record = ScheduleRecord(
            id=uuid4(),
            schedule=schedule,
            origin="api",
            created_at=begin,
            changed_at=begin,
            next_run=anchor,
        )
        records.append((key_of("default", schedule.name), record))
    for start in range(0, count, 500):
        part = records[start : start + 500]
        writes = [entry for key, record in part if (entry := entry_of(key, record)) is not None]
        writes += [definition_of(key, record, expected=0) for key, record in part]
        await store.write_records(writes)


@asynccontextmanager
async def _worker(url: str) -> AsyncIterator[Gantline]:
    """A worker that fires, and runs nothing of what it fires."""
    jobs = Gantline(url)

    @jobs.job("other")
    async def other() -> None: ...

    async with jobs:
        yield jobs


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("phase", "most_seconds"),
    [
        pytest.param(timedelta(seconds=60), 1.0, id="spread over a minute"),
        pytest.param(timedelta(0), None, id="all at one instant"),
    ],
)
async def test_how_late_ten_thousand_schedules_are(
    place: Place, phase: timedelta, most_seconds: float | None
) -> None:
    lateness: list[float] = []

    class Noting(Observer):
        def fired(self, lateness_of: Sequence[tuple[str, float]]) -> None:
            lateness.extend(seconds for _, seconds in lateness_of)

    async with _worker(place.url) as jobs:
        jobs.watching.observer.observer = Noting()
        begin = await jobs.store.ping() + timedelta(seconds=90)
        await _fill(jobs.store, count=10_000, begin=begin, phase=phase)
        (other,) = jobs.job_types
        async with asyncio.timeout(500), jobs.running(QUIET) as worker:
            readiness = [of_worker(worker)]
            async with watching(jobs.store, readiness=readiness, within=STARTS_WITHIN) as oracle:
                while len(lateness) < 10_000:
                    await other.submit(None)
                    await asyncio.sleep(1)
            await oracle.check_economy()
    cuts = quantiles(lateness, n=100)
    say(
        f"10,000 schedules: lateness p50 {cuts[49]:.3f} s, p99 {cuts[98]:.3f} s, "
        f"most {max(lateness):.3f} s"
    )
    assert len(lateness) == 10_000
    assert most_seconds is None or cuts[98] < most_seconds


@pytest.mark.chaos
@pytest.mark.timeout(300)
async def test_what_ten_thousand_idle_schedules_cost(place: Place) -> None:
    """The processor time of a whole worker and of its server, with them and without."""
    worker: dict[int, float] = {}
    server: dict[int, float] = {}
    for count in (0, 10_000):
        async with _worker(place.url) as jobs:
            begin = await jobs.store.ping() + timedelta(hours=1)
            await _fill(jobs.store, count=count, begin=begin, phase=timedelta(hours=1))
            async with jobs.running(QUIET):
                await asyncio.sleep(5)
                began = time.monotonic()
                mine, its = time.process_time(), place.cpu_seconds()
                await asyncio.sleep(70)  # one look through all of them among it
                seconds = time.monotonic() - began
                worker[count] = (time.process_time() - mine) / seconds
                server[count] = (place.cpu_seconds() - its) / seconds
    for who, used in (("worker", worker), ("server", server)):
        say(f"idle {who}: {used[0]:.2%} of a core without schedules, {used[10_000]:.2%} with them")
    assert worker[10_000] + server[10_000] - worker[0] - server[0] < 0.02

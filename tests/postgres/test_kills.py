"""A server that is killed, restarted and paused under load, and workers that are killed: nothing
accepted is lost, nothing ends twice, and work goes on by itself."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from gantline import Context, Gantline, JobStatus
from gantline.contract.clock import SystemClock
from gantline.contract.errors import StoreUnavailable
from gantline.contract.results import Applied
from gantline.contract.snapshot import RunRef
from gantline.stores import store_from_url
from gantline.testing.factories import lane_requests, make_new, register_sessions
from gantline.worker.settings import WorkerSettings
from tests.fleet import Fleet
from tests.postgres.load import Load, check_books
from tests.servers.postgres import PostgresServer

pytestmark = [pytest.mark.wide, pytest.mark.xdist_group("postgres-kills"), pytest.mark.timeout(300)]

DEADLINE_SECONDS = 1.0
# What a call may take beyond its deadline: it says good-bye to the server, which may not answer.
GRACE_SECONDS = 2.0

# Short in every run of the suite, long in the proofs.
short_and_long = pytest.mark.parametrize(
    "rounds", [pytest.param(3), pytest.param(40, marks=pytest.mark.chaos)]
)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """One that may be killed, and that keeps what it has acknowledged."""
    server = PostgresServer(synced=True)
    yield server
    server.stop()


@pytest.fixture
async def own_schema(server: PostgresServer) -> AsyncIterator[str]:
    name = f"w{uuid4().hex}"
    yield name
    async with await psycopg.AsyncConnection.connect(server.url(), autocommit=True) as connection:
        await connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE".encode())


def say(text: str) -> None:
    print(text)  # noqa: T201  # the figures of a proof; pytest shows them with -rP


class Killer:
    """Ends connections of ours as an administrator does, in the middle of whatever they do."""

    def __init__(self, server: PostgresServer) -> None:
        self._url = server.url()
        self.killed: Counter[str] = Counter()

    async def kill(self, most: int) -> None:
        """Those that are busy first, so that a statement is hit and not an idle connection."""
        statement = """
            SELECT pg_terminate_backend(pid), state FROM (
                SELECT pid, state FROM pg_stat_activity WHERE application_name = 'gantline'
                ORDER BY state = 'active' DESC, random() LIMIT %s) AS victim
        """
        async with await psycopg.AsyncConnection.connect(self._url, autocommit=True) as connection:
            rows = await (await connection.execute(statement, (most,))).fetchall()
        self.killed.update(state for _, state in rows)


@short_and_long
async def test_connections_killed_in_the_middle_cost_nothing(
    server: PostgresServer, own_schema: str, rounds: int
) -> None:
    load, killer = Load(server.url(schema=own_schema)), Killer(server)
    async with load.running():
        await load.run_more(100)
        for _ in range(10 * rounds):
            await killer.kill(most=2)
            await load.run_more(20)
    events = await check_books(server.url(), load.accepted, own_schema)
    say(
        f"{killer.killed.total()} connections killed ({dict(killer.killed)}), "
        f"{len(load.accepted)} jobs accepted, {load.ran} runs, events {dict(events)}, "
        f"{load.unavailable} submits told of it"
    )
    assert killer.killed["active"] > 0
    assert load.unavailable == 0, "a connection that is lost alone is nothing to tell of"


@short_and_long
async def test_a_server_that_crashes_under_load_is_found_again(
    server: PostgresServer, own_schema: str, rounds: int
) -> None:
    load = Load(server.url(schema=own_schema))
    seconds = []
    async with load.running():
        for _ in range(rounds):
            await load.run_more(200)
            await asyncio.to_thread(server.restart, "immediate")
            began = time.monotonic()
            await load.run_more(1)
            seconds.append(time.monotonic() - began)
        await load.run_more(200)
    events = await check_books(server.url(), load.accepted, own_schema)
    say(
        f"{rounds} crashes, {len(load.accepted)} jobs accepted, {load.ran} runs, "
        f"events {dict(events)}, work went on after {max(seconds):.2f} s at most"
    )
    assert max(seconds) < 10


@asynccontextmanager
async def paused(server: PostgresServer) -> AsyncIterator[None]:
    server.pause()
    try:
        yield
    finally:
        server.resume()


async def test_no_verb_waits_for_a_server_that_stands_still_beyond_its_deadline(
    server: PostgresServer, own_schema: str
) -> None:
    url = server.url(schema=own_schema, deadline=str(DEADLINE_SECONDS))
    store = store_from_url(url, clock=SystemClock())
    await store.open()
    new, run = make_new(1), RunRef(uuid4(), uuid4())
    lease = timedelta(seconds=60)

    async def timed(call: object) -> tuple[float, BaseException | None]:
        began = time.monotonic()
        try:
            await call  # type: ignore[misc]  # any verb
        except StoreUnavailable as error:
            return time.monotonic() - began, error
        return time.monotonic() - began, None

    verbs = (
        lambda: store.insert([new]),
        lambda: store.claim("s", uuid4(), lane_requests(), lease=lease),
        lambda: store.renew("s", [run], lease=lease),
        lambda: store.get([new.job.job_id], tenant_id=None),
        lambda: store.lead("role", "s", lease=lease),
        lambda: store.ping(),
    )
    await register_sessions(store, "s")
    await asyncio.gather(*(verb() for verb in verbs))  # so that there are connections to hang on
    async with paused(server):
        answers = await asyncio.gather(*(timed(verb()) for verb in verbs))
    for seconds, error in answers:
        assert error is not None
        assert "has not answered within 1 s" in str(error)
        assert seconds < DEADLINE_SECONDS + GRACE_SECONDS
    say(f"told after {max(seconds for seconds, _ in answers):.2f} s at most")
    assert await store.insert([make_new(2)]) == [Applied(1)]
    await store.close()


async def test_a_server_that_stands_still_under_load_is_used_again_when_it_goes_on(
    server: PostgresServer, own_schema: str
) -> None:
    load = Load(server.url(schema=own_schema, deadline=str(DEADLINE_SECONDS)))
    async with load.running():
        await load.run_more(200)
        async with paused(server):
            before = load.unavailable
            async with asyncio.timeout(30):
                while load.unavailable < before + 40:  # noqa: ASYNC110  # told by the store
                    await asyncio.sleep(0.05)
        began = time.monotonic()
        await load.run_more(200)
        seconds = time.monotonic() - began
    events = await check_books(server.url(), load.accepted, own_schema)
    say(
        f"{len(load.accepted)} jobs accepted, {load.ran} runs, events {dict(events)}, "
        f"{load.unavailable} submits told of it, 200 more after {seconds:.2f} s"
    )


async def test_handlers_that_hold_every_connection_stop_nobody_else(
    server: PostgresServer, own_schema: str
) -> None:
    jobs = Gantline(server.url(schema=own_schema, connections="2"))
    holding, may_go = asyncio.Semaphore(0), asyncio.Event()

    @jobs.job("hold", queue="slow")
    async def hold(value: int, ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("SELECT 1")
            holding.release()
            await may_go.wait()

    @jobs.job("plain")
    async def plain(value: int) -> int:
        return value

    settings = WorkerSettings(
        queues={"slow": 6, "default": 10},
        lease=timedelta(seconds=1),
        maintain_every=timedelta(milliseconds=100),
    )
    async with jobs, jobs.running(settings):
        held = [await hold.submit(number) for number in range(6)]
        for _ in range(2):
            await asyncio.wait_for(holding.acquire(), 10)
        owner = await _leader(server, own_schema)
        began, done = time.monotonic(), 0
        while time.monotonic() - began < 3:  # three leases
            handle = await plain.submit(done)
            assert await handle.result(timeout=5) == done
            done += 1
        assert await _leader(server, own_schema) == owner
        may_go.set()
        ended = [await handle.wait(timeout=20) for handle in held]
    say(f"{done} plain jobs beside 6 that wanted 2 connections, for three leases")
    assert [(job.status, job.fence, job.crashes) for job in ended] == [
        (JobStatus.COMPLETED, 1, 0)
    ] * 6


async def _leader(server: PostgresServer, schema: str) -> tuple[str, int]:
    async with await psycopg.AsyncConnection.connect(server.url()) as connection:
        cursor = await connection.execute(f"SELECT owner, term FROM {schema}.leader".encode())
        row = await cursor.fetchone()
    assert row is not None
    return row


@pytest.mark.parametrize(
    ("jobs", "processes", "kills"),
    [
        pytest.param(3_000, 4, 8, id="short"),
        pytest.param(30_000, 10, 60, id="long", marks=pytest.mark.chaos),
    ],
)
async def test_killed_workers_lose_nothing_and_do_nothing_twice(
    server: PostgresServer, own_schema: str, tmp_path: Path, jobs: int, processes: int, kills: int
) -> None:
    url = server.url(schema=own_schema)
    store = store_from_url(url, clock=SystemClock())
    await store.open()
    new = [make_new(number, max_attempts=1) for number in range(jobs)]
    for start in range(0, jobs, 500):
        batch = new[start : start + 500]
        assert await store.insert(batch) == [Applied(1)] * len(batch)
    fleet = Fleet(url, tmp_path)
    began = time.monotonic()
    await fleet.run(processes=processes, kills=kills)
    assert fleet.killed >= kills // 2, "the work was over before enough processes were killed"
    found = await store.get([one.job.job_id for one in new], tenant_id=None)
    await store.close()
    statuses = Counter(job.status for job in found if job)
    assert statuses.keys() <= {JobStatus.COMPLETED, JobStatus.POISONED}
    assert statuses.total() == jobs
    completed = [job.job.job_id for job in found if job and job.status is JobStatus.COMPLETED]
    events = await check_books(server.url(), completed, own_schema)
    accepted = fleet.accepted()
    assert len(set(accepted)) == len(accepted)
    async with await psycopg.AsyncConnection.connect(server.url()) as connection:
        cursor = await connection.execute(
            f"SELECT replace(change_id::text, '-', '') FROM {own_schema}.log "
            f"WHERE event = 'completed'".encode()
        )
        assert set(accepted) <= {row[0] for row in await cursor.fetchall()}
    assert events["crashed"] > 0
    say(
        f"{jobs} jobs, {processes} processes, {fleet.killed} killed, "
        f"{events['crashed']} runs taken over, {statuses[JobStatus.POISONED]} poisoned, "
        f"{time.monotonic() - began:.1f} s"
    )

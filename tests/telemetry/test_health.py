"""Health and readiness: what each check says, and that nothing is told to whoever asks."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from gantline import Gantline, InvalidInput, WorkerSettings
from gantline.contract.errors import StoreUnavailable
from gantline.stores.memory import MemoryStore
from gantline.telemetry.health import LOOP_MAY_BE_SILENT_SECONDS
from gantline.telemetry.health_server import AsgiApp
from gantline.telemetry.loop_watch import LoopWatch
from gantline.testing.clock import FakeClock
from gantline.testing.faults import Call, intercepted
from gantline.worker.worker import Worker
from tests.servers.postgres import free_port
from tests.servers.rabbitmq import RabbitServer
from tests.telemetry.asking import Answer, ask

WHERE = "db.internal:5432 as admin"


class Gone:
    """A store that goes away, or hangs, and comes back."""

    def __init__(self) -> None:
        self.is_away = False
        self.hangs = False
        self.refuses = ""
        self.refused = asyncio.Semaphore(0)
        self.pings = 0
        self.store = intercepted(MemoryStore(clock=FakeClock()), self._around)

    async def _around(self, verb: str, call: Call) -> Any:
        self.pings += verb == "ping"
        if verb == self.refuses:
            self.refused.release()
            raise StoreUnavailable("Not now.")
        if self.is_away:
            raise StoreUnavailable(f"It cannot be reached at {WHERE}.")
        if self.hangs:
            await asyncio.Event().wait()
        return await call()


async def test_a_process_that_answers_is_alive_whatever_its_store_does() -> None:
    gone = Gone()
    gone.is_away = gone.hangs = True
    answer = await ask(Gantline(gone.store).health_app(), "/healthz")
    assert (answer.status, answer.json) == (200, {"ok": True, "checks": {"loop": {"ok": True}}})
    assert gone.pings == 0
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"


async def test_readiness_follows_the_store_away_and_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gantline.telemetry.health._STORE_MAX_AGE_SECONDS", 0.0)
    monkeypatch.setattr("gantline.telemetry.health._DEADLINE_SECONDS", 0.05)
    gone = Gone()
    app = Gantline(gone.store).health_app()
    assert (await ask(app, "/readyz")).status == 200
    for trouble in ("is_away", "hangs"):
        setattr(gone, trouble, True)
        answer = await ask(app, "/readyz")
        assert (answer.status, answer.failed) == (503, {"store", "migrations"})
        assert answer.json["checks"]["store"]["message"] == "The store does not answer."
        setattr(gone, trouble, False)
        assert (await ask(app, "/readyz")).status == 200
    assert WHERE in caplog.text, "the operator is told what those who ask are not"


async def test_many_who_ask_at_once_cost_the_store_one_question() -> None:
    gone = Gone()
    app = Gantline(gone.store).health_app()
    answers = await asyncio.gather(*(ask(app, "/readyz") for _ in range(100)))
    assert {answer.status for answer in answers} == {200}
    assert gone.pings == 1


@asynccontextmanager
async def file_app(folder: Path) -> AsyncIterator[tuple[AsgiApp, sqlite3.Connection]]:
    file = folder / "gantline.db"
    async with Gantline(f"sqlite:///{file}") as jobs:
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            yield jobs.health_app(), connection


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM gantline_migration",
        "UPDATE gantline_migration SET checksum = 'another'",
        "INSERT INTO gantline_migration VALUES (99, 'from_the_future', 'x', 99, '')",
    ],
    ids=["missing", "altered", "newer"],
)
async def test_a_schema_that_this_code_does_not_know_is_unready(
    tmp_path: Path, change: str
) -> None:
    async with file_app(tmp_path) as (app, connection):
        connection.execute(change)
        assert (await ask(app, "/readyz")).failed == {"migrations"}


@pytest.mark.parametrize("name", ["gantline.db", "gantline.db-wal", "gantline.db-shm"])
async def test_a_file_that_was_removed_is_unready(tmp_path: Path, name: str) -> None:
    async with file_app(tmp_path) as (app, _):
        (tmp_path / name).unlink()
        answer = await ask(app, "/readyz")
        assert answer.status == 503
        assert "store" in answer.failed


async def test_the_schema_is_not_looked_at_for_every_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gantline.telemetry.health._STORE_MAX_AGE_SECONDS", 0.0)
    async with file_app(tmp_path) as (app, connection):
        assert (await ask(app, "/readyz")).status == 200
        connection.execute("DELETE FROM gantline_migration")
        assert (await ask(app, "/readyz")).status == 200


class Shop:
    """An application whose jobs run until they are let go."""

    def __init__(self) -> None:
        self.jobs = Gantline("memory://")
        self.may_end = asyncio.Event()
        self.started = asyncio.Semaphore(0)
        self.hold = self.jobs.job("hold")(self._hold)

    async def _hold(self) -> None:
        self.started.release()
        await self.may_end.wait()

    @asynccontextmanager
    async def working(self) -> AsyncIterator[Worker]:
        settings = WorkerSettings(queues={"default": 1}, poll=timedelta(milliseconds=20))
        async with self.jobs, self.jobs.running(settings) as worker:
            yield worker
            self.may_end.set()


async def ready(app: AsgiApp) -> Answer:
    """Wait until it is."""
    async with asyncio.timeout(30):
        while True:
            answer = await ask(app, "/readyz")
            if answer.status == 200:
                return answer
            await asyncio.sleep(0.01)


async def test_a_worker_is_ready_when_it_looks_for_work_and_not_while_it_drains() -> None:
    shop = Shop()
    app = shop.jobs.health_app(expects_worker=True)
    assert (await ask(app, "/readyz")).failed == {"consuming"}, "it does not run yet"
    async with shop.working() as worker:
        checks = (await ready(app)).json["checks"]
        assert list(checks) == ["loop", "store", "migrations", "draining", "consuming"]
        await shop.hold.submit(None)
        await shop.started.acquire()
        worker.stop()
        assert (await ask(app, "/readyz")).failed == {"draining", "consuming"}
        assert (await ask(app, "/healthz")).status == 200
    assert (await ask(app, "/readyz")).failed == {"consuming"}, "it is gone"


async def test_a_worker_without_a_free_slot_need_not_look_for_work() -> None:
    shop = Shop()
    async with shop.working() as worker:
        await ready(shop.jobs.health_app())
        await shop.hold.submit(None)
        await shop.started.acquire()
        assert worker.trouble(timedelta(0)) is None, "it is full"
        assert worker.slots == {"default": (1, 0)}


async def test_a_worker_whose_claims_fail_does_not_consume() -> None:
    """It asks and asks, but asking is not what makes it healthy."""
    gone = Gone()
    jobs = Gantline(gone.store)

    @jobs.job("any")
    async def handle() -> None: ...

    settings = WorkerSettings(queues={"default": 1}, poll=timedelta(milliseconds=5))
    async with jobs, jobs.running(settings) as worker:
        await ready(jobs.health_app())
        gone.refuses = "claim"
        await gone.refused.acquire()
        claimed_at = time.monotonic()
        for _ in range(3):
            await gone.refused.acquire()
        since = timedelta(seconds=time.monotonic() - claimed_at)
        assert worker.trouble(since) is not None
        gone.refuses = ""
        async with asyncio.timeout(30):
            while worker.trouble(since) is not None:  # noqa: ASYNC110  # in the worker
                await asyncio.sleep(0.005)


async def test_a_paused_worker_is_ready() -> None:
    shop = Shop()
    await shop.jobs.open()
    await shop.jobs.switches.pause_queue("default")
    async with shop.working():
        await ready(shop.jobs.health_app(expects_worker=True))


async def test_a_silent_loop_is_neither_alive_nor_ready() -> None:
    now = 100.0
    watch = LoopWatch(asyncio.get_running_loop(), clock=lambda: now)
    app = Gantline("memory://").health_app(watch=watch)
    watch.ask()
    now += LOOP_MAY_BE_SILENT_SECONDS
    assert (await ask(app, "/healthz")).status == 200
    now += 0.1
    # Nothing here has yet given the loop a turn to answer in.
    assert watch.silent_seconds > LOOP_MAY_BE_SILENT_SECONDS
    for path in ("/healthz", "/readyz"):
        answer = await ask(app, path)
        assert (answer.status, "loop" in answer.failed) == (503, True)
    await asyncio.sleep(0)
    assert (await ask(app, "/healthz")).status == 200
    assert watch.lag_seconds == pytest.approx(LOOP_MAY_BE_SILENT_SECONDS + 0.1)


async def test_a_loop_that_is_closed_stays_silent() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    now = 100.0
    watch = LoopWatch(loop, clock=lambda: now)
    watch.ask()
    now += 50
    watch.ask()
    assert watch.silent_seconds == 50


# -- the broker ----------------------------------------------------------------------------------


def test_a_broker_cannot_be_required_where_there_is_none() -> None:
    with pytest.raises(InvalidInput, match="GANTLINE_TRIGGER"):
        Gantline("memory://").health_app(requires_broker=True)


async def test_a_broker_that_is_required_must_be_connected() -> None:
    trigger = f"amqp://guest:guest@127.0.0.1:{free_port()}/"
    async with Gantline("memory://", trigger=trigger) as jobs:
        await jobs.store.ping()
        required = jobs.health_app(requires_broker=True)
        assert (await ask(required, "/readyz")).failed == {"broker"}
        assert (await ask(jobs.health_app(), "/readyz")).status == 200, "polling does without"


@pytest.fixture
def broker() -> Iterator[RabbitServer]:
    server = RabbitServer()
    yield server
    server.stop()


@pytest.mark.xdist_group("rabbitmq")
async def test_readiness_follows_a_required_broker_away_and_back(broker: RabbitServer) -> None:
    async with Gantline("memory://", trigger=broker.url) as jobs:
        app = jobs.health_app(requires_broker=True)
        await ready(app)
        await asyncio.to_thread(broker.kill)
        async with asyncio.timeout(30):
            while (await ask(app, "/readyz")).failed != {"broker"}:  # noqa: ASYNC110  # in a thread
                await asyncio.sleep(0.01)
        await asyncio.to_thread(broker.start)
        await ready(app)


# -- the pages -----------------------------------------------------------------------------------


async def test_only_these_pages_can_be_read_and_only_read() -> None:
    app = Gantline("memory://").health_app()
    assert (await ask(app, "/")).status == 404
    assert (await ask(app, "/healthz/")).status == 404
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        answer = await ask(app, "/healthz", method=method)
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
    head = await ask(app, "/healthz", method="HEAD")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == "42"


async def test_the_pages_can_be_mounted_anywhere() -> None:
    app = Gantline("memory://").health_app()
    assert (await ask(app, "/healthz", root_path="/ops")).status == 200
    mounted = Starlette(routes=[Mount("/ops", app=app), Mount("/", app=app)])
    for path in ("/ops/healthz", "/ops/metrics", "/healthz"):
        assert (await ask(mounted, path)).status == 200
    assert (await ask(mounted, "/ops/nope")).status == 404

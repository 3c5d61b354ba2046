"""Events get their numbers soon after runs were settled, wherever a worker runs; idle, never."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from gantline import Gantline, WorkerSettings
from gantline.contract.clock import SystemClock
from gantline.contract.errors import StoreUnavailable
from gantline.contract.snapshot import LoggedEvent
from gantline.contract.status import Event
from gantline.stores.memory import MemoryStore
from gantline.testing.faults import Call, intercepted
from gantline.worker.announcer import Numberer
from tests.app_under_test import Document, index, make_app, wait_for_ever
from tests.ear import PATIENCE_SECONDS
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

ALONE = WorkerSettings(queues={"default": 10}, drain=timedelta(0), maintain_every=None)


class Slow(MemoryStore):
    """Numbers when asked to, and answers when the test says so."""

    def __init__(self) -> None:
        super().__init__(clock=SystemClock())
        self.calls = 0
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.is_away = False

    @property
    def capabilities(self) -> Any:
        return replace(super().capabilities, event_lag=timedelta(seconds=1))

    async def sequence(self, *, limit: int) -> int:
        self.calls += 1
        self.asked.set()
        await self.may_answer.wait()
        if self.is_away:
            raise StoreUnavailable("away")
        return 1


async def test_however_many_runs_end_meanwhile_they_are_one_call_more() -> None:
    store, told = Slow(), list[None]()
    numberer = Numberer(store, on_numbers=lambda: told.append(None))
    numberer.soon()
    await store.asked.wait()
    for _ in range(1000):
        numberer.soon()
    assert store.calls == 1
    store.may_answer.set()
    await numberer.finish()
    assert store.calls == 2
    assert told


async def test_what_the_store_numbers_itself_is_not_asked_for() -> None:
    calls: list[str] = []

    async def around(verb: str, call: Call) -> Any:
        calls.append(verb)
        return await call()

    store = intercepted(MemoryStore(clock=SystemClock()), around)
    numberer = Numberer(store, on_numbers=lambda: None)
    numberer.soon()
    await numberer.finish()
    assert calls == []


async def test_a_store_that_is_away_is_left_to_whoever_leads() -> None:
    store, told = Slow(), list[None]()
    store.is_away = True
    store.may_answer.set()
    numberer = Numberer(store, on_numbers=lambda: told.append(None))
    numberer.soon()
    await store.asked.wait()
    await numberer.finish()
    assert told == []


async def numbered(app: Gantline, number: int) -> list[LoggedEvent]:
    """Wait for numbers without asking for any."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            if len(found := await app.store.events(after=0, limit=number)) == number:
                return found
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres", "redis"])
async def test_events_are_numbered_where_nobody_leads(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    app = make_app(_url(store, tmp_path, request))
    async with app, app.running(ALONE):
        handles = await index.submit_many([Document(f"d{n}") for n in range(20)])
        found = await numbered(app, 20)
    assert {event.entry.job_id for event in found} == {handle.job_id for handle in handles}
    assert {event.entry.event for event in found} == {Event.COMPLETED}
    assert [event.sequence for event in found] == list(range(1, 21))


async def test_what_a_stopping_worker_gives_back_is_numbered(postgres: PostgresServer) -> None:
    app = make_app(new_schema(postgres))
    async with app:
        async with app.running(ALONE):
            handle = await wait_for_ever.submit(None)
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    if (await handle.status()).run is not None:
                        break
                    await asyncio.sleep(0.01)
        (event,) = await app.store.events(after=0, limit=10)
    assert event.entry.event is Event.RELEASED


async def test_an_idle_worker_asks_for_no_numbers(postgres: PostgresServer) -> None:
    """Neither before it has settled something nor once that is numbered."""
    app = make_app(new_schema(postgres))
    calls: list[str] = []
    looked_often = asyncio.Event()

    async def around(verb: str, call: Call) -> Any:
        calls.append(verb)
        if calls.count("claim") > 5:
            looked_often.set()
        return await call()

    app.move_to(intercepted(app.store, around))
    async with app, app.running(ALONE), asyncio.timeout(PATIENCE_SECONDS):
        await looked_often.wait()
        assert "sequence" not in calls
        await index.submit(Document("d1"))
        await numbered(app, 1)
        looked_often.clear()
        calls.clear()
        await looked_often.wait()
        assert calls.count("sequence") <= 1


def new_schema(server: PostgresServer) -> str:
    return server.url(schema=f"w{uuid4().hex}")


def _url(store: str, folder: Path, request: pytest.FixtureRequest) -> str:
    match store:
        case "memory":
            return "memory://"
        case "sqlite":
            return f"sqlite:///{folder}/gantline.db"
        case "redis":
            server: RedisServer = request.getfixturevalue("redis")
            return server.url(prefix=f"w{uuid4().hex}")
        case _:
            return new_schema(request.getfixturevalue("postgres"))

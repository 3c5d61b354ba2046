"""Wake-ups through a real PostgreSQL, which is restarted, frozen and told to drop its listeners."""

import asyncio
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from uuid import UUID, uuid4

import pytest
from psycopg import AsyncConnection

from gantline import Gantline, WorkerSettings
from gantline.contract.clock import SystemClock
from gantline.contract.errors import StoreMisconfigured
from gantline.contract.wakeup import Hint, OnHint, PostgresChannel
from gantline.stores import store_from_url
from gantline.wakeups.postgres import postgres_wakeup
from gantline.wakeups.remote import RemoteWakeup, WakeupPace
from tests.ear import PATIENCE_SECONDS, Ear, LogEar, is_up, log_ear, opened, overheard
from tests.servers.gate import Gate, gate_to
from tests.servers.postgres import PostgresServer

HASTY = WakeupPace(
    heartbeat_seconds=0.1,
    answer_seconds=0.5,
    first_wait_seconds=0.05,
    longest_wait_seconds=0.2,
)


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.resume()
    server.stop()


@pytest.fixture
async def log() -> AsyncIterator[LogEar]:
    with log_ear() as ear:
        yield ear


def channel_on(server: PostgresServer | Gate) -> PostgresChannel:
    schema = new_schema()
    return PostgresChannel(server.url(application_name=schema), f"{schema}.wake")


def new_schema() -> str:
    return f"w{uuid4().hex}"


def listening(
    channel: PostgresChannel, pace: WakeupPace = HASTY
) -> AbstractAsyncContextManager[tuple[RemoteWakeup, Ear]]:
    return overheard(postgres_wakeup(channel, pace))


def sending(
    channel: PostgresChannel, pace: WakeupPace = HASTY
) -> AbstractAsyncContextManager[RemoteWakeup]:
    return opened(postgres_wakeup(channel, pace))


@asynccontextmanager
async def connected(server: PostgresServer) -> AsyncIterator[AsyncConnection]:
    async with await AsyncConnection.connect(server.url(), autocommit=True) as connection:
        yield connection


async def test_a_hint_reaches_every_listener_of_its_schema_only(postgres: PostgresServer) -> None:
    here, elsewhere = channel_on(postgres), channel_on(postgres)
    async with (
        listening(here) as (_, one),
        listening(here) as (_, two),
        listening(elsewhere) as (_, other),
        sending(here) as sender,
    ):
        for hint in Hint:
            sender.notify(hint)
            assert [await one.hears(), await two.hears()] == [hint, hint]
        assert not other.has_more


async def test_what_sql_says_or_a_later_version_may_say_means_work(
    postgres: PostgresServer,
) -> None:
    channel = channel_on(postgres)
    async with listening(channel) as (_, ear), connected(postgres) as connection:
        for payload in ("", "something new"):
            await connection.execute("SELECT pg_notify(%s, %s)", (channel.name, payload))
            assert await ear.hears() is Hint.WORK


async def test_quiet_a_hint_goes_out_at_once_and_a_thousand_in_a_window_go_out_as_one(
    postgres: PostgresServer,
) -> None:
    channel, hourly = channel_on(postgres), HASTY._replace(window_seconds=3600)
    async with listening(channel) as (_, ear):
        async with sending(channel, hourly) as sender:
            sender.notify()
            assert await ear.hears() is Hint.WORK
            for _ in range(1000):
                sender.notify()
                await asyncio.sleep(0)
            assert not ear.has_more
        # Closing sends what is waiting. Said behind it, so that whoever hears it has heard all.
        async with connected(postgres) as connection:
            await connection.execute("SELECT pg_notify(%s, 'c')", (channel.name,))
        assert [await ear.hears(), await ear.hears()] == [Hint.WORK, Hint.CANCEL]


async def test_hints_of_different_kinds_do_not_swallow_each_other(postgres: PostgresServer) -> None:
    channel, hourly = channel_on(postgres), HASTY._replace(window_seconds=3600)
    async with listening(channel) as (_, ear):
        async with sending(channel, hourly) as sender:
            sender.notify()
            assert await ear.hears() is Hint.WORK
            sender.notify(Hint.CANCEL)
            sender.notify()
        assert {await ear.hears(), await ear.hears()} == {Hint.WORK, Hint.CANCEL}


async def test_a_sender_outlives_the_event_loop_that_opened_it(postgres: PostgresServer) -> None:
    channel = channel_on(postgres)
    async with listening(channel) as (_, ear):
        sender = postgres_wakeup(channel, HASTY)
        await asyncio.to_thread(lambda: asyncio.run(sender.open(None)))
        sender.notify()
        assert await ear.hears() is Hint.WORK
        await sender.close()


async def test_a_listener_whose_connection_is_ended_comes_back_and_looks_for_everything(
    postgres: PostgresServer, log: LogEar
) -> None:
    channel = channel_on(postgres)
    async with listening(channel) as (wakeup, ear), connected(postgres) as connection:
        ended = await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name || '.wake' = %s",
            (channel.name,),
        )
        assert await ended.fetchall() == [(True,)]
        await ear.hears_all()
        assert "only polling" in await log.hears(logging.WARNING)
        assert "are back" in await log.hears(logging.INFO)
        wakeup.notify()
        assert await ear.hears() is Hint.WORK
    assert not log.has_more


@contextmanager
def standing_still(server: PostgresServer) -> Iterator[None]:
    server.pause()
    try:
        yield
    finally:
        server.resume()


async def test_a_frozen_server_is_noticed_and_after_it_everything_is_looked_for(
    own_server: PostgresServer, log: LogEar
) -> None:
    channel = channel_on(own_server)
    async with listening(channel) as (wakeup, ear), sending(channel) as sender:
        sender.notify()
        await ear.hears_work()
        with standing_still(own_server):
            # Not by the log alone: on a busy machine an answer may have come late before.
            async with asyncio.timeout(PATIENCE_SECONDS):
                while is_up(wakeup):
                    await log.hears_something()
        ear.forget()
        await ear.hears_all()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while "are back" not in await log.hears_something():
                pass
        sender.notify()
        await ear.hears_work()


async def test_closing_does_not_wait_for_an_answer(postgres: PostgresServer, log: LogEar) -> None:
    """A question that was cut short while it was cancelled once ended the cancellation instead."""
    asking = HASTY._replace(heartbeat_seconds=0.0)
    async with gate_to(postgres) as gate:
        wakeup, ear = postgres_wakeup(channel_on(gate), asking), Ear()
        await wakeup.open(ear)
        await ear.hears_all()
        with gate.shut():
            await gate.someone_asks()
            await wakeup.close()
    assert log.all() == []


async def test_closing_does_not_wait_for_a_hint_that_does_not_get_out(
    postgres: PostgresServer, log: LogEar
) -> None:
    patient = HASTY._replace(answer_seconds=2.0)
    async with gate_to(postgres) as gate:
        wakeup = postgres_wakeup(channel_on(gate), patient)
        await wakeup.open(None)
        with gate.shut():
            wakeup.notify()
            await gate.someone_asks()
            await wakeup.close()
    assert not any("left open" in line for line in log.all())


async def test_a_link_that_does_not_end_is_left_behind(log: LogEar) -> None:
    may_end = threading.Event()

    class Stubborn:
        async def hold(self, heard: OnHint | None, connected: Callable[[], None]) -> None:
            connected()
            may_end.wait(PATIENCE_SECONDS)  # a driver that blocks its loop

        async def send(self, hint: Hint, job_id: UUID | None) -> None: ...

        async def close(self) -> None: ...

    wakeup = RemoteWakeup(Stubborn, what="stubborn wake-ups", pace=HASTY, always_connected=True)
    await wakeup.open(None)
    await wakeup.close()
    assert "stubborn wake-ups does not end" in await log.hears(logging.WARNING)
    may_end.set()


async def test_after_a_restart_the_first_hint_of_an_old_sender_gets_through(
    own_server: PostgresServer, log: LogEar
) -> None:
    channel = channel_on(own_server)
    async with listening(channel) as (_, ear), sending(channel) as sender:
        sender.notify()
        assert await ear.hears() is Hint.WORK
        await asyncio.to_thread(own_server.restart)
        await ear.hears_all()
        sender.notify()
        assert await ear.hears() is Hint.WORK
        await log.hears(logging.WARNING)
        await log.hears(logging.INFO)
    assert not log.has_more


async def test_without_a_server_notifying_neither_blocks_nor_raises(
    own_server: PostgresServer, log: LogEar
) -> None:
    channel = channel_on(own_server)
    own_server.halt()
    async with sending(channel) as sender:
        for _ in range(1000):
            sender.notify()
        await log.hears(logging.WARNING)
        sender.notify()
    assert not log.has_more
    own_server.start()


# -- the application ------------------------------------------------------------------------------


def app_on(url: str) -> tuple[Gantline, "asyncio.Queue[int]"]:
    jobs, ran = Gantline(url), asyncio.Queue[int]()

    @jobs.job("note")
    async def note(value: int) -> None:
        ran.put_nowait(value)

    return jobs, ran


@pytest.fixture
def hourly(monkeypatch: pytest.MonkeyPatch) -> WorkerSettings:
    """A worker that polls once an hour: only a wake-up can explain that it finds a job."""
    monkeypatch.setattr("gantline.worker.claimer._FIRST_WAIT_SECONDS", 3600.0)
    return WorkerSettings()


async def test_a_submit_in_another_process_wakes_a_worker_that_does_not_poll(
    postgres: PostgresServer, hourly: WorkerSettings
) -> None:
    url = postgres.url(schema=new_schema())
    jobs, ran = app_on(url)
    async with jobs, jobs.running(hourly):
        for value in (1, 2):
            await _gantline("job", "submit", "note", str(value), store=url)
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert await ran.get() == value


async def _gantline(*words: str, store: str) -> None:
    command = [sys.executable, "-m", "gantline.cli.main", *words]
    process = await asyncio.create_subprocess_exec(
        *command,
        env=os.environ | {"GANTLINE_STORE": store},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert await process.wait() == 0


async def test_a_job_submitted_in_sql_wakes_a_worker_when_it_is_committed(
    postgres: PostgresServer, hourly: WorkerSettings
) -> None:
    schema = new_schema()
    jobs, ran = app_on(postgres.url(schema=schema))
    async with jobs, jobs.running(hourly), connected(postgres) as connection:
        await connection.execute(
            f"SELECT {schema}.submit(%s)".encode(), ('{"jobType": "note", "payload": 3}',)
        )
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await ran.get() == 3


async def test_with_wake_ups_off_polling_alone_finds_the_job(postgres: PostgresServer) -> None:
    url = postgres.url(schema=new_schema(), wakeup="off")
    (working, ran), (submitting, _) = app_on(url), app_on(url)
    assert working.store.channel is None
    async with working, submitting, working.running():
        await submitting.job_types[0].submit(4)
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await ran.get() == 4


def test_a_channel_shows_no_password_and_its_name_fits() -> None:
    store = store_from_url("postgresql://me:hush@host/db?schema=mine", clock=SystemClock())
    assert isinstance(store.channel, PostgresChannel)
    assert store.channel.name == "mine.wake"
    assert "hush" in store.channel.conninfo
    assert "hush" not in f"{store.channel!r} {store.channel!s} {[store.channel]}"
    longest = store_from_url(f"postgresql://host/db?schema={'s' * 58}", clock=SystemClock())
    assert longest.channel is not None
    assert len(longest.channel.name) == 63
    with pytest.raises(StoreMisconfigured):
        store_from_url(f"postgresql://host/db?schema={'s' * 59}", clock=SystemClock())


async def test_drivers_are_imported_by_their_users_only() -> None:
    code = "import sys, gantline; gantline.Gantline('sqlite:///x.db'); print(*sys.modules)"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    modules = (await process.communicate())[0].decode().split()
    assert "gantline" in modules
    assert not {"psycopg", "aio_pika"} & set(modules)

"""Wake-ups through a real Redis, which is restarted, frozen and told to drop its listeners."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from uuid import uuid4

import pytest

from gantline import Gantline, WorkerSettings
from gantline.contract.wakeup import EarlyHints, Hint, RedisChannel
from gantline.wakeups.redis import redis_wakeup
from gantline.wakeups.remote import RemoteWakeup, WakeupPace
from tests.ear import PATIENCE_SECONDS, Ear, LogEar, is_up, log_ear, opened, overheard
from tests.servers.redis import RedisServer

HASTY = WakeupPace(
    heartbeat_seconds=0.1,
    answer_seconds=0.5,
    first_wait_seconds=0.05,
    longest_wait_seconds=0.2,
)


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    server = RedisServer()
    yield server
    server.resume()
    server.stop()


@pytest.fixture
async def log() -> AsyncIterator[LogEar]:
    with log_ear() as ear:
        yield ear


def channel_on(*servers: RedisServer) -> RedisChannel:
    urls = tuple(server.url() for server in servers)
    name = f"{{w{uuid4().hex}}}:wake:0"
    return RedisChannel(urls, name, any_server=len(urls) == 1, early_hints=EarlyHints(name))


def listening(
    channel: RedisChannel, pace: WakeupPace = HASTY
) -> AbstractAsyncContextManager[tuple[RemoteWakeup, Ear]]:
    return overheard(redis_wakeup(channel, pace))


def sending(
    channel: RedisChannel, pace: WakeupPace = HASTY
) -> AbstractAsyncContextManager[RemoteWakeup]:
    return opened(redis_wakeup(channel, pace))


async def test_a_hint_reaches_every_listener_of_its_prefix_only(redis: RedisServer) -> None:
    here, elsewhere = channel_on(redis), channel_on(redis)
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


async def test_what_a_later_version_may_say_means_work(redis: RedisServer) -> None:
    channel = channel_on(redis)
    async with listening(channel) as (_, ear):
        redis.call("PUBLISH", channel.name, "something new")
        assert await ear.hears() is Hint.WORK


async def nothing(number: int) -> None: ...


async def test_the_write_of_a_job_tells_of_it(redis: RedisServer) -> None:
    app = Gantline(redis.url(prefix=f"w{uuid4().hex}"))
    job_type = app.job("nothing")(nothing)
    async with app:
        assert isinstance(app.store.channel, RedisChannel)
        async with listening(app.store.channel) as (_, ear):
            await app.store.insert([job_type.prepare(1)])
            assert await ear.hears() is Hint.WORK


async def test_what_the_write_has_told_is_not_told_again(redis: RedisServer) -> None:
    app = Gantline(redis.url(prefix=f"w{uuid4().hex}"))
    job_type = app.job("nothing")(nothing)
    async with app:
        assert isinstance(app.store.channel, RedisChannel)
        async with listening(app.store.channel) as (_, ear):
            await job_type.submit(1)
            app.wakeup.notify(Hint.SWITCHED)
            assert [await ear.hears(), await ear.hears()] == [Hint.WORK, Hint.SWITCHED]
            app.wakeup.notify(job_id=uuid4())
            assert await ear.hears() is Hint.WORK


async def test_a_thousand_in_a_window_go_out_as_one(redis: RedisServer) -> None:
    channel, hourly = channel_on(redis), HASTY._replace(window_seconds=3600)
    async with listening(channel) as (_, ear):
        async with sending(channel, hourly) as sender:
            sender.notify()
            assert await ear.hears() is Hint.WORK
            for _ in range(1000):
                sender.notify()
                await asyncio.sleep(0)
            assert not ear.has_more
        # Closing sends what is waiting. Said behind it, so that whoever hears it has heard all.
        redis.call("PUBLISH", channel.name, "c")
        assert [await ear.hears(), await ear.hears()] == [Hint.WORK, Hint.CANCEL]


async def test_a_listener_whose_connection_is_ended_comes_back_and_looks_for_everything(
    own_server: RedisServer, log: LogEar
) -> None:
    channel = channel_on(own_server)
    async with listening(channel) as (wakeup, ear):
        own_server.call("CLIENT", "KILL", "TYPE", "pubsub")
        await ear.hears_all()
        assert "only polling" in await log.hears(logging.WARNING)
        assert "are back" in await log.hears(logging.INFO)
        wakeup.notify()
        assert await ear.hears() is Hint.WORK
    assert not log.has_more


async def test_a_frozen_server_is_noticed_and_after_it_everything_is_looked_for(
    own_server: RedisServer, log: LogEar
) -> None:
    channel = channel_on(own_server)
    async with listening(channel) as (wakeup, ear), sending(channel) as sender:
        sender.notify()
        await ear.hears_work()
        own_server.pause()
        # Not by the log alone: on a busy machine an answer may have come late before.
        async with asyncio.timeout(PATIENCE_SECONDS):
            while is_up(wakeup):
                await log.hears_something()
        own_server.resume()
        ear.forget()
        await ear.hears_all()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while "are back" not in await log.hears_something():
                pass
        sender.notify()
        await ear.hears_work()


async def test_after_a_restart_the_first_hint_of_an_old_sender_gets_through(
    own_server: RedisServer, log: LogEar
) -> None:
    channel = channel_on(own_server)
    async with listening(channel) as (_, ear), sending(channel) as sender:
        sender.notify()
        assert await ear.hears() is Hint.WORK
        own_server.halt()
        await asyncio.to_thread(own_server.start)
        await ear.hears_all()
        sender.notify()
        assert await ear.hears() is Hint.WORK
        await log.hears(logging.WARNING)
        await log.hears(logging.INFO)
    assert not log.has_more


async def test_of_several_servers_the_primary_is_told(
    redis: RedisServer, own_server: RedisServer
) -> None:
    """What a replica is told, its primary never hears."""
    own_server.call("REPLICAOF", "127.0.0.1", str(redis.port))
    at_both = channel_on(own_server, redis)
    at_primary = at_both._replace(urls=(redis.url(),), any_server=True)
    async with listening(at_primary) as (_, ear), sending(at_both) as sender:
        sender.notify(Hint.CANCEL)
        assert await ear.hears() is Hint.CANCEL


@pytest.mark.parametrize("ear", [None, Ear()], ids=["sends", "listens"])
async def test_to_close_once_more_is_nothing(redis: RedisServer, ear: Ear | None) -> None:
    wakeup = redis_wakeup(channel_on(redis), HASTY)
    await wakeup.open(ear)
    for _ in range(2):
        await wakeup.close()
    assert not wakeup.is_listening


async def test_without_a_server_notifying_neither_blocks_nor_raises(
    own_server: RedisServer, log: LogEar
) -> None:
    channel = channel_on(own_server)
    own_server.halt()
    async with sending(channel) as sender:
        for _ in range(1000):
            sender.notify()
        await log.hears(logging.WARNING)
        sender.notify()
    assert not log.has_more


# -- the application ------------------------------------------------------------------------------


def app_on(url: str) -> tuple[Gantline, "asyncio.Queue[int]"]:
    jobs, ran = Gantline(url), asyncio.Queue[int]()

    @jobs.job("note")
    async def note(value: int) -> None:
        ran.put_nowait(value)

    return jobs, ran


async def test_a_submit_elsewhere_wakes_a_worker_that_does_not_poll_before_and_after_a_restart(
    own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is up but consumes nothing after a reconnect is the failure most reported."""
    monkeypatch.setattr("gantline.worker.claimer._FIRST_WAIT_SECONDS", 3600.0)
    (working, ran), (submitting, _) = app_on(own_server.url()), app_on(own_server.url())
    async with working, submitting, working.running(WorkerSettings()):
        for value in (1, 2):
            await submitting.job_types[0].submit(value)
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert await ran.get() == value
            own_server.halt()
            await asyncio.to_thread(own_server.start)
        await submitting.job_types[0].submit(3)
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await ran.get() == 3


async def test_with_wake_ups_off_polling_alone_finds_the_job(redis: RedisServer) -> None:
    url = redis.url(prefix=f"w{uuid4().hex}", wakeup="off")
    (working, ran), (submitting, _) = app_on(url), app_on(url)
    assert working.store.channel is None
    async with working, submitting, working.running():
        await submitting.job_types[0].submit(4)
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await ran.get() == 4

"""The RabbitMQ trigger, with a real broker that is stopped, killed, frozen and sent garbage."""

import asyncio
import gc
import json
import logging
import sys
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from uuid import UUID, uuid4

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractQueue

from gantline import Gantline, WorkerSettings
from gantline.contract.errors import StoreMisconfigured
from gantline.contract.wakeup import Hint
from gantline.wakeups.rabbitmq import rabbitmq_wakeup
from gantline.wakeups.remote import RemoteWakeup, WakeupPace
from gantline.wakeups.trigger import is_trigger, parse_trigger
from tests.ear import PATIENCE_SECONDS, Ear, LogEar, is_up, log_ear, overheard
from tests.servers.postgres import PostgresServer, free_port
from tests.servers.rabbitmq import RabbitServer

pytestmark = pytest.mark.xdist_group("rabbitmq")

HASTY = WakeupPace(answer_seconds=5, first_wait_seconds=0.05, longest_wait_seconds=0.2)
GARBAGE = (
    b"",
    b"\xff\x00",
    b"[]",
    b"null",
    b"{",
    b"{}",
    b'{"job_id": 7}',
    b'{"job_id": "\xff"}',
    b'{"job_id": "not a uuid"}',
    b"[" * 100_000,
)


@pytest.fixture(scope="module")
def broker() -> Iterator[RabbitServer]:
    server = RabbitServer()
    yield server
    server.stop()


@pytest.fixture
def url(broker: RabbitServer) -> str:
    """With an exchange of its own for each test."""
    return f"{broker.url}?exchange=x{uuid4().hex}"


@pytest.fixture
async def log() -> AsyncIterator[LogEar]:
    with log_ear() as ear:
        yield ear


def listening(url: str) -> AbstractAsyncContextManager[tuple[RemoteWakeup, Ear]]:
    """A trigger that listens already."""
    return overheard(rabbitmq_wakeup(parse_trigger(url), HASTY))


@asynccontextmanager
async def stranger(url: str) -> AsyncIterator[AbstractChannel]:
    """Another program at the same broker."""
    connection = await aio_pika.connect(url.partition("?")[0])
    async with connection:
        yield await connection.channel()


async def publish(channel: AbstractChannel, url: str, *bodies: bytes) -> None:
    trigger = parse_trigger(url)
    exchange = await channel.get_exchange(trigger.exchange)
    for body in bodies:
        await exchange.publish(aio_pika.Message(body), trigger.routing_key)


async def bound_queue(channel: AbstractChannel, url: str) -> AbstractQueue:
    trigger = parse_trigger(url)
    queue = await channel.declare_queue(exclusive=True)
    await queue.bind(trigger.exchange, trigger.routing_key)
    return queue


async def body_of(queue: AbstractQueue) -> object:
    async with asyncio.timeout(PATIENCE_SECONDS), queue.iterator(no_ack=True) as messages:
        return json.loads((await anext(messages)).body)


async def test_a_trigger_reaches_every_listener(url: str) -> None:
    async with listening(url) as (sender, one), listening(url) as (_, two):
        assert sender.is_connected
        sender.notify()
        assert [await one.hears(), await two.hears()] == [Hint.WORK] * 2


async def test_the_message_names_a_job_or_nobody(url: str) -> None:
    job_id = uuid4()
    async with listening(url) as (sender, ear), stranger(url) as channel:
        queue = await bound_queue(channel, url)
        sender.notify(job_id=job_id)
        assert await body_of(queue) == {"job_id": str(job_id)}
        await ear.hears()
        sender.notify(Hint.CANCEL)  # is not sent
        sender.notify()
        assert await body_of(queue) == {"job_id": str(UUID(int=0))}


async def test_garbage_is_ignored(url: str) -> None:
    async with listening(url) as (_, ear), stranger(url) as channel:
        for body in GARBAGE:
            await publish(channel, url, body)
        await publish(channel, url, json.dumps({"job_id": str(uuid4()), "more": [1]}).encode())
        assert await ear.hears() is Hint.WORK
        assert not ear.has_more


@pytest.mark.parametrize("body", GARBAGE)
def test_what_names_no_job_is_no_trigger(body: bytes) -> None:
    assert not is_trigger(body)


@pytest.mark.parametrize("kind", ["fanout", "direct", "topic"])
async def test_an_exchange_that_is_there_is_used_as_it_is(url: str, kind: str) -> None:
    async with stranger(url) as channel:
        exchange = parse_trigger(url).exchange
        await channel.declare_exchange(exchange, aio_pika.ExchangeType(kind), auto_delete=True)
        async with listening(f"{url}&routing_key=my.own") as (sender, ear):
            sender.notify()
            assert await ear.hears() is Hint.WORK


@pytest.mark.wide
@pytest.mark.parametrize("how", ["halt", "kill"])
async def test_a_broker_that_goes_and_comes_back_is_told_once_and_everything_is_looked_for(
    broker: RabbitServer, url: str, log: LogEar, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(url) as (wakeup, ear):
        await asyncio.to_thread(getattr(broker, how))
        assert "triggers through RabbitMQ" in await log.hears(logging.WARNING)
        assert not is_up(wakeup)
        await asyncio.to_thread(broker.start)
        await ear.hears_all()
        assert "are back" in await log.hears(logging.INFO)
        assert is_up(wakeup)
        wakeup.notify()
        assert await ear.hears() is Hint.WORK
    assert not log.has_more
    assert {record.name for record in caplog.records} == {"gantline.wakeup"}


@pytest.mark.wide
async def test_a_frozen_broker_is_noticed(broker: RabbitServer, url: str, log: LogEar) -> None:
    async with listening(f"{url}&heartbeat=1") as (_, ear):
        broker.pause()
        try:
            await log.hears(logging.WARNING)
        finally:
            broker.resume()
        await ear.hears_all()


async def test_closing_does_not_wait_for_a_frozen_broker(
    broker: RabbitServer, url: str, log: LogEar
) -> None:
    wakeup, ear = rabbitmq_wakeup(parse_trigger(url), HASTY), Ear()
    await wakeup.open(ear)
    await ear.hears_all()
    broker.pause()
    try:
        wakeup.notify()
        await wakeup.close()
    finally:
        broker.resume()
    assert not any("left open" in line for line in log.all())


# -- the application ------------------------------------------------------------------------------


def app_on(store: str, trigger: str) -> tuple[Gantline, "asyncio.Queue[int]"]:
    jobs, ran = Gantline(store, trigger=trigger), asyncio.Queue[int]()

    @jobs.job("note")
    async def note(value: int) -> None:
        ran.put_nowait(value)

    return jobs, ran


async def got(ran: "asyncio.Queue[int]") -> int:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await ran.get()


@pytest.fixture
def store(postgres: PostgresServer) -> str:
    """Has no wake-ups of its own, so that all is the trigger's doing."""
    return postgres.url(schema=f"w{uuid4().hex}", wakeup="off")


async def test_a_submit_triggers_a_worker_elsewhere_that_does_not_poll(
    store: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gantline.worker.claimer._FIRST_WAIT_SECONDS", 3600.0)
    (working, ran), (submitting, _) = app_on(store, url), app_on(store, url)
    async with working, submitting, working.running(WorkerSettings()):
        for value in (1, 2):
            await submitting.job_types[0].submit(value)
            assert await got(ran) == value
        assert submitting.broker is not None
        assert submitting.broker.is_connected


@pytest.mark.wide
async def test_with_the_broker_down_submitting_and_polling_go_on(
    broker: RabbitServer, store: str, url: str
) -> None:
    broker.kill()
    try:
        (working, ran), (submitting, _) = app_on(store, url), app_on(store, url)
        async with working, submitting, working.running():
            await submitting.job_types[0].submit(3)
            assert await got(ran) == 3
            assert submitting.broker is not None
            assert not submitting.broker.is_connected
    finally:
        broker.start()


async def test_a_connection_that_failed_leaves_nothing_to_the_collector(log: LogEar) -> None:
    wakeup = rabbitmq_wakeup(parse_trigger(f"amqp://127.0.0.1:{free_port()}/"), HASTY)
    await wakeup.open(None)
    try:
        assert "no triggers through RabbitMQ" in await log.hears(logging.WARNING)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            await asyncio.to_thread(gc.collect)
        assert [str(one.message) for one in told] == []
    finally:
        await wakeup.close()


# -- the setting ----------------------------------------------------------------------------------


def test_the_trigger_can_be_named_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANTLINE_TRIGGER", "amqp://host/")
    assert Gantline("memory://").broker is not None
    assert Gantline("memory://", trigger="").broker is None


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "gantline.wakeups.rabbitmq")
    monkeypatch.setitem(sys.modules, "aio_pika", None)
    with pytest.raises(StoreMisconfigured, match=r"pip install 'gantline\[rabbitmq\]'"):
        Gantline("memory://", trigger="amqp://host/")


@pytest.mark.parametrize(
    "wrong",
    [
        "redis://me:hush@host",
        "me:hush@host",
        "amqp:///",
        "amqp://[me:hush",
        "amqp://me:hush@host:port",
        "amqp://me:hush@host?exchange=",
    ],
)
def test_a_wrong_trigger_url_is_refused_without_showing_it(wrong: str) -> None:
    with pytest.raises(StoreMisconfigured) as refused:
        Gantline("memory://", trigger=wrong)
    assert "hush" not in str(refused.value)


def test_a_trigger_shows_no_password() -> None:
    trigger = parse_trigger("amqp://me:hush@host/vhost?exchange=bpc&routing_key=go&heartbeat=9")
    assert (trigger.exchange, trigger.routing_key) == ("bpc", "go")
    assert trigger.url == "amqp://me:hush@host/vhost?heartbeat=9"
    assert "hush" not in f"{trigger!r} {trigger!s}"

"""The bridge with a real broker that is restarted, killed, frozen and sent garbage."""

import asyncio
import json
import os
import random
import signal
import struct
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from gantline import Context, Gantline
from gantline.bridge.bridge import Bridge
from gantline.bridge.broker import BridgeSettings, Topic, parse_bridge_url
from gantline.bridge.intake import Intake
from gantline.bridge.message import Message
from gantline.bridge.rabbitmq import RabbitBroker
from gantline.contract.errors import StoreMisconfigured, StoreUnavailable
from gantline.contract.query import JobFilter
from gantline.testing.liveness import watching
from tests.bridge.raw_publisher import (
    APP_ID,
    CONTENT_TYPE,
    CORRELATION_ID,
    HEADERS,
    MESSAGE_ID,
    REPLY_TO,
    TIMESTAMP,
    TYPE,
    RawPublisher,
    short,
    table,
)
from tests.ear import PATIENCE_SECONDS, LogEar, log_ear
from tests.servers.postgres import PostgresServer
from tests.servers.rabbitmq import RabbitServer
from tests.telemetry.asking import ask
from tests.worker_process import WorkerProcess

pytestmark = pytest.mark.xdist_group("rabbitmq")

REPOSITORY = Path(__file__).parents[2]
# Nothing is done to the worker or its store; the machine may be slow.
ENDS_WITHIN = timedelta(seconds=10)


@pytest.fixture(scope="module")
def broker() -> Iterator[RabbitServer]:
    server = RabbitServer()
    yield server
    server.stop()


@pytest.fixture
def url(broker: RabbitServer) -> str:
    """With exchanges of its own for each test."""
    name = uuid4().hex
    return f"{broker.url}?exchange=in-{name}&outcomes=out-{name}"


def shop(store: str, bridge: str) -> Gantline:
    jobs = Gantline(store, bridge=bridge)

    @jobs.job("index")
    async def index(payload: dict[str, Any]) -> dict[str, int]:
        return {"pages": payload["n"]}

    @jobs.job("mail")
    async def mail(payload: dict[str, Any]) -> None: ...

    @jobs.job("sign", subject="v-1")
    async def sign(payload: dict[str, Any], ctx: Context) -> None:
        ctx.emit("PASSPORT_SIGNED", "PassportVersion", {"key_id": "dev-key-1"})

    return jobs


@asynccontextmanager
async def stranger(url: str) -> AsyncIterator[AbstractChannel]:
    """Another program at the same broker."""
    async with await aio_pika.connect(url.partition("?")[0]) as connection:
        yield await connection.channel()


@pytest.fixture(autouse=True)
def count_aloud(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands for `Counter[str]`."""
    monkeypatch.setattr("gantline.bridge.intake.Counter", {str: Taken})


@asynccontextmanager
async def bridged(jobs: Gantline) -> AsyncIterator[Bridge]:
    async with jobs, jobs.bridging() as bridge:
        await connected(bridge)
        yield bridge


@asynccontextmanager
async def watched(jobs: Gantline, location: BridgeSettings) -> AsyncIterator[tuple[Bridge, LogEar]]:
    """A bridge that looks for its queues all the time, and what it says."""
    bridge = Bridge(jobs, RabbitBroker(location, look_seconds=0.05), Intake(jobs, tenant="default"))
    async with jobs:
        with log_ear("gantline.bridge") as ear:
            running = asyncio.create_task(bridge.run())
            await hears(ear, "takes messages in")
            yield bridge, ear
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


async def hears(ear: LogEar, text: str) -> None:
    """Wait until a line says so, whatever else is said before."""
    while text not in await ear.hears_something():
        pass


async def connected(bridge: Bridge) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        await bridge.connected()


def envelope(number: int, job_type: str = "index") -> dict[str, Any]:
    return {
        "jobId": f"00000000-0000-0000-0000-{number:012d}",
        "jobType": job_type,
        "correlationId": f"c-{number}",
        "payload": {"n": number},
    }


async def send(
    channel: AbstractChannel, location: BridgeSettings, *bodies: dict[str, Any] | bytes
) -> None:
    exchange = await channel.declare_exchange(location.exchange, "topic", durable=True)
    for body in bodies:
        topic = body["jobType"] if isinstance(body, dict) else "index"
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        await exchange.publish(
            aio_pika.Message(raw, delivery_mode=aio_pika.DeliveryMode.PERSISTENT), topic
        )


async def received(queue: AbstractQueue) -> AbstractIncomingMessage:
    (message,) = await received_many(queue, 1)
    return message


async def received_many(queue: AbstractQueue, number: int) -> list[AbstractIncomingMessage]:
    async with asyncio.timeout(PATIENCE_SECONDS), queue.iterator(no_ack=True) as messages:
        return [await anext(messages) for _ in range(number)]


async def outcomes_at(channel: AbstractChannel, location: BridgeSettings) -> AbstractQueue:
    exchange = await channel.declare_exchange(location.outcomes, "topic", durable=True)
    queue = await channel.declare_queue(exclusive=True)
    await queue.bind(exchange, "job.#")
    return queue


async def stored(jobs: Gantline, most: int = 20_000) -> list[int]:
    """The numbers of all jobs that are there, each as often as it is."""
    numbers, after = list[int](), None
    while len(numbers) < most:
        page = await jobs.store.find(JobFilter(tenant_id=None), limit=200, after=after)
        numbers += [snapshot.job.data()["n"] for snapshot in page.items]
        if (after := page.next) is None:
            break
    return sorted(numbers)


async def stored_many(jobs: Gantline, number: int, seconds: float) -> list[int]:
    """As `stored`, when there are so many of them."""
    async with asyncio.timeout(seconds):
        while len(found := await stored(jobs)) < number:  # noqa: ASYNC110  # others write
            await asyncio.sleep(0.02)
    return found


async def drained(jobs: Gantline, seconds: float) -> None:
    """Wait until every job has ended."""
    async with asyncio.timeout(seconds):
        while any(lane.queued or lane.running for lane in await jobs.store.counts(tenant_id=None)):  # noqa: ASYNC110  # in another process
            await asyncio.sleep(0.1)


class Taken(Counter[str]):
    """What a bridge counts, to be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self._counted = asyncio.Event()

    def __setitem__(self, outcome: str, number: int) -> None:
        super().__setitem__(outcome, number)
        self._counted.set()

    async def more(self) -> None:
        """Wait until something was counted since the last time that somebody asked."""
        await self._counted.wait()
        self._counted.clear()


async def taken(bridge: Bridge, number: int) -> None:
    assert isinstance(bridge.taken, Taken)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while sum(bridge.taken.values()) < number:
            await bridge.taken.more()


async def is_empty(channel: AbstractChannel, name: str) -> bool:
    """Nothing waits there, and nothing is out for delivery: all was acknowledged."""
    queue = await channel.declare_queue(name, passive=True)
    return queue.declaration_result.message_count == 0


# -- in -------------------------------------------------------------------------------------------


async def test_an_envelope_becomes_a_job_and_its_outcome_comes_back(url: str) -> None:
    jobs, location = shop("memory://", url), parse_bridge_url(url)
    async with stranger(url) as channel:
        queue = await outcomes_at(channel, location)
        async with bridged(jobs), jobs.running():
            await send(channel, location, envelope(3))
            outcome = await received(queue)
    assert outcome.routing_key == "job.completed.index"
    assert outcome.correlation_id == "c-3"
    assert (outcome.type, outcome.headers["JobType"]) == ("job.completed", "index")
    event = JSONFormat().read(CloudEvent, outcome.body)
    assert event.get_type() == "gantline.job.completed"
    assert event.get_id() == outcome.message_id
    told = event.get_data()
    assert isinstance(told, dict)
    assert (told["status"], told["result"]) == ("Completed", {"pages": 3})


async def test_domain_events_go_out_under_their_own_types(url: str) -> None:
    jobs, location = shop("memory://", url), parse_bridge_url(url)
    async with stranger(url) as channel:
        exchange = await channel.declare_exchange(location.outcomes, "topic", durable=True)
        queues = [await channel.declare_queue(exclusive=True) for _ in range(2)]
        for queue, topic in zip(queues, ("PASSPORT_SIGNED.#", "job.#"), strict=True):
            await queue.bind(exchange, topic)
        sign = jobs.find_type("sign")
        assert sign is not None
        async with jobs, jobs.running():
            handle = await sign.submit({})
            signed, completed = [await received(queue) for queue in queues]
    assert (signed.routing_key, signed.type) == ("PASSPORT_SIGNED.sign", "PASSPORT_SIGNED")
    assert completed.routing_key == "job.completed.sign"
    event = JSONFormat().read(CloudEvent, signed.body)
    assert (event.get_type(), event.get_subject()) == ("PASSPORT_SIGNED", "v-1")
    assert event.get_id() == signed.message_id == f"{handle.job_id}.3.1"
    told = event.get_data()
    assert isinstance(told, dict)
    assert (told["aggregateType"], told["payload"]) == (
        "PassportVersion",
        {"key_id": "dev-key-1"},
    )


async def test_what_can_never_be_a_job_is_in_the_dead_letters_with_the_reason(url: str) -> None:
    jobs, location = shop("memory://", url), parse_bridge_url(url)
    async with stranger(url) as channel, bridged(jobs) as bridge:
        unknown = json.dumps(envelope(4) | {"jobType": "unheard-of"}).encode()
        clash = envelope(5) | {"payload": {"n": 6}}
        await send(channel, location, b"{garbage", unknown, envelope(5))
        await taken(bridge, 3)
        await send(channel, location, clash)
        dead = await channel.declare_queue(location.dead_letters, durable=True)
        buried = await received_many(dead, 3)
        assert await stored(jobs) == [5]
    assert {(message.body, message.headers["x-gantline-reason"]) for message in buried} == {
        (b"{garbage", "InvalidFormat"),
        (unknown, "NoHandler"),
        (json.dumps(clash).encode(), "IdempotencyConflict"),
    }
    assert {message.headers["x-gantline-routing-key"] for message in buried} == {"index"}


async def test_headers_that_leave_no_room_for_a_reason_hold_up_nothing(url: str) -> None:
    """A broker hangs up on who sends more headers than fit a frame: the bridge for ever, since
    what was not buried comes again."""
    jobs, location = shop("memory://", url), parse_bridge_url(url)
    async with stranger(url) as channel, bridged(jobs) as bridge:
        exchange = await channel.declare_exchange(location.exchange, "topic", durable=True)
        full = aio_pika.Message(b"{garbage", headers={"x-much": "x" * 130_900}, message_id="m-1")
        await exchange.publish(full, "index")
        dead = await channel.declare_queue(location.dead_letters, durable=True)
        buried = await received(dead)
        await send(channel, location, envelope(5))
        await taken(bridge, 2)
        assert bridge.taken == {"rejected": 1, "accepted": 1}
    assert (buried.body, buried.message_id) == (b"{garbage", "m-1")
    assert buried.headers["x-gantline-reason"] == "InvalidFormat"
    assert "x-much" not in buried.headers


NO_TEXT = b"\xff\xfe"
DEEP = table((b"", b"V"))
for _ in range(5000):
    DEEP = table((b"", b"F" + DEEP))
UNREADABLE = {
    "message id": (MESSAGE_ID, short(NO_TEXT)),
    "correlation id": (CORRELATION_ID, short(NO_TEXT)),
    "type": (TYPE, short(NO_TEXT)),
    "reply to": (REPLY_TO, short(NO_TEXT)),
    "content type": (CONTENT_TYPE, short(NO_TEXT)),
    "app id": (APP_ID, short(NO_TEXT)),
    "header name": (HEADERS, table((NO_TEXT, b"t\x01"))),
    "header within a header": (HEADERS, table((b"a", b"F" + table((NO_TEXT, b"V"))))),
    "headers too deep": (HEADERS, DEEP),
    "timestamp": (TIMESTAMP, b"\x7f" + b"\xff" * 7),
    "timestamp in a header": (HEADERS, table((b"at", b"T\x7f" + b"\xff" * 7))),
}


async def test_properties_that_the_driver_cannot_read_hold_up_nothing(
    broker: RabbitServer, url: str
) -> None:
    """The driver hangs up on them. The broker delivers them again, and so on for ever."""
    jobs, location = shop("memory://", url), parse_bridge_url(url)
    async with stranger(url) as channel, bridged(jobs) as bridge:
        with RawPublisher(broker.port) as publisher:
            for number, (flags, properties) in enumerate(UNREADABLE.values()):
                body = json.dumps(envelope(100 + number)).encode()
                await send(channel, location, envelope(number))
                await asyncio.to_thread(
                    publisher.publish, location.exchange, b"index", body, flags, properties
                )
        dead = await channel.declare_queue(location.dead_letters, durable=True)
        buried = await received_many(dead, len(UNREADABLE))
        await taken(bridge, 2 * len(UNREADABLE))
        assert bridge.taken == {"rejected": len(UNREADABLE), "accepted": len(UNREADABLE)}
        assert await stored(jobs) == list(range(len(UNREADABLE)))
        assert bridge.is_connected
        assert await is_empty(channel, location.queue("index"))
    told = {json.loads(one.body)["payload"]["n"] - 100: one.headers for one in buried}
    for number, (_, properties) in enumerate(UNREADABLE.values()):
        assert told[number]["x-gantline-reason"] == "InvalidFormat"
        kept = told[number]["x-gantline-properties"]
        assert isinstance(kept, bytearray)
        assert kept.endswith(properties)


async def test_headers_that_the_driver_reads_and_cannot_write_hold_up_nothing(
    broker: RabbitServer, url: str
) -> None:
    jobs, location = shop("memory://", url), parse_bridge_url(url)
    much = table((b"much", b"d" + struct.pack(">d", 1e300)))
    async with stranger(url) as channel, bridged(jobs):
        with RawPublisher(broker.port) as publisher:
            await asyncio.to_thread(
                publisher.publish, location.exchange, b"index", b"{garbage", HEADERS, much
            )
        buried = await received(await channel.declare_queue(location.dead_letters, durable=True))
        assert await is_empty(channel, location.queue("index"))
    assert (buried.body, buried.headers["x-gantline-reason"]) == (b"{garbage", "InvalidFormat")


async def test_a_key_that_is_no_text_is_no_reason_to_reject(broker: RabbitServer, url: str) -> None:
    """Queues may be bound by others, to whatever was sent."""
    jobs, location = shop("memory://", url), parse_bridge_url(url)
    async with stranger(url) as channel, bridged(jobs) as bridge:
        queue = await channel.declare_queue(location.queue("index"), passive=True)
        await queue.bind(location.exchange, "#")
        with RawPublisher(broker.port) as publisher:
            body = json.dumps(envelope(1)).encode()
            await asyncio.to_thread(
                publisher.publish, location.exchange, NO_TEXT * 100, body, 0, b""
            )
        await taken(bridge, 1)
        assert await stored(jobs) == [1]


async def test_dead_letters_that_are_deleted_lose_no_message(url: str) -> None:
    jobs, location = shop("memory://", url), parse_bridge_url(url)
    async with stranger(url) as channel, watched(jobs, location) as (_, ear):
        await channel.queue_delete(location.dead_letters)
        await send(channel, location, b"{garbage")
        await hears(ear, "takes messages in")
        dead = await channel.declare_queue(location.dead_letters, durable=True)
        assert (await received(dead)).body == b"{garbage"


async def test_a_message_that_fails_as_nobody_expected_comes_again_without_haste(url: str) -> None:
    location, loop = parse_bridge_url(url), asyncio.get_running_loop()
    came, is_up, is_twice = list[float](), asyncio.Event(), asyncio.Event()

    async def take(message: Message) -> None:
        came.append(loop.time())
        if len(came) == 2:
            is_twice.set()
        raise RuntimeError("a bug")

    receiving = asyncio.create_task(
        RabbitBroker(location).receive([Topic("index", ("index",))], take, is_up.set)
    )
    async with stranger(url) as channel, asyncio.timeout(PATIENCE_SECONDS):
        await is_up.wait()
        await send(channel, location, envelope(1))
        await is_twice.wait()
    receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)
    assert came[1] - came[0] >= 0.9


async def test_a_message_is_acknowledged_only_when_its_job_is_durable(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, location = shop("memory://", url), parse_bridge_url(url)
    is_away, asked = True, asyncio.Event()
    insert = jobs.store.insert

    async def away_for_now(new: Any) -> Any:
        asked.set()
        if is_away:
            raise StoreUnavailable("It is away.")
        return await insert(new)

    monkeypatch.setattr(jobs.store, "insert", away_for_now)
    async with stranger(url) as channel:
        async with bridged(jobs):
            await send(channel, location, envelope(1), envelope(2))
            await asked.wait()
        # The bridge is gone, and what it had not stored is back.
        queue = await channel.declare_queue(location.queue("index"), passive=True)
        assert queue.declaration_result.message_count == 2
        is_away = False
        async with bridged(jobs) as bridge:
            await taken(bridge, 2)
            assert await stored(jobs) == [1, 2]
        assert await is_empty(channel, location.queue("index"))


async def test_a_type_that_is_switched_off_waits_and_holds_up_no_other(url: str) -> None:
    few = f"{url}&prefetch=2"
    jobs, location = shop("memory://", few), parse_bridge_url(few)
    async with stranger(url) as channel, bridged(jobs) as bridge:
        await jobs.switches.disable_type("index")
        await send(channel, location, *(envelope(n) for n in range(5)))
        await send(channel, location, *(envelope(n, "mail") for n in range(10, 13)))
        await taken(bridge, 3)
        assert await stored(jobs) == [10, 11, 12]
        await jobs.switches.disable_type("index", disabled=False)
        await taken(bridge, 8)
        assert await stored(jobs) == [0, 1, 2, 3, 4, 10, 11, 12]


async def test_a_queue_that_is_deleted_is_made_again(url: str) -> None:
    jobs, location = shop("memory://", url), parse_bridge_url(url)
    async with stranger(url) as channel, watched(jobs, location) as (bridge, ear):
        await channel.queue_delete(location.queue("index"))
        await hears(ear, "is down")
        await hears(ear, "takes messages in")
        await send(channel, location, envelope(1))
        await taken(bridge, 1)


async def test_readiness_and_metrics_tell_of_the_bridge(url: str) -> None:
    jobs, location = shop("memory://", url), parse_bridge_url(url)
    page = jobs.health_app()
    async with stranger(url) as channel, bridged(jobs) as bridge:
        await send(channel, location, envelope(1), b"{garbage", envelope(1))
        await taken(bridge, 3)
        assert (await ask(page, "/readyz")).json["checks"]["bridge"] == {"ok": True}
        metrics = (await ask(page, "/metrics")).body.decode()
    for outcome in ("accepted", "duplicate", "rejected"):
        assert f'gantline_bridge_messages_total{{outcome="{outcome}"}} 1.0' in metrics
    unreached = shop("memory://", "amqp://127.0.0.1:1/")
    async with unreached, unreached.bridging():
        assert "bridge" in (await ask(unreached.health_app(), "/readyz")).failed


@pytest.mark.wide
@pytest.mark.parametrize("how", ["halt", "kill"])
async def test_a_broker_that_restarts_in_mid_stream_costs_nothing_and_doubles_nothing(
    broker: RabbitServer, url: str, how: str
) -> None:
    jobs, location = shop("memory://", url), parse_bridge_url(url)
    async with bridged(jobs) as bridge:
        async with stranger(url) as channel:
            await send(channel, location, *(envelope(n) for n in range(300)))
        await taken(bridge, 20)
        await asyncio.to_thread(getattr(broker, how))
        await asyncio.to_thread(broker.start)
        await connected(bridge)
        async with stranger(url) as channel:
            await send(channel, location, *(envelope(n) for n in range(300, 330)))
        assert isinstance(bridge.taken, Taken)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(found := await stored(jobs)) < 330:
                await bridge.taken.more()
        assert found == list(range(330))


def test_a_type_that_no_topic_can_be_named_after_is_told_at_once() -> None:
    url = "amqp://nobody.invalid/"
    jobs = shop("memory://", url)

    @jobs.job("all-#-of-them")
    async def all_of_them() -> None: ...

    with pytest.raises(StoreMisconfigured, match="cannot be a topic"):
        Bridge(jobs, RabbitBroker(parse_bridge_url(url)), Intake(jobs, tenant="default"))


# -- out ------------------------------------------------------------------------------------------


@pytest.mark.wide
async def test_outcomes_come_in_order_and_wait_for_a_broker_that_is_away(
    broker: RabbitServer, url: str, tmp_path: Path
) -> None:
    jobs, location = shop(f"sqlite:///{tmp_path}/jobs.db", url), parse_bridge_url(url)
    index = jobs.find_type("index")
    assert index is not None
    async with jobs, jobs.running():
        async with stranger(url) as channel:
            queue = await channel.declare_queue(f"keep-{uuid4().hex}", durable=True)
            exchange = await channel.declare_exchange(location.outcomes, "topic", durable=True)
            await queue.bind(exchange, "job.#")
            first = await index.submit({"n": 0})
            await received(queue)
        await asyncio.to_thread(broker.halt)
        handles = [await index.submit({"n": n}) for n in range(1, 30)]
        for handle in handles:
            await handle.wait(PATIENCE_SECONDS)
        await asyncio.to_thread(broker.start)
        told: dict[str, None] = {}
        async with stranger(url) as channel:
            queue = await channel.declare_queue(queue.name, passive=True)
            async with asyncio.timeout(PATIENCE_SECONDS), queue.iterator(no_ack=True) as messages:
                async for message in messages:
                    told[json.loads(message.body)["data"]["jobId"]] = None
                    if len(told) == len(handles):
                        break
    assert list(told) != []
    assert set(told) == {str(handle.job_id) for handle in handles}
    assert str(first.job_id) not in told


async def test_no_name_of_a_job_keeps_outcomes_from_being_told(url: str) -> None:
    """A broker has room for 255 bytes of some, and what cannot be told would be tried for ever."""
    jobs, location = shop("memory://", url), parse_bridge_url(url)
    index = jobs.find_type("index")
    assert index is not None
    async with stranger(url) as channel, jobs, jobs.running():
        queue = await outcomes_at(channel, location)
        for correlation_id in ("ü" * 256, "\N{GRINNING FACE}" * 200, "a" * 254 + "ü"):
            await index.submit({"n": 1}, correlation_id=correlation_id)
            outcome = await received(queue)
            assert json.loads(outcome.body)["data"]["correlationId"] == correlation_id
            assert outcome.correlation_id
            assert correlation_id.startswith(outcome.correlation_id)


# -- the long proof -------------------------------------------------------------------------------


class Bridges:
    """`gantline bridge` processes that are killed and started anew."""

    def __init__(self, store: str, url: str) -> None:
        self._environment = os.environ | {"GANTLINE_STORE": store, "GANTLINE_BRIDGE": url}
        self.killed = 0

    async def keep_one_running(self, kills: int) -> None:
        process = await self._start()
        try:
            for _ in range(kills):
                await asyncio.sleep(random.uniform(0.2, 2.5))
                process.send_signal(signal.SIGKILL)
                await process.wait()
                self.killed += 1
                process = await self._start()
            await asyncio.get_running_loop().create_future()
        finally:
            process.kill()
            await process.wait()

    async def _start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gantline.cli.main", "bridge", "tests.bridge.bridged_app:jobs"),
            cwd=REPOSITORY,
            env=self._environment,
            stderr=asyncio.subprocess.DEVNULL,
        )


def publish_unreadable(broker: RabbitServer, location: BridgeSettings) -> None:
    flags, properties = UNREADABLE["message id"]
    with RawPublisher(broker.port) as publisher:
        publisher.publish(location.exchange, b"index", b"{}", flags, properties)


@pytest.mark.chaos
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_ten_thousand_envelopes_become_ten_thousand_jobs_whatever_is_killed(
    broker: RabbitServer, url: str, tmp_path: Path, engine: str
) -> None:
    number, garbage, unreadable = 10_000, 100, 10
    server = PostgresServer() if engine == "postgres" else None
    store = server.url() if server else f"sqlite:///{tmp_path}/jobs.db"
    location, bridges = parse_bridge_url(url), Bridges(store, url)
    jobs = Gantline(store, bridge="")
    worker = WorkerProcess("tests.bridge.bridged_app:jobs", store, tmp_path / "worker.log")
    watched = watching(jobs.store, readiness=[worker.readiness], within=ENDS_WITHIN, backlog=True)
    try:
        async with jobs, worker.running(), watched as oracle:
            running = [asyncio.create_task(bridges.keep_one_running(8)) for _ in range(2)]
            sent = 0
            while sent < number:
                try:
                    async with stranger(url) as channel:
                        await channel.declare_exchange(location.exchange, "topic", durable=True)
                        for name in ("index", "mail"):
                            queue = await channel.declare_queue(location.queue(name), durable=True)
                            await queue.bind(location.exchange, name)
                        while sent < number:
                            batch = [envelope(n) for n in range(sent, sent + 100)]
                            await send(channel, location, *batch, b"{garbage")
                            if sent % 1000 == 0:
                                await asyncio.to_thread(publish_unreadable, broker, location)
                            sent += 100
                            if sent in (3000, 6000):
                                break
                except (OSError, aio_pika.exceptions.AMQPError):
                    await asyncio.sleep(0.2)  # sends the last hundred again, as producers do
                    continue
                if sent in (3000, 6000):
                    await asyncio.to_thread(broker.kill if sent == 3000 else broker.halt)
                    await asyncio.to_thread(broker.start)
            await stored_many(jobs, number, 300)
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await drained(jobs, 300)
            # Read again: while jobs end, a list may show one twice, and miss another.
            found = await stored(jobs)
            await oracle.check_economy()
        assert found == list(range(number))
        async with stranger(url) as channel:
            dead = await channel.declare_queue(location.dead_letters, durable=True)
            assert dead.declaration_result.message_count is not None
            assert dead.declaration_result.message_count >= garbage + unreadable
        assert bridges.killed > 0
        print(f"{number} envelopes, {bridges.killed} kills")  # noqa: T201  # shown with -rP
    finally:
        if server:
            server.stop()

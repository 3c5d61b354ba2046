"""Envelopes that go out by a real broker: stored first, in order, at least once."""

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue

from gantline import Gantline, InvalidInput
from gantline.bridge import sending
from gantline.bridge.broker import parse_bridge_url
from gantline.bridge.sending import SEND_TYPE
from gantline.consumers.event_reader import PAGE
from gantline.contract.errors import GantlineError, StoreMisconfigured
from gantline.contract.job import read_job
from gantline.contract.query import JobFilter
from gantline.manager.cursors import consumers, delete_cursor, slowest_position
from tests.contract.test_job import EXAMPLE
from tests.ear import PATIENCE_SECONDS, log_ear
from tests.servers.rabbitmq import RabbitServer

pytestmark = pytest.mark.xdist_group("rabbitmq")

TYPE = "ai-indexing"


@pytest.fixture(scope="module")
def broker() -> Iterator[RabbitServer]:
    server = RabbitServer()
    yield server
    server.stop()


@pytest.fixture
def url(broker: RabbitServer) -> str:
    """With exchanges of its own for each test."""
    name = uuid4().hex
    return f"{broker.url}?exchange=in-{name}&outcomes="


@asynccontextmanager
async def receiving(url: str, *topics: str) -> AsyncIterator[AbstractQueue]:
    """Another system, with a queue at the exchange."""
    async with await aio_pika.connect(url.partition("?")[0]) as connection:
        channel = await connection.channel()
        yield await bound(channel, url, *topics)


async def bound(channel: AbstractChannel, url: str, *topics: str) -> AbstractQueue:
    name = parse_bridge_url(url).exchange
    exchange = await channel.declare_exchange(name, "topic", durable=True)
    queue = await channel.declare_queue(f"other-{name}", durable=True)
    for topic in topics or ("#",):
        await queue.bind(exchange, topic)
    return queue


async def received(queue: AbstractQueue, number: int) -> list[AbstractIncomingMessage]:
    async with asyncio.timeout(PATIENCE_SECONDS), queue.iterator(no_ack=True) as messages:
        return [await anext(messages) for _ in range(number)]


def sender(url: str, store: str = "memory://", **options: Any) -> Gantline:
    return Gantline(store, bridge=url, **options)


async def send(jobs: Gantline, envelope: Any, **options: Any) -> Any:
    assert jobs.bridge is not None
    return await jobs.bridge.send(envelope, **options)


def numbered(number: int) -> dict[str, Any]:
    return {"jobType": TYPE, "jobId": str(UUID(int=number)), "payload": {"n": number}}


async def test_the_example_of_the_contract_goes_out_as_it_is(url: str) -> None:
    async with receiving(url, TYPE) as queue, sender(url) as jobs:
        await send(jobs, EXAMPLE.encode())
        await send(jobs, json.loads(EXAMPLE))
        await send(jobs, read_job(EXAMPLE))
        async with jobs.running():
            found = await received(queue, 3)
    sent = json.loads(EXAMPLE)
    at = datetime.fromisoformat(sent.pop("createdAt"))
    for message in found:
        body = json.loads(message.body)
        assert datetime.fromisoformat(body.pop("createdAt")) == at
        assert body == sent
        assert (message.routing_key, message.type) == (TYPE, TYPE)
        assert message.message_id == sent["idempotencyKey"]
        assert message.correlation_id == sent["correlationId"]
        assert message.content_type == "application/json"
        assert message.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
        assert message.timestamp == at
        assert message.headers == {
            "JobType": TYPE,
            "Attempt": 1,
            "CreatedAt": "2025-12-12T00:00:00Z",
        }


@pytest.mark.parametrize(
    ("key", "message_id"),
    [
        ("", str(UUID(int=7))),
        ("k" * 128, "k" * 128),
        ("k" * 129, hashlib.sha256(b"k" * 129).hexdigest()),
        ("ü" * 128, hashlib.sha256("ü".encode() * 128).hexdigest()),
    ],
)
async def test_a_message_is_known_by_its_key(url: str, key: str, message_id: str) -> None:
    """One that does not fit a broker is hashed: of 128 characters, or of 255 bytes."""
    async with receiving(url) as queue, sender(url) as jobs:
        await send(jobs, {**numbered(7), "idempotencyKey": key})
        async with jobs.running():
            (message,) = await received(queue, 1)
    assert message.message_id == message_id
    assert json.loads(message.body)["idempotencyKey"] == key


async def test_envelopes_come_in_the_order_in_which_they_were_sent(
    store_url: str, url: str
) -> None:
    async with receiving(url) as queue, sender(url, store_url) as jobs:
        for number in range(30):
            await send(jobs, numbered(number))
        async with jobs.running():
            for number in range(30, 60):
                await send(jobs, numbered(number))
            found = await received(queue, 60)
    assert [json.loads(one.body)["payload"]["n"] for one in found] == list(range(60))


async def test_nothing_is_lost_and_the_order_kept_while_the_broker_is_away(tmp_path: Path) -> None:
    broker = RabbitServer()
    url = f"{broker.url}?exchange=in-{uuid4().hex}&outcomes="
    store = f"sqlite:///{tmp_path}/gantline.db"
    try:
        async with receiving(url) as queue, sender(url, store) as jobs, jobs.running():
            await send(jobs, numbered(0))
            await received(queue, 1)
        await asyncio.to_thread(broker.halt)
        async with sender(url, store) as jobs, jobs.running():
            for number in range(1, 6):
                await send(jobs, numbered(number))
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not await is_failing(jobs):  # noqa: ASYNC110  # a cursor has no signal
                    await asyncio.sleep(0.05)
        await asyncio.to_thread(broker.start)
        # As another process would.
        async with receiving(url) as queue, sender(url, store) as jobs, jobs.running():
            found = await received(queue, 5)
        assert [json.loads(one.body)["payload"]["n"] for one in found] == [1, 2, 3, 4, 5]
    finally:
        broker.stop()


async def is_failing(jobs: Gantline) -> bool:
    """Whether operators see that nothing is sent, and that something is to be."""
    return any(one.is_failing and one.lag > 0 for one in await consumers(jobs.store))


async def test_it_is_sent_if_and_only_if_the_caller_commits(url: str, tmp_path: Path) -> None:
    async with receiving(url) as queue, sender(url, f"sqlite:///{tmp_path}/g.db") as jobs:
        with suppress(ZeroDivisionError):
            async with jobs.transaction() as connection:
                await send(jobs, numbered(1), connection=connection)
                raise ZeroDivisionError
        async with jobs.transaction() as connection:
            await send(jobs, numbered(2), connection=connection)
        async with jobs.running():
            (message,) = await received(queue, 1)
    assert json.loads(message.body)["payload"] == {"n": 2}


async def test_it_is_sent_by_way_of_an_outbox(url: str, tmp_path: Path) -> None:
    outbox = f"sqlite:///{tmp_path}/outbox.db"
    async with receiving(url) as queue, sender(url, outbox=outbox) as jobs, jobs.running():
        async with jobs.transaction() as connection:
            await send(jobs, numbered(1), connection=connection)
        (message,) = await received(queue, 1)
    assert json.loads(message.body)["payload"] == {"n": 1}


OTHER: Final = "billing"


def to(job_type: str, number: int, **members: Any) -> dict[str, Any]:
    return {**numbered(number), "jobType": job_type, **members}


def numbers(found: Sequence[AbstractIncomingMessage]) -> list[int]:
    return [json.loads(one.body)["payload"]["n"] for one in found]


@asynccontextmanager
async def channel_at(url: str) -> AsyncIterator[AbstractChannel]:
    async with await aio_pika.connect(url.partition("?")[0]) as connection:
        yield await connection.channel()


async def all_sent(jobs: Gantline) -> None:
    """Until nothing waits, and nothing is to be read."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while any(one.lag or one.part_of for one in await consumers(jobs.store)):  # noqa: ASYNC110  # cursors have no signal
            await asyncio.sleep(0.05)


async def test_what_nobody_receives_waits_in_order_and_holds_up_no_other_type(
    store_url: str, url: str
) -> None:
    """The broker would confirm it, and drop it."""
    async with channel_at(url) as channel, sender(url, store_url) as jobs:
        queue = await bound(channel, url, OTHER)
        with log_ear("gantline.bridge") as ear:
            async with jobs.running():
                for number in range(1, 6):
                    await send(jobs, to(TYPE, number))
                    await send(jobs, to(OTHER, 10 + number))
                assert numbers(await received(queue, 5)) == [11, 12, 13, 14, 15]
                said = await ear.hears(logging.WARNING)
                assert "No queue is bound" in said
                assert repr(TYPE) in said
                await bound(channel, url, TYPE)
                assert numbers(await received(queue, 5)) == [1, 2, 3, 4, 5]
                await send(jobs, to(TYPE, 6))
                assert numbers(await received(queue, 1)) == [6]
                await all_sent(jobs)
                assert await ear.hears(logging.INFO)
                assert not ear.has_more  # it is said once


async def test_what_waits_outlives_the_worker_and_goes_before_what_comes_later(
    tmp_path: Path, url: str
) -> None:
    store = f"sqlite:///{tmp_path}/gantline.db"
    async with channel_at(url) as channel:
        queue = await bound(channel, url, OTHER)
        async with sender(url, store) as jobs, jobs.running():
            await send(jobs, to(TYPE, 1))
            await send(jobs, to(OTHER, 11))
            await received(queue, 1)
        async with sender(url, store) as jobs:
            await send(jobs, to(TYPE, 2))
            await bound(channel, url, TYPE)
            async with jobs.running():  # as another process would
                assert numbers(await received(queue, 2)) == [1, 2]
                await all_sent(jobs)
    async with sender(url, store) as jobs:
        assert await consumers(jobs.store) != []
        assert not any(one.part_of for one in await consumers(jobs.store))


async def test_a_backlog_of_more_than_a_page_is_sent_in_order(url: str) -> None:
    """Each envelope leaves two events, and others come in between."""
    async with channel_at(url) as channel, sender(url) as jobs:
        queue = await bound(channel, url, OTHER)
        async with jobs.running():
            for number in range(PAGE + 20):
                await send(jobs, to(TYPE, number))
            await send(jobs, to(OTHER, 1000))
            assert numbers(await received(queue, 1)) == [1000]
            await bound(channel, url, TYPE)
            assert numbers(await received(queue, PAGE + 20)) == list(range(PAGE + 20))
            await all_sent(jobs)


async def test_what_waits_is_seen_and_kept_and_an_operator_may_drop_it(
    url: str, tmp_path: Path
) -> None:
    async with channel_at(url) as channel, sender(url, f"sqlite:///{tmp_path}/g.db") as jobs:
        queue = await bound(channel, url, OTHER)
        name = jobs.consumers[-1].name
        with log_ear("gantline.bridge") as ear:
            async with jobs.running():
                await send(jobs, to(TYPE, 1))
                await send(jobs, to(OTHER, 11))
                await received(queue, 1)
                await ear.hears(logging.WARNING)
                _, part = await consumers(jobs.store)
                assert (part.name, part.part_of, part.run_by) == (f"{name}#{TYPE}", name, 1)
                assert part.is_failing
                assert "No queue is bound" in part.last_error
                assert part.unread_since is not None
                assert await slowest_position(jobs.store) == part.position
                await delete_cursor(jobs.store, part.name)
                await bound(channel, url, TYPE)
                await send(jobs, to(TYPE, 2))
                assert numbers(await received(queue, 1)) == [2]


@pytest.mark.parametrize("topics", [[OTHER], ["nothing"]])
async def test_what_has_the_key_of_another_envelope_is_not_taken_for_it(
    url: str, topics: list[str]
) -> None:
    """The driver finds what was returned by its message id, which is the key."""
    async with channel_at(url) as channel, sender(url) as jobs:
        queue = await bound(channel, url, *topics)
        for number in (1, 2):
            await send(jobs, to(TYPE, number, idempotencyKey="k"))
            await send(jobs, to(OTHER, 10 + number, idempotencyKey="k"))
        with log_ear("gantline.bridge") as ear:
            async with jobs.running():
                for _ in {TYPE, OTHER} - set(topics):
                    await ear.hears(logging.WARNING)
                await bound(channel, url, "#")
                found = numbers(await received(queue, 4))
    assert [one for one in found if one < 10] == [1, 2]
    assert [one for one in found if one > 10] == [11, 12]


async def test_a_queue_that_is_full_holds_up_its_own_type_alone(url: str) -> None:
    async with channel_at(url) as channel, sender(url) as jobs:
        queue = await bound(channel, url, OTHER)
        full = await channel.declare_queue(
            f"full-{uuid4().hex}",
            arguments={"x-max-length": 1, "x-overflow": "reject-publish"},
        )
        await full.bind(parse_bridge_url(url).exchange, TYPE)
        with log_ear("gantline.bridge") as ear:
            async with jobs.running():
                await send(jobs, to(TYPE, 1))
                assert numbers(await received(full, 1)) == [1]
                await channel.default_exchange.publish(aio_pika.Message(b"{}"), full.name)
                await send(jobs, to(TYPE, 2))
                await send(jobs, to(OTHER, 11))
                assert numbers(await received(queue, 1)) == [11]
                assert "it may be full" in await ear.hears(logging.WARNING)
                await full.purge()
                assert numbers(await received(full, 1)) == [2]


async def test_only_so_many_types_are_put_off(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond that, all waits: nothing is lost, and the list of consumers tells."""
    monkeypatch.setattr(sending, "MOST_PUT_OFF", 2)
    async with channel_at(url) as channel, sender(url) as jobs:
        for job_type in ("a", "b", "c", OTHER):
            await send(jobs, to(job_type, 1))
        with log_ear("gantline.consumer") as ear:
            async with jobs.running():
                assert "At most 2 types" in await ear.hears(logging.ERROR)
                queue = await bound(channel, url, "b", "c", OTHER)
                found = {one.routing_key for one in await received(queue, 3)}
                (part,) = [one for one in await consumers(jobs.store) if one.part_of]
    assert found == {"b", "c", OTHER}
    assert part.name.endswith("#a")


async def test_another_gantline_makes_the_same_job_of_it(url: str) -> None:
    here, there = sender(url), sender(url)

    @there.job(TYPE)
    async def index(payload: dict[str, int]) -> dict[str, int]:
        return {"pages": payload["n"]}

    async with there, there.bridging() as bridge, there.running():
        async with asyncio.timeout(PATIENCE_SECONDS):
            await bridge.connected()
        async with here, here.running():
            sent = await send(here, numbered(3))
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not bridge.taken["accepted"]:  # noqa: ASYNC110  # it has no signal
                    await asyncio.sleep(0.01)
        handle = there.handle((await only(there)).job_id)
        assert await handle.result(PATIENCE_SECONDS) == {"pages": 3}
        job = (await handle.status()).job
    assert (job.external_id, job.created_at) == (sent.job_id, sent.created_at)


async def only(jobs: Gantline) -> Any:
    (found,) = (await jobs.store.find(JobFilter(tenant_id=None), limit=10)).items
    return found.job


@pytest.mark.parametrize(
    "envelope",
    [
        b"{",
        {"jobType": ""},
        {"jobType": TYPE, "queue": "webhooks"},
        {"jobType": TYPE, "attempt": 9},
        {"jobType": TYPE, "payload": "x" * 70_000},
        {"jobType": "x" * 201},
        {"jobType": "a.*"},
    ],
)
async def test_what_could_not_be_sent_is_refused_at_once(url: str, envelope: Any) -> None:
    """Or it would keep all that come after it waiting for ever."""
    async with sender(url) as jobs:
        with pytest.raises((InvalidInput, StoreMisconfigured)):
            await send(jobs, envelope)
        everything = JobFilter(tenant_id=None, internal=True)
        assert not (await jobs.store.find(everything, limit=10)).items


async def test_a_switch_holds_for_what_is_sent(url: str) -> None:
    async with sender(url) as jobs:
        await jobs.switches.disable_type(SEND_TYPE)
        with pytest.raises(GantlineError, match="is switched off"):
            await send(jobs, numbered(1))


async def test_what_was_sent_is_a_job_of_gantlines_own_that_ends(url: str) -> None:
    async with receiving(url) as queue, sender(url) as jobs:
        before = datetime.now(UTC)
        await send(jobs, {**numbered(1), "subjectId": "s", "correlationId": "c"})
        everything = JobFilter(tenant_id=None, internal=True)
        (waiting,) = (await jobs.store.find(everything, limit=10)).items
        async with jobs.running():
            await received(queue, 1)
            ended = await jobs.handle(waiting.job.job_id).wait(PATIENCE_SECONDS)
    assert waiting.job.created_at >= before
    assert (ended.job.subject_id, ended.job.correlation_id) == ("s", "c")
    assert (ended.status.value, ended.job.job_type) == ("Completed", SEND_TYPE)

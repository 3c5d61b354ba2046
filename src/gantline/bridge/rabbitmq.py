"""RabbitMQ as the bridge's broker.

Envelopes are published to a topic exchange by the name of their type. Each type has a queue of its
own, so that one that has to wait delays no other; all processes with a bridge share it. A message
is acknowledged when its job is durable. What can never become a job is published to the dead
letters with the reason, and only then acknowledged.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Final

import aio_pika
from aio_pika.abc import (
    AbstractChannel,
    AbstractConnection,
    AbstractExchange,
    AbstractIncomingMessage,
    AbstractQueue,
)
from aio_pika.exceptions import (
    CONNECTION_EXCEPTIONS,
    ChannelInvalidStateError,
    DeliveryError,
    PublishError,
)
from pamqp.common import FieldValue
from pamqp.encode import field_table

from gantline.bridge.broker import BridgeSettings, Outgoing, TakeMessage, Topic
from gantline.bridge.message import Message, Property, Rejected
from gantline.contract.errors import GantlineError, StoreMisconfigured
from gantline.wakeups.amqp import UNREADABLE, connect_to_broker, open_exchange, wait_until_closed

_log = logging.getLogger("gantline.bridge")

_RESPONSE_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 1.0
_MOST_IN_A_NAME: Final = 255
_MOST_IN_A_TOPIC: Final = 200
_MOST_IN_A_DETAIL: Final = 500
_MOST_IN_HEADERS: Final = 64 * 1024
_CONNECTION_LOST: Final = (*CONNECTION_EXCEPTIONS, ChannelInvalidStateError, asyncio.TimeoutError)
_READ_PROPERTIES: Final = frozenset({"JobType", "Attempt", "CreatedAt"})


class RabbitBroker:
    """One broker. Receiving and each kind of publishing have a connection of their own."""

    def __init__(self, settings: BridgeSettings, *, look_seconds: float = 30.0) -> None:
        """`look_seconds`: how often to check that our queues still exist; the broker does not say
        when somebody deletes one."""
        self._settings = settings
        self._look_seconds = look_seconds
        self._outcomes = _Publisher(settings.url, settings.outcomes)
        self._envelopes = _Publisher(settings.url, settings.exchange, must_be_received=True)

    def check(self, topics: Sequence[Topic]) -> None:
        for name in (name for topic in topics for name in topic.names):
            if len(name.encode()) > _MOST_IN_A_TOPIC or {"*", "#"} & set(name):
                raise StoreMisconfigured(
                    f"The job type {name[:64]!r} cannot be a topic of RabbitMQ.",
                    next_step=f"Name it without * and #, in at most {_MOST_IN_A_TOPIC} bytes.",
                )

    # -- receiving --------------------------------------------------------------------------------

    async def receive(
        self, topics: Sequence[Topic], take: TakeMessage, connected: Callable[[], None]
    ) -> None:
        async with connect_to_broker(self._settings.url, seconds=_RESPONSE_SECONDS) as connection:
            async with asyncio.timeout(_RESPONSE_SECONDS):
                dead = await self._open_dead_letters(connection)
                consumed = [await self._consume(connection, topic, take, dead) for topic in topics]
            connected()
            await _hold_until_lost(connection, [dead, *consumed], look_seconds=self._look_seconds)

    async def _open_dead_letters(self, connection: AbstractConnection) -> AbstractQueue:
        """Publishing without a queue must raise: the message would be lost, yet acknowledged."""
        channel = await connection.channel(on_return_raises=True)
        return await channel.declare_queue(self._settings.dead_letters, durable=True)

    async def _consume(
        self,
        connection: AbstractConnection,
        topic: Topic,
        take: TakeMessage,
        dead: AbstractQueue,
    ) -> AbstractQueue:
        channel, exchange = await open_exchange(connection, self._settings.exchange)
        await channel.set_qos(prefetch_count=self._settings.prefetch)
        queue = await channel.declare_queue(self._settings.queue(topic.job_type), durable=True)
        for name in topic.names:
            await queue.bind(exchange, name)

        async def on_message(received: AbstractIncomingMessage) -> None:
            try:
                await self._handle(received, take, dead)
            except _CONNECTION_LOST:
                _log.debug("a message could not be acknowledged; it will come again")

        await queue.consume(on_message)
        return queue

    async def _handle(
        self, received: AbstractIncomingMessage, take: TakeMessage, dead: AbstractQueue
    ) -> None:
        try:
            await take(_read_message(received))
        except Rejected as rejected:
            try:
                await self._dead_letter(received, rejected, dead)
            except Exception as error:
                _log.warning("the dead letters did not take a message: %s", _cause(error))
                return await _requeue(received)
        except Exception:
            _log.exception("a message could not be taken in; it goes back to the broker")
            return await _requeue(received)
        await received.ack()

    async def _dead_letter(
        self, received: AbstractIncomingMessage, rejected: Rejected, dead: AbstractQueue
    ) -> None:
        """Publish a message to the dead letters as it came, with the reason in its headers."""
        _log.warning("a message was rejected (%s): %s", rejected.reason, rejected.detail)
        headers = _keep_headers(received) | {
            "x-gantline-reason": rejected.reason.value,
            "x-gantline-error-code": str(rejected.error_code),
            "x-gantline-detail": rejected.detail[:_MOST_IN_A_DETAIL],
            "x-gantline-routing-key": received.routing_key or "",
        }
        letter = aio_pika.Message(
            received.body,
            headers=headers,
            content_type=received.content_type,
            content_encoding=received.content_encoding,
            correlation_id=received.correlation_id,
            message_id=received.message_id,
            type=received.type,
            timestamp=received.timestamp,
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        )
        await dead.channel.default_exchange.publish(letter, dead.name, timeout=_RESPONSE_SECONDS)

    # -- publishing -------------------------------------------------------------------------------

    async def publish(self, outgoing: Sequence[Outgoing]) -> None:
        if refused := next(filter(None, await self._outcomes.publish(outgoing)), ""):
            raise GantlineError(refused)

    async def send(self, outgoing: Sequence[Outgoing]) -> list[str]:
        return await self._envelopes.publish(outgoing)

    async def close(self) -> None:
        """Close the connections that publish."""
        await self._outcomes.close()
        await self._envelopes.close()


class _Publisher:
    """Publishes to one exchange, by a connection of its own."""

    def __init__(self, url: str, exchange: str, *, must_be_received: bool = False) -> None:
        self._url = url
        self._name = exchange
        self._must_be_received = must_be_received
        self._opened: AsyncExitStack | None = None
        self._exchange: AbstractExchange | None = None

    async def publish(self, outgoing: Sequence[Outgoing]) -> list[str]:
        """Publish all at once, in their order; the broker confirms each when it is on disk.

        Return why each was refused, an empty text for what was stored.
        """
        refused: list[str] = []
        try:
            async with asyncio.timeout(_RESPONSE_SECONDS):
                exchange = self._exchange or await self._open()
                for some in _with_different_ids(outgoing):
                    refused += await asyncio.gather(*(self._publish(exchange, one) for one in some))
        except BaseException:
            await self.close()
            raise
        return refused

    async def _publish(self, exchange: AbstractExchange, outgoing: Outgoing) -> str:
        where = f"the exchange {self._name!r} for {outgoing.topic!r}"
        try:
            await exchange.publish(
                _write_message(outgoing.message),
                _cut(outgoing.topic),
                mandatory=self._must_be_received,
            )
        except PublishError:
            return f"No queue is bound to {where}: bind one."
        except DeliveryError:
            return f"A queue that is bound to {where} takes nothing more: it may be full."
        return ""

    async def _open(self) -> AbstractExchange:
        self._opened = AsyncExitStack()
        connection = await self._opened.enter_async_context(
            connect_to_broker(self._url, seconds=_RESPONSE_SECONDS)
        )
        _, self._exchange = await open_exchange(
            connection, self._name, raises_returned=self._must_be_received
        )
        return self._exchange

    async def close(self) -> None:
        opened, self._opened, self._exchange = self._opened, None, None
        if opened is not None:
            await opened.aclose()


def _with_different_ids(outgoing: Sequence[Outgoing]) -> Iterator[Sequence[Outgoing]]:
    """Split messages so that none has the id of another one that is under way.

    The driver finds what the broker returns by that id alone: it would take one for the other.
    """
    begin, ids = 0, set[str]()
    for number, one in enumerate(outgoing):
        message_id = _fit(one.message.message_id)
        if message_id in ids:
            yield outgoing[begin:number]
            begin, ids = number, set()
        ids.add(message_id)
    yield outgoing[begin:]


async def _requeue(received: AbstractIncomingMessage) -> None:
    """Return a message, or it would count against the prefetch until the connection ends."""
    await asyncio.sleep(_PAUSE_SECONDS)  # it comes again at once
    await received.nack(requeue=True)


def _cause(error: BaseException) -> str:
    return str(error) or type(error).__name__


async def _hold_until_lost(
    connection: AbstractConnection, queues: Sequence[AbstractQueue], *, look_seconds: float
) -> None:
    """Wait until a connection or channel is lost. A deleted queue fails a passive declaration."""
    channels: list[AbstractChannel] = [queue.channel for queue in queues]
    while True:
        try:
            async with asyncio.timeout(look_seconds):
                await wait_until_closed(connection, *channels)
        except TimeoutError:
            async with asyncio.timeout(_RESPONSE_SECONDS):
                for queue in queues:
                    await queue.channel.declare_queue(queue.name, passive=True)
        else:
            raise ConnectionError("the broker has closed the connection")


def _write_message(message: Message) -> aio_pika.Message:
    return aio_pika.Message(
        message.body,
        headers=dict(message.properties),
        content_type=message.content_type,
        correlation_id=_cut(message.correlation_id) or None,
        message_id=_fit(message.message_id),
        type=_cut(message.subject),
        timestamp=message.at,
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
    )


def _keep_headers(received: AbstractIncomingMessage) -> dict[str, FieldValue]:
    """Keep all headers, or none: a broker disconnects where they do not fit in a frame."""
    headers = dict(received.headers)
    if UNREADABLE in headers:
        # By another name: a message sent again from the dead letters must not have this header.
        headers = {"x-gantline-properties": headers[UNREADABLE]}
    try:
        is_small = len(field_table(headers)) <= _MOST_IN_HEADERS
    except Exception:  # what the driver reads it may not be able to write
        is_small = False
    return headers if is_small else {}


def _read_message(received: AbstractIncomingMessage) -> Message:
    return Message(
        body=received.body,
        message_id=received.message_id or "",
        correlation_id=received.correlation_id or "",
        subject=received.type or "",
        properties={
            name: _plain(received.headers[name])
            for name in _READ_PROPERTIES & received.headers.keys()
        },
        is_readable=UNREADABLE not in received.headers,
    )


def _plain(value: object) -> Property:
    if isinstance(value, datetime):
        return value.isoformat()
    return value if isinstance(value, str | int) else str(value)


def _fit(message_id: str) -> str:
    """Hash what is too long for AMQP though a key may be so long: cut, two could be the same."""
    encoded = message_id.encode()
    return message_id if len(encoded) <= _MOST_IN_A_NAME else hashlib.sha256(encoded).hexdigest()


def _cut(name: str) -> str:
    """Cut a name to the 255 bytes of an AMQP short string."""
    return name.encode()[:_MOST_IN_A_NAME].decode(errors="ignore")

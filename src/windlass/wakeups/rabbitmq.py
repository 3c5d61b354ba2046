"""The RabbitMQ trigger: a message says "look now". What it says beyond that is never trusted.

Each listener has a queue of its own, so that everybody hears everything; it holds one message, as
two would mean no more. Jobs that are submitted within one window share one message, with the id of
the first. There is no message for a cancellation: it goes the store's own way, or by polling.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit
from uuid import UUID

import aio_pika
import msgspec
from aio_pika.abc import (
    AbstractChannel,
    AbstractConnection,
    AbstractExchange,
    AbstractIncomingMessage,
)
from aio_pika.exceptions import ChannelNotFoundEntity

from windlass.contract.errors import StoreMisconfigured
from windlass.contract.wakeup import Hint, OnHint
from windlass.wakeups.remote import Pace, RemoteWakeup

DEFAULT_EXCHANGE: Final = "windlass"
DEFAULT_ROUTING_KEY: Final = "jobs.trigger"
_SCHEMES: Final = ("amqp", "amqps")
# The broker counts as gone after three of them.
_HEARTBEAT_SECONDS: Final = 5
_NO_JOB: Final = UUID(int=0)


class Trigger(NamedTuple):
    """Where triggers are exchanged."""

    url: str
    exchange: str
    routing_key: str

    def __repr__(self) -> str:
        """Leave the URL out: it may hold a password."""
        return f"Trigger(exchange={self.exchange!r}, routing_key={self.routing_key!r})"


class Message(msgspec.Struct, frozen=True):
    """What goes over the wire: `{"job_id": "<uuid>"}`."""

    job_id: UUID


def parse_trigger(url: str) -> Trigger:
    """Read `amqp://…/vhost?exchange=…&routing_key=…`; other options go to the driver."""
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES or not parts.hostname:
        raise StoreMisconfigured(
            f"A trigger URL begins with amqp:// and a host, not with {parts.scheme!r}.",
            next_step="Write amqp://user:password@host/vhost.",
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    exchange = options.pop("exchange", DEFAULT_EXCHANGE)
    routing_key = options.pop("routing_key", DEFAULT_ROUTING_KEY)
    if not exchange:
        raise StoreMisconfigured(
            "The trigger URL names no exchange.", next_step=f"Write exchange={DEFAULT_EXCHANGE}."
        )
    options.setdefault("heartbeat", str(_HEARTBEAT_SECONDS))
    return Trigger(urlunsplit(parts._replace(query=urlencode(options))), exchange, routing_key)


def rabbitmq_wakeup(trigger: Trigger, pace: Pace | None = None) -> RemoteWakeup:
    """Reach all who listen at the same exchange."""
    pace = pace or Pace()
    return RemoteWakeup(
        lambda: RabbitLink(trigger, pace),
        what="triggers through RabbitMQ",
        pace=pace,
        always_connected=True,
    )


class RabbitLink:
    """One connection that publishes, and listens where somebody wants to hear."""

    def __init__(self, trigger: Trigger, pace: Pace) -> None:
        self._trigger = trigger
        self._pace = pace
        self._exchange: AbstractExchange | None = None
        self._connected = asyncio.Event()

    async def hold(self, heard: OnHint | None, connected: Callable[[], None]) -> None:
        async with asyncio.timeout(self._pace.answer_seconds):
            connection = await aio_pika.connect(self._trigger.url)
        try:
            async with asyncio.timeout(self._pace.answer_seconds):
                channel, self._exchange = await self._open(connection)
                if heard is not None:
                    await self._listen(channel, self._exchange, heard)
            self._connected.set()
            connected()
            ends = {asyncio.ensure_future(part.closed()) for part in (connection, channel)}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            raise ConnectionError("the broker has closed the connection")
        finally:
            self._connected.clear()
            await connection.close()

    async def _open(
        self, connection: AbstractConnection
    ) -> tuple[AbstractChannel, AbstractExchange]:
        """Take the exchange as it is, of whatever type; make it where it is not there."""
        channel = await connection.channel()
        try:
            return channel, await channel.get_exchange(self._trigger.exchange)
        except ChannelNotFoundEntity:  # which has closed the channel
            channel = await connection.channel()
            return channel, await channel.declare_exchange(
                self._trigger.exchange, aio_pika.ExchangeType.TOPIC, durable=True
            )

    async def _listen(
        self, channel: AbstractChannel, exchange: AbstractExchange, heard: OnHint
    ) -> None:
        async def on_message(message: AbstractIncomingMessage) -> None:
            if is_trigger(message.body):
                heard(Hint.WORK)

        queue = await channel.declare_queue(exclusive=True, arguments={"x-max-length": 1})
        await queue.bind(exchange, self._trigger.routing_key)
        await queue.consume(on_message, no_ack=True)

    async def send(self, hint: Hint, job_id: UUID | None) -> None:
        if hint is not Hint.WORK:
            return
        body = msgspec.json.encode(Message(job_id or _NO_JOB))
        message = aio_pika.Message(body, content_type="application/json")
        async with asyncio.timeout(self._pace.answer_seconds):
            await self._connected.wait()
            if self._exchange is not None:
                await self._exchange.publish(message, self._trigger.routing_key, mandatory=False)

    async def close(self) -> None:
        """Nothing to do: the connection ends with `hold`."""


def is_trigger(body: bytes) -> bool:
    """Whether a message has our form. Which job it names does not matter: the store knows."""
    try:
        msgspec.json.decode(body, type=Message)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return True

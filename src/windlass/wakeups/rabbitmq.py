"""The RabbitMQ trigger: a message says "look now". What it says beyond that is never trusted.

Each listener has a queue of its own, so that everybody hears everything. Jobs that are submitted
within one window share one message, with the id of the first. There is no message for a
cancellation: it goes the store's own way, or by polling.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final
from uuid import UUID

import aio_pika
from aio_pika.abc import (
    AbstractChannel,
    AbstractConnection,
    AbstractExchange,
    AbstractIncomingMessage,
)
from aio_pika.exceptions import ChannelNotFoundEntity
from yarl import URL

from windlass.contract.wakeup import Hint, OnHint
from windlass.wakeups.remote import Pace, RemoteWakeup
from windlass.wakeups.trigger import Trigger, is_trigger, message

# Of a listener that does not keep up. More would tell it nothing new.
_MOST_WAITING: Final = 100
# The driver logs every failed attempt there, and a traceback when the connection is lost.
_CHATTY: Final = "aiormq.connection"


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
        self._tried = asyncio.Event()
        """Whether the first attempt to connect is over."""

    async def hold(self, heard: OnHint | None, connected: Callable[[], None]) -> None:
        try:
            # Closed even where it could not connect, or the collector would do it in any thread.
            with _hushed():
                async with aio_pika.Connection(URL(self._trigger.url)) as connection:
                    async with asyncio.timeout(self._pace.answer_seconds):
                        await connection.connect()
                    await self._use(connection, heard, connected)
        finally:
            self._exchange = None
            self._tried.set()

    async def _use(
        self,
        connection: AbstractConnection,
        heard: OnHint | None,
        connected: Callable[[], None],
    ) -> None:
        async with asyncio.timeout(self._pace.answer_seconds):
            channel, exchange = await self._open(connection)
            if heard is not None:
                await self._listen(channel, exchange, heard)
        self._exchange = exchange
        self._tried.set()
        connected()
        ends = {asyncio.ensure_future(part.closed()) for part in (connection, channel)}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        raise ConnectionError("the broker has closed the connection")

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
        async def on_message(received: AbstractIncomingMessage) -> None:
            if is_trigger(received.body):
                heard(Hint.WORK)

        queue = await channel.declare_queue(
            exclusive=True, arguments={"x-max-length": _MOST_WAITING}
        )
        await queue.bind(exchange, self._trigger.routing_key)
        await queue.consume(on_message, no_ack=True)

    async def send(self, hint: Hint, job_id: UUID | None) -> None:
        if hint is not Hint.WORK:
            return
        await self._tried.wait()
        if self._exchange is None:
            raise ConnectionError("the broker is not connected")
        await self._exchange.publish(
            aio_pika.Message(message(job_id), content_type="application/json"),
            self._trigger.routing_key,
            mandatory=False,
            timeout=self._pace.answer_seconds,
        )

    async def close(self) -> None:
        """Nothing to do: the connection ends with `hold`."""


@contextmanager
def _hushed() -> Iterator[None]:
    """Say nothing twice: an outage is told once, by us. Others who use the driver keep its log."""
    logger, ours = logging.getLogger(_CHATTY), threading.get_ident()

    def is_others(record: logging.LogRecord) -> bool:
        return record.thread != ours

    logger.addFilter(is_others)
    try:
        yield
    finally:
        logger.removeFilter(is_others)

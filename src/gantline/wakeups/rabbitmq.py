"""The RabbitMQ trigger: a message says "look now". What it says beyond that is never trusted.

Each listener has a queue of its own, so that everybody hears everything. Jobs that are submitted
within one window share one message, with the id of the first. There is no message for a
cancellation: it goes the store's own way, or by polling.
"""

import asyncio
from collections.abc import Callable
from typing import Final
from uuid import UUID

import aio_pika
from aio_pika.abc import (
    AbstractChannel,
    AbstractConnection,
    AbstractExchange,
    AbstractIncomingMessage,
)

from gantline.contract.wakeup import Hint, OnHint
from gantline.wakeups.amqp import connected_to, lost, open_exchange
from gantline.wakeups.remote import Pace, RemoteWakeup
from gantline.wakeups.trigger import Trigger, is_trigger, message

# Of a listener that does not keep up. More would tell it nothing new.
_MOST_WAITING: Final = 100


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
            seconds = self._pace.answer_seconds
            async with connected_to(self._trigger.url, seconds=seconds) as connection:
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
            channel, exchange = await open_exchange(connection, self._trigger.exchange)
            if heard is not None:
                await self._listen(channel, exchange, heard)
        self._exchange = exchange
        self._tried.set()
        connected()
        await lost(connection, channel)
        raise ConnectionError("the broker has closed the connection")

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

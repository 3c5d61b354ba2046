"""The RabbitMQ trigger: a message says that there may be work. Nothing else in it is trusted.

Each listener has a queue of its own, so that all of them get every message. Jobs that are submitted
within one window share one message, with the id of the first. There is no message for a
cancellation: that uses the store's own wake-up, or polling.
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
from gantline.wakeups.amqp import connect_to_broker, open_exchange, wait_until_closed
from gantline.wakeups.remote import RemoteWakeup, WakeupPace
from gantline.wakeups.trigger import Trigger, encode_trigger, is_trigger

# For a listener that does not keep up. More messages would say nothing new.
_MOST_WAITING: Final = 100


def rabbitmq_wakeup(trigger: Trigger, pace: WakeupPace | None = None) -> RemoteWakeup:
    """Notify all who listen at the same exchange."""
    pace = pace or WakeupPace()
    return RemoteWakeup(
        lambda: RabbitLink(trigger, pace),
        what="triggers through RabbitMQ",
        pace=pace,
        always_connected=True,
    )


class RabbitLink:
    """One connection that publishes, and listens where a callback is given."""

    def __init__(self, trigger: Trigger, pace: WakeupPace) -> None:
        self._trigger = trigger
        self._pace = pace
        self._exchange: AbstractExchange | None = None
        self._tried = asyncio.Event()
        """Whether the first attempt to connect is over."""

    async def hold(self, on_hint: OnHint | None, connected: Callable[[], None]) -> None:
        try:
            seconds = self._pace.answer_seconds
            async with connect_to_broker(self._trigger.url, seconds=seconds) as connection:
                await self._use(connection, on_hint, connected)
        finally:
            self._exchange = None
            self._tried.set()

    async def _use(
        self,
        connection: AbstractConnection,
        on_hint: OnHint | None,
        connected: Callable[[], None],
    ) -> None:
        async with asyncio.timeout(self._pace.answer_seconds):
            channel, exchange = await open_exchange(connection, self._trigger.exchange)
            if on_hint is not None:
                await self._listen(channel, exchange, on_hint)
        self._exchange = exchange
        self._tried.set()
        connected()
        await wait_until_closed(connection, channel)
        raise ConnectionError("the broker has closed the connection")

    async def _listen(
        self, channel: AbstractChannel, exchange: AbstractExchange, on_hint: OnHint
    ) -> None:
        async def on_message(received: AbstractIncomingMessage) -> None:
            if is_trigger(received.body):
                on_hint(Hint.WORK)

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
            aio_pika.Message(encode_trigger(job_id), content_type="application/json"),
            self._trigger.routing_key,
            mandatory=False,
            timeout=self._pace.answer_seconds,
        )

    async def close(self) -> None:
        """Nothing to do: the connection ends with `hold`."""

"""Connections to RabbitMQ, for the trigger and the bridge alike."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractExchange
from aio_pika.exceptions import ChannelNotFoundEntity
from yarl import URL

from gantline.wakeups.amqp_frames import ReadableTransport

# The driver logs every failed attempt there, and a traceback when the connection is lost.
_CHATTY: Final = "aiormq.connection"


@asynccontextmanager
async def connected_to(url: str, *, seconds: float) -> AsyncIterator[AbstractConnection]:
    """Hold one connection, which is not made again when it is lost; raise when there is none."""
    # Closed even where it could not connect, or the collector would do it in any thread.
    with _hushed():
        async with aio_pika.Connection(URL(url)) as connection:
            connection.kwargs["transport_factory"] = ReadableTransport()
            async with asyncio.timeout(seconds):
                await connection.connect()
            yield connection


async def open_exchange(
    connection: AbstractConnection, name: str
) -> tuple[AbstractChannel, AbstractExchange]:
    """Take an exchange as it is, of whatever type; make it where it is not there."""
    channel = await connection.channel()
    try:
        return channel, await channel.get_exchange(name)
    except ChannelNotFoundEntity:  # which has closed the channel
        channel = await connection.channel()
        return channel, await channel.declare_exchange(
            name, aio_pika.ExchangeType.TOPIC, durable=True
        )


async def lost(*parts: AbstractConnection | AbstractChannel) -> None:
    """Return when one of them is closed."""
    ends = {asyncio.ensure_future(part.closed()) for part in parts}
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for end in ends:
            end.cancel()


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

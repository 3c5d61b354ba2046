"""Connections to RabbitMQ, for the trigger and the bridge alike.

The driver closes the connection on a message with a property that it cannot read, such as an id
that is not UTF-8. The broker then delivers that message again, with the same end. So every frame
passes through here before the driver sees it: properties that it could not read are replaced.
"""

import asyncio
import logging
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import aio_pika
from aio_pika import IncomingMessage
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractExchange
from aio_pika.exceptions import ChannelNotFoundEntity
from aiormq.abc import DeliveredMessage
from aiormq.connection import TCPTransportFactory, TLSTransportFactory, TransportFactory
from pamqp import commands, frame
from pamqp.header import ContentHeader
from yarl import URL

# The driver logs every failed attempt there, and a traceback when the connection is lost.
_DRIVER_LOGGER: Final = "aiormq.connection"


@asynccontextmanager
async def connect_to_broker(url: str, *, seconds: float) -> AsyncIterator[AbstractConnection]:
    """Hold one connection, which is not restored when it is lost; raise when there is none."""
    # Closed even where it could not connect, or the garbage collector would do it in any thread.
    with _silence_driver():
        async with aio_pika.Connection(URL(url)) as connection:
            connection.kwargs["transport_factory"] = ReadableTransport()
            async with asyncio.timeout(seconds):
                await connection.connect()
            yield connection


async def open_exchange(
    connection: AbstractConnection, name: str, *, raises_returned: bool = False
) -> tuple[AbstractChannel, AbstractExchange]:
    """Use an exchange as it is, of whatever type; declare it where there is none.

    `raises_returned`: publishing what the broker returns raises, as no queue gets it.
    """
    channel = await connection.channel(on_return_raises=raises_returned)
    try:
        return channel, await channel.get_exchange(name)
    except ChannelNotFoundEntity:  # which has closed the channel
        channel = await connection.channel(on_return_raises=raises_returned)
        return channel, await channel.declare_exchange(
            name, aio_pika.ExchangeType.TOPIC, durable=True
        )


async def wait_until_closed(*parts: AbstractConnection | AbstractChannel) -> None:
    """Return when one of these is closed."""
    ends = {asyncio.ensure_future(part.closed()) for part in parts}
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for end in ends:
            end.cancel()


@contextmanager
def _silence_driver() -> Iterator[None]:
    """Drop the driver's log lines of this thread: we log an outage once. Others keep theirs."""
    logger, ours = logging.getLogger(_DRIVER_LOGGER), threading.get_ident()

    def is_others(record: logging.LogRecord) -> bool:
        return record.thread != ours

    logger.addFilter(is_others)
    try:
        yield
    finally:
        logger.removeFilter(is_others)


UNREADABLE: Final = "x-gantline-unreadable"
"""The header of a message whose properties cannot be read; its value is what they were."""

_HEAD: Final = struct.Struct(">BHI")
_METHOD_FRAME: Final = 1
_HEADER_FRAME: Final = 2
_DELIVER: Final = struct.pack(">I", commands.Basic.Deliver.index)
_BEFORE_PROPERTIES: Final = struct.Struct(">HHQ")
_TAG_AND_FLAG_BYTES: Final = 9
_NO_CHANNEL: Final[Any] = None
_ASCII: Final = bytes(range(128)) + b"?" * 128


class ReadableTransport(TransportFactory):
    """Connects as the driver does, and makes the frames from the broker readable."""

    async def create(
        self, url: URL, **options: Any
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        usual = TLSTransportFactory() if url.scheme == "amqps" else TCPTransportFactory()
        reader, writer = await usual.create(url, **options)
        return _ReadableFrames(reader), writer


class _ReadableFrames(asyncio.StreamReader):
    """Passes the broker's frames on, one after the other; the driver reads each in pieces."""

    def __init__(self, broker: asyncio.StreamReader) -> None:
        super().__init__()
        self._broker = broker
        self._rest = b""

    def at_eof(self) -> bool:
        return not self._rest and self._broker.at_eof()

    async def readexactly(self, n: int) -> bytes:
        if not self._rest:
            self._rest = await self._next()
        part, self._rest = self._rest[:n], self._rest[n:]
        return part

    async def _next(self) -> bytes:
        head = await self._broker.readexactly(_HEAD.size)
        kind, channel, size = _HEAD.unpack(head)
        content = await self._broker.readexactly(size + 1)
        if kind == _HEADER_FRAME:
            return make_header_readable(head + content, channel)
        if kind == _METHOD_FRAME and content.startswith(_DELIVER):
            return head + make_delivery_readable(content)
        return head + content


def make_header_readable(raw: bytes, channel: int) -> bytes:
    """Return the properties of a message: as they came, if the driver can read them."""
    try:
        _read_as_the_driver_does(raw)
    except Exception:  # whatever it is, the driver would raise it too
        before = _HEAD.size + _BEFORE_PROPERTIES.size
        *_, body_size = _BEFORE_PROPERTIES.unpack(raw[_HEAD.size : before])
        readable = commands.Basic.Properties(headers={UNREADABLE: bytearray(raw[before:-1])})
        return frame.marshal(ContentHeader(body_size=body_size, properties=readable), channel)
    return raw


def _read_as_the_driver_does(raw: bytes) -> None:
    _, _, header = frame.unmarshal(raw)
    if isinstance(header, ContentHeader):
        IncomingMessage(DeliveredMessage(commands.Basic.Deliver(), header, b"", _NO_CHANNEL))


def make_delivery_readable(content: bytes) -> bytes:
    """Return where a message comes from; a name that is not UTF-8 gets a `?` for each odd byte.

    No job depends on these names, so the message is accepted."""
    readable, start = bytearray(content), len(_DELIVER)
    start += 1 + content[start] + _TAG_AND_FLAG_BYTES
    for _ in ("exchange", "routing key"):
        end = start + 1 + content[start]
        readable[start + 1 : end] = _replace_non_text(content[start + 1 : end])
        start = end
    return bytes(readable)


def _replace_non_text(name: bytes) -> bytes:
    try:
        name.decode()
    except UnicodeDecodeError:
        return name.translate(_ASCII)
    return name

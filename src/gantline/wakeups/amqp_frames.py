"""Frames as the driver can read them.

It hangs up on a message with a property that it cannot read, such as an id that is not UTF-8. The
broker then delivers that message again, to the same end. So frames pass by here before the driver
sees them: in place of properties that it could not read it is given others, which say so.
"""

import asyncio
import struct
from typing import Any, Final

from aio_pika import IncomingMessage
from aiormq.abc import DeliveredMessage
from aiormq.connection import TCPTransportFactory, TLSTransportFactory, TransportFactory
from pamqp import commands, frame
from pamqp.header import ContentHeader
from yarl import URL

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
    """Connects as the driver does, and stands between the broker and its reader."""

    async def create(
        self, url: URL, **options: Any
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        usual = TLSTransportFactory() if url.scheme == "amqps" else TCPTransportFactory()
        reader, writer = await usual.create(url, **options)
        return _ReadableFrames(reader), writer


class _ReadableFrames(asyncio.StreamReader):
    """Hands the broker's frames on, one after the other; the driver reads each in pieces."""

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
            return readable_header(head + content, channel)
        if kind == _METHOD_FRAME and content.startswith(_DELIVER):
            return head + readable_delivery(content)
        return head + content


def readable_header(raw: bytes, channel: int) -> bytes:
    """A message's properties, as they came if the driver can read them."""
    try:
        _read_as_the_driver_does(raw)
    except Exception:  # whatever it is, the driver would meet it too
        before = _HEAD.size + _BEFORE_PROPERTIES.size
        *_, body_size = _BEFORE_PROPERTIES.unpack(raw[_HEAD.size : before])
        told = commands.Basic.Properties(headers={UNREADABLE: bytearray(raw[before:-1])})
        return frame.marshal(ContentHeader(body_size=body_size, properties=told), channel)
    return raw


def _read_as_the_driver_does(raw: bytes) -> None:
    _, _, header = frame.unmarshal(raw)
    if isinstance(header, ContentHeader):
        IncomingMessage(DeliveredMessage(commands.Basic.Deliver(), header, b"", _NO_CHANNEL))


def readable_delivery(content: bytes) -> bytes:
    """Where a message comes from, with a mark for each byte that is no text: nothing that a job
    depends on, so the message is as good as any."""
    told, start = bytearray(content), len(_DELIVER)
    start += 1 + content[start] + _TAG_AND_FLAG_BYTES
    for _ in ("exchange", "routing key"):
        end = start + 1 + content[start]
        told[start + 1 : end] = _as_text(content[start + 1 : end])
        start = end
    return bytes(told)


def _as_text(name: bytes) -> bytes:
    try:
        name.decode()
    except UnicodeDecodeError:
        return name.translate(_ASCII)
    return name

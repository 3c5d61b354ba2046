"""A publisher that sends what it is given, byte for byte: no driver writes what none can read."""

import socket
import struct
from types import TracebackType
from typing import Final, Self

from pamqp import commands, frame, header

from tests.ear import PATIENCE_SECONDS

CHANNEL: Final = 1
_HEAD: Final = struct.Struct(">BHI")
_HEADER_FRAME: Final = 2
_BODY_FRAME: Final = 3
_END: Final = b"\xce"

# The flags of properties, as AMQP 0-9-1 orders them.
CONTENT_TYPE: Final = 1 << 15
HEADERS: Final = 1 << 13
DELIVERY_MODE: Final = 1 << 12
CORRELATION_ID: Final = 1 << 10
REPLY_TO: Final = 1 << 9
MESSAGE_ID: Final = 1 << 7
TIMESTAMP: Final = 1 << 6
TYPE: Final = 1 << 5
APP_ID: Final = 1 << 3


def short(text: bytes) -> bytes:
    """A short string."""
    return bytes([len(text)]) + text


def table(*fields: tuple[bytes, bytes]) -> bytes:
    """A table of names and of values, which begin with the letter of their type."""
    entries = b"".join(short(name) + value for name, value in fields)
    return struct.pack(">I", len(entries)) + entries


class RawPublisher:
    """Blocks; a message is with the broker when `publish` returns."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
        self._read = self._socket.makefile("rb")
        self._socket.sendall(header.ProtocolHeader().marshal())
        self._next()
        self._tell(commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest"), 0)
        self._next()
        self._socket.sendall(frame.marshal(commands.Connection.TuneOk(1, 131_072, 0), 0))
        self._tell(commands.Connection.Open("/"), 0)
        self._next()
        self._tell(commands.Channel.Open(), CHANNEL)
        self._next()
        self._tell(commands.Confirm.Select(), CHANNEL)
        self._next()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._read.close()
        self._socket.close()

    def publish(
        self, exchange: str, topic: bytes, body: bytes, flags: int, properties: bytes
    ) -> None:
        """Send a message whose properties are these bytes, and wait until the broker confirms."""
        method = struct.pack(">HHH", 60, 40, 0) + short(exchange.encode()) + short(topic) + b"\0"
        head = struct.pack(">HHQH", 60, 0, len(body), flags) + properties
        parts = ((1, method), (_HEADER_FRAME, head), (_BODY_FRAME, body))
        for kind, content in parts:
            self._socket.sendall(_HEAD.pack(kind, CHANNEL, len(content)) + content + _END)
        answer = self._next()
        assert isinstance(answer, commands.Basic.Ack), answer

    def _tell(self, method: object, channel: int) -> None:
        self._socket.sendall(frame.marshal(method, channel))  # type: ignore[arg-type]  # any method

    def _next(self) -> frame.FrameTypes:
        head = self._read.read(_HEAD.size)
        *_, size = _HEAD.unpack(head)
        return frame.unmarshal(head + self._read.read(size + 1))[2]

"""Connections: made by the driver, then written to and read by us, in batches; and the pool."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

import hiredis
from redis.asyncio import Connection as TcpConnection
from redis.asyncio import SSLConnection, UnixDomainSocketConnection
from redis.exceptions import ConnectionError, InvalidResponse

from gantline.stores.redis.location import Location, Node

_NOT_ENOUGH: Final = object()
_CLOSED: Final = "the server has closed the connection"


class ResponseReader(asyncio.Protocol):
    """Reads the responses to one batch of commands at a time, in order. Replaces the driver's."""

    def __init__(self, error_of: Callable[[str], Exception]) -> None:
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse, replyError=error_of, notEnoughData=_NOT_ENOUGH
        )
        self._read: list[Any] = []
        self._expected = 0
        self._waiter: asyncio.Future[list[Any]] | None = None
        self.is_lost = False

    @property
    def are_complete(self) -> bool:
        """Whether all that was expected has been read, on a connection that is not lost."""
        waiter = self._waiter
        is_pending = waiter is not None and (not waiter.done() or waiter.cancelled())
        return not (self.is_lost or is_pending)

    def expect(self, count: int) -> asyncio.Future[list[Any]]:
        """Wait for responses. Errors of the server are among them; a lost connection raises."""
        if self.is_lost:
            raise ConnectionError(_CLOSED)
        self._waiter = asyncio.get_running_loop().create_future()
        self._expected, self._read = count, []
        return self._waiter

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (response := self._reader.gets(False)) is not _NOT_ENOUGH:
                self._read.append(response)
        except InvalidResponse as error:
            self._lose(error)
        except Exception as error:  # as where the driver cannot read what an error says
            self._lose(ConnectionError(f"a response cannot be read: {error}"))
        else:
            self._hand_on()

    def _hand_on(self) -> None:
        """Give what was read to the one who waits for it. More than that is no response to us:
        whoever asked next would take it for theirs."""
        waiter = self._waiter
        if len(self._read) > self._expected:
            self._lose(InvalidResponse("more was answered than was asked for"))
        elif waiter is not None and len(self._read) == self._expected and not waiter.done():
            waiter.set_result(self._read)

    def connection_lost(self, error: Exception | None) -> None:
        self._lose(ConnectionError(str(error or _CLOSED)))

    def _lose(self, error: Exception) -> None:
        self.is_lost = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)


Argument = str | bytes | int | float
Command = tuple[Argument, ...]

# Its annotation allows only tuples of one element.
_pack: Final = cast("Callable[[Command], bytes]", hiredis.pack_command)
_CONNECT_SECONDS: Final = 5.0


class Connection:
    """Sends commands together and reads their responses in order."""

    def __init__(self, location: Location, node: Node | None) -> None:
        self._driver = _driver(location, node)
        self._transport: asyncio.WriteTransport | None = None
        self._responses = ResponseReader(self._driver._parser.parse_error)
        self.node = node

    async def open(self) -> None:
        await self._driver.connect()  # type: ignore[no-untyped-call]  # the driver's
        assert self._driver._writer is not None  # noqa: S101  # it is connected
        self._transport = self._driver._writer.transport
        self._transport.set_protocol(self._responses)

    @property
    def is_reusable(self) -> bool:
        return self._responses.are_complete

    async def ask(self, *commands: Command) -> list[Any]:
        """Send commands and read the responses. Errors of the server are among them; a lost
        connection raises."""
        assert self._transport is not None  # noqa: S101  # the caller has opened it
        data = b"".join(map(_pack, commands))
        responses = self._responses.expect(len(commands))
        # Without flow control: at most this one batch is buffered.
        self._transport.write(data)
        return await responses

    async def close(self) -> None:
        if self._transport is not None:
            # Not gracefully: TLS would send a close and wait for the response.
            self._transport.abort()
        with suppress(OSError, asyncio.TimeoutError):
            await self._driver.disconnect(nowait=True)

    def abandon(self) -> None:
        """Close it where its event loop has ended."""
        writer, self._driver._writer = self._driver._writer, None
        if writer is not None:
            _close_socket(writer.transport)


def _close_socket(transport: Any) -> None:
    """Close the socket of a transport. asyncio cannot do that without the loop, and would warn when
    both are collected. uvloop has closed them with the loop."""
    under_tls = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
    if under_tls is not None:
        transport._closed = True
        transport = under_tls
    if isinstance(sock := getattr(transport, "_sock", None), socket.socket):
        transport._closing = True
        transport._sock = None
        sock.close()


def _driver(location: Location, node: Node | None) -> TcpConnection | UnixDomainSocketConnection:
    options: dict[str, Any] = {
        "db": location.database,
        "username": location.username,
        "password": location.password,
        "client_name": "gantline",
        "protocol": 2,
        # Every call has a deadline of its own.
        "socket_timeout": None,
        "socket_connect_timeout": _CONNECT_SECONDS,
    }
    if location.socket is not None:
        return UnixDomainSocketConnection(path=str(location.socket), **options)
    assert node is not None  # noqa: S101  # a location without a socket has nodes
    options |= {"host": node.host, "port": node.port, "socket_keepalive": True}
    if location.tls is None:
        return TcpConnection(**options)
    return SSLConnection(**options, **dict[str, Any](location.tls))

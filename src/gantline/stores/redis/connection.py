"""One connection: made by the driver; then we write and read ourselves, whole batches."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

import hiredis
from redis.asyncio import Connection as TcpConnection
from redis.asyncio import SSLConnection, UnixDomainSocketConnection

from gantline.stores.redis.answers import Answers
from gantline.stores.redis.location import Location, Node

Argument = str | bytes | int | float
Command = tuple[Argument, ...]

# Its annotation knows tuples of one element only.
_pack: Final = cast("Callable[[Command], bytes]", hiredis.pack_command)
_CONNECT_SECONDS: Final = 5.0


class Connection:
    """Sends commands together and reads their answers in order."""

    def __init__(self, location: Location, node: Node | None) -> None:
        self._driver = _driver(location, node)
        self._transport: asyncio.WriteTransport | None = None
        self._answers = Answers(self._driver._parser.parse_error)
        self.node = node

    async def open(self) -> None:
        await self._driver.connect()  # type: ignore[no-untyped-call]  # the driver's
        assert self._driver._writer is not None  # noqa: S101  # it is connected
        self._transport = self._driver._writer.transport
        self._transport.set_protocol(self._answers)

    @property
    def is_open(self) -> bool:
        return not self._answers.is_lost

    async def ask(self, *commands: Command) -> list[Any]:
        """The answers, errors of the server among them; a lost connection is raised."""
        assert self._transport is not None  # noqa: S101  # who asks has opened it
        packed = b"".join(map(_pack, commands))
        answers = self._answers.expect(len(commands))
        # Without waiting for room: what does not fit into the socket is this batch alone.
        self._transport.write(packed)
        return await answers

    async def close(self) -> None:
        if self._transport is not None:
            # Not in order: TLS would say good-bye and wait for the answer.
            self._transport.abort()
        with suppress(OSError, asyncio.TimeoutError):
            await self._driver.disconnect(nowait=True)

    def abandon(self) -> None:
        """Let go where the loop has ended on which one could close it."""
        writer, self._driver._writer = self._driver._writer, None
        if writer is not None:
            _let_go(writer.transport)


def _let_go(transport: Any) -> None:
    """Close a socket under its transport. asyncio has no way for that without the loop, and would
    complain of both when they are collected. uvloop has closed them with the loop."""
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

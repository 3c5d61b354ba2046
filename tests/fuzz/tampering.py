"""A proxy before a Redis server that changes, cuts, delays or drops what the server answers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any, Final

from tests.fuzz.mutation import mutated_bytes
from tests.servers.redis import RedisServer


class Error:
    """An error that a server answers."""

    def __init__(self, text: bytes) -> None:
        self.text = text


async def read_reply(reader: asyncio.StreamReader) -> Any:
    """Read one reply of a sound server."""
    line = (await reader.readuntil(b"\r\n"))[:-2]
    kind, rest = line[:1], line[1:]
    match kind:
        case b"$":
            return None if rest == b"-1" else (await reader.readexactly(int(rest) + 2))[:-2]
        case b"*":
            return None if rest == b"-1" else [await read_reply(reader) for _ in range(int(rest))]
        case b":":
            return int(rest)
        case b"-":
            return Error(rest)
        case _:
            return rest.decode()


def encoded(reply: Any) -> bytes:
    match reply:
        case None:
            return b"$-1\r\n"
        case bytes():
            return b"$%d\r\n%b\r\n" % (len(reply), reply)
        case list():
            return b"*%d\r\n" % len(reply) + b"".join(map(encoded, reply))
        case int():
            return b":%d\r\n" % reply
        case Error():
            return b"-%b\r\n" % reply.text
        case _:
            return f"+{reply}\r\n".encode()


# fmt: off
OTHERS: Final[tuple[Any, ...]] = (
    *(None, 0, 1, -1, 2**31, 2**63 - 1, b"", b"1", b"x", b"D", b"K", b"Kwhat", b"S", b"\xff" * 40),
    *([], [[]], [None], [1, 2], [b"a"], [b"a", b"b", b"c"], [0, 0], [1, [], 1], [[[1]]], "OK"),
    *(Error(b"ERR no"), Error(b"WRONGTYPE no"), Error(b"OOM command not allowed"), Error(b"")),
    *(Error(b"ERR user_script:1: bad argument"), Error(b"MISCONF no"), Error(b"what is this")),
)
"""What a reply, or a part of one, is changed into."""
PASSING: Final[tuple[Any, ...]] = (
    *(Error(b"LOADING wait"), Error(b"BUSY wait"), Error(b"NOSCRIPT no"), Error(b"READONLY no")),
    *(Error(b"TRYAGAIN no"), Error(b"CLUSTERDOWN no"), Error(b"MASTERDOWN no")),
)
"""Errors after which the store asks once more."""
BROKEN: Final[tuple[bytes, ...]] = (
    *(b"$999999999999\r\n", b"$-2\r\n", b"*-2\r\n", b":\r\n", b":x\r\n", b"$x\r\n", b"?\r\n"),
    *(b"*1\r\n" * 100, b"*4294967296\r\n", b"*99999999999\r\n", b":" + b"9" * 40 + b"\r\n"),
    *(b"+" + b"x" * 100_000 + b"\r\n", b"$5\r\nabc\r\n", b"$1\r\nabc\r\n", b"\x00" * 50, b"\r\n"),
    *(b"-MOVED 1 127.0.0.1:1\r\n", b"-ASK 1 127.0.0.1:1\r\n", b"-MOVED\r\n", b"-MOVED x y\r\n"),
    *(b"-\r\n", b"HTTP/1.1 400 no\r\n\r\n"),
)
"""What no server says, or not to us."""
# fmt: on

Tamper = Callable[[Any], bytes | None]
"""Change a reply; None cuts the connection."""


def changed(random: Random, reply: Any) -> Any:
    """Change a part of a reply: what it is, or how much of it there is."""
    if isinstance(reply, list) and reply and random.random() < 0.8:
        index = random.randrange(len(reply))
        match random.randrange(6):
            case 0:
                return reply[:index] + reply[index + 1 :]
            case 1:
                return [*reply[:index], reply[index], *reply[index:]]
            case 2:
                return reply[:index]
            case _:
                rest = changed(random, reply[index])
                return [*reply[:index], rest, *reply[index + 1 :]]
    if isinstance(reply, bytes) and reply and random.random() < 0.4:
        cut, longer = reply[: len(reply) // 2], reply + b"\x00"
        return random.choice((cut, longer, mutated_bytes(random, reply)))
    if isinstance(reply, int) and random.random() < 0.3:
        return random.choice((reply + 1, -reply - 1, 2**62))
    return random.choice(OTHERS)


class Proxy:
    """Passes on what both say, until it is asked to tamper with the replies that follow."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._tamper: Tamper | None = None
        self._left = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self.port = 0
        self.tampered = 0

    def url(self, **options: str) -> str:
        return self._server.url(**options).replace(f":{self._server.port}/", f":{self.port}/")

    def tamper(self, tamper: Tamper, *, times: int = 1) -> None:
        self._tamper, self._left, self.tampered = tamper, times, 0

    def stop_tampering(self) -> None:
        self._tamper = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        there, to_there = await asyncio.open_connection("127.0.0.1", self._server.port)
        asking = asyncio.create_task(_pass_on(reader, to_there))
        try:
            while True:
                reply = await read_reply(there)
                said = self._said(reply)
                if said is None:
                    break
                writer.write(said)
        except (OSError, EOFError):
            pass  # one of the two has hung up
        finally:
            asking.cancel()
            self._tasks.discard(task)
            for end in (writer, to_there):
                end.transport.abort()

    def _said(self, reply: Any) -> bytes | None:
        if self._tamper is None or self._left == 0:
            return encoded(reply)
        self._left -= 1
        self.tampered += 1
        return self._tamper(reply)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while said := await reader.read(65536):
            writer.write(said)
    writer.transport.abort()


@asynccontextmanager
async def proxy_to(server: RedisServer) -> AsyncIterator[Proxy]:
    proxy = Proxy(server)
    door = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, limit=2**24)
    proxy.port = door.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        door.close()
        await proxy.close()

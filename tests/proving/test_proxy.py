"""The proxy passes everything on, and does to connections what it is asked to."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from gantline.proving.faults import NetworkFault
from gantline.proving.proxy import HOST, Proxy

pytestmark = pytest.mark.timeout(30)

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class _Echo:
    """A server that says what it hears, behind a proxy; and one client's connection to that."""

    def __init__(self, proxy: Proxy, made: list[NetworkFault]) -> None:
        self.proxy = proxy
        self.made = made
        self.reader: asyncio.StreamReader
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> None:
        self.reader, writer = await asyncio.open_connection(HOST, self.proxy.port)
        self._writers.append(writer)

    def close(self) -> None:
        for writer in self._writers:
            writer.close()

    async def ask(self, text: bytes) -> bytes:
        """What is heard until all is answered, or the connection ends."""
        self._writers[-1].write(text)
        try:
            return await self.reader.readexactly(len(text))
        except asyncio.IncompleteReadError as error:
            return error.partial
        except ConnectionError:
            return b""


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while said := await reader.read(1000):
            writer.write(said)
    except ConnectionError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def _echo(answer: Answer = _answer) -> AsyncIterator[_Echo]:
    server = await asyncio.start_server(answer, HOST, 0)
    made: list[NetworkFault] = []
    proxy = Proxy(HOST, server.sockets[0].getsockname()[1], made.append)
    await proxy.open()
    echo = _Echo(proxy, made)
    await echo.connect()
    assert await echo.ask(b"hello") == b"hello"
    try:
        yield echo
    finally:
        echo.close()
        await proxy.close()
        server.close()


async def test_a_dropped_connection_ends_and_a_new_one_works() -> None:
    async with _echo() as echo:
        assert echo.proxy.drop(0.99)
        assert await echo.ask(b"more") == b""
        await echo.connect()
        assert await echo.ask(b"again") == b"again"


@pytest.mark.parametrize("way", ["request", "answer"])
async def test_a_cut_lets_half_of_it_through(way: str) -> None:
    async with _echo() as echo:
        echo.proxy.cut("request" if way == "request" else "answer", 0.0)
        heard = await echo.ask(b"half")
        # Of a request that is cut the server may answer its half before it hears of the end.
        assert heard in ([b"ha"] if way == "answer" else [b"", b"ha"])
        assert echo.made == [f"cut {way}"]


async def test_what_is_delayed_comes_later() -> None:
    async with _echo() as echo:
        held = asyncio.create_task(echo.proxy.hold("answer", 0.05, drop=False))
        await asyncio.sleep(0)
        asked = asyncio.create_task(echo.ask(b"late"))
        await held
        assert await asked == b"late"


async def test_with_latency_each_way_takes_so_much_longer() -> None:
    async with _echo() as echo:
        echo.proxy.latency_seconds = 0.05
        began = time.monotonic()
        assert await echo.ask(b"slow") == b"slow"
        assert time.monotonic() - began >= 0.1


async def test_a_server_that_is_gone_leaves_a_client_that_is_not_told() -> None:
    async with _echo() as echo:
        assert echo.proxy.leave_half_open("answer") == 1
        asked = asyncio.create_task(echo.ask(b"anybody?"))
        await echo.connect()
        assert await echo.ask(b"again") == b"again"
        assert not asked.done()
        asked.cancel()


async def test_a_client_that_is_gone_leaves_a_server_that_is_not_told() -> None:
    ended = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _answer(reader, writer)
        ended.set()

    async with _echo(answer) as echo:
        echo.proxy.leave_half_open("request")
        assert await echo.ask(b"hello?") == b""
        await echo.connect()
        assert await echo.ask(b"again") == b"again"
        assert not ended.is_set()
        echo.proxy.end_half_open()
        async with asyncio.timeout(10):
            await ended.wait()


async def test_a_black_hole_ends_with_its_connections() -> None:
    async with _echo() as echo:
        held = asyncio.create_task(echo.proxy.hold("request", 0.05, drop=True))
        await asyncio.sleep(0)
        assert await echo.ask(b"nothing") == b""
        await held


async def test_a_black_hole_that_is_ended_early_lets_others_through() -> None:
    async with _echo() as echo:
        held = asyncio.create_task(echo.proxy.hold("answer", 3600, drop=True))
        await asyncio.sleep(0)
        held.cancel()
        await asyncio.wait({held})
        await echo.connect()
        assert await echo.ask(b"again") == b"again"


async def test_a_proxy_can_be_closed_while_it_holds_something() -> None:
    async with _echo() as echo:
        held = asyncio.create_task(echo.proxy.hold("answer", 3600, drop=False))
        await asyncio.sleep(0)
        asked = asyncio.create_task(echo.ask(b"never"))
        await asyncio.sleep(0.01)
        await echo.proxy.close()
        assert await asked == b""
        held.cancel()


async def test_a_server_that_is_not_there_is_a_connection_that_ends() -> None:
    server = await asyncio.start_server(_answer, HOST, 0)
    port: int = server.sockets[0].getsockname()[1]
    server.close()
    proxy = Proxy(HOST, port, lambda kind: None)
    await proxy.open()
    reader, writer = await asyncio.open_connection(HOST, proxy.port)
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await reader.readexactly(1)
    writer.close()
    await proxy.close()

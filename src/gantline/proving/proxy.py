"""The proxy between a process and the server: passes bytes on, and harms connections on request.

It knows nothing of what is said, so it serves PostgreSQL and Redis alike, also over TLS.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, Literal

from gantline.proving.faults import NetworkFault

Way = Literal["request", "answer"]
HOST: Final = "127.0.0.1"
_CHUNK: Final = 65_536
Made = Callable[[NetworkFault], None]


class Proxy:
    """One port of this host that leads to one server. `made` is called when a cut has happened."""

    def __init__(self, host: str, port: int, made: Made) -> None:
        self._to = host, port
        self._made = made
        self._connections: list[_Connection] = []
        self._served: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.latency_seconds = 0.0
        """By how much all that is said comes later, each way."""
        self._is_open = {"request": asyncio.Event(), "answer": asyncio.Event()}
        for way in self._is_open.values():
            way.set()

    @property
    def port(self) -> int:
        assert self._server is not None  # noqa: S101  # for the type checker
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, 0)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.abort()
        for way in self._is_open.values():
            way.set()
        if self._served:
            await asyncio.wait(self._served)

    def drop(self, which: float) -> bool:
        """Reset a connection; False where there is none."""
        if found := self._choose(which):
            found.abort()
        return found is not None

    def cut(self, way: Way, which: float) -> None:
        """Let half of what is said next come through, and reset the connection then."""
        if found := self._choose(which):
            found.cut = way

    async def hold(self, way: Way, seconds: float, *, drop: bool) -> None:
        """Let nothing through for a while; then go on, or reset whoever was there."""
        self._is_open[way].clear()
        held = list(self._connections)
        try:
            await asyncio.sleep(seconds)
        finally:
            if drop:
                for connection in held:
                    connection.abort()
            self._is_open[way].set()

    def leave_half_open(self, gone: Way) -> int:
        """End one side of all connections, unseen by the other; return how many these were.

        Without the side that answers, a client waits for ever; without the one that asks, a server.
        """
        for connection in self._connections:
            connection.abandon(gone)
        return len(self._connections)

    def end_half_open(self) -> None:
        """End the other side too, as a host does that asks after a peer and hears nothing."""
        for connection in self._connections:
            if connection.gone is not None:
                connection.abort()

    def _choose(self, which: float) -> "_Connection | None":
        return self._connections[int(which * len(self._connections))] if self._connections else None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # for the type checker
        self._served.add(task)
        try:
            server = await asyncio.open_connection(*self._to)
        except OSError:
            writer.transport.abort()
            self._served.discard(task)
            return
        connection = _Connection({"request": writer, "answer": server[1]})
        self._connections.append(connection)
        try:
            requests = self._pass_on(connection, "request", reader, server[1])
            answers = self._pass_on(connection, "answer", server[0], writer)
            await asyncio.gather(requests, answers)
        finally:
            connection.abort()
            self._connections.remove(connection)
            self._served.discard(task)

    async def _pass_on(
        self,
        connection: "_Connection",
        way: Way,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        with suppress(OSError):
            while said := await reader.read(_CHUNK):
                if self.latency_seconds:
                    await asyncio.sleep(self.latency_seconds)
                await self._is_open[way].wait()
                if connection.cut == way:
                    writer.write(said[: len(said) // 2])
                    await writer.drain()
                    self._made("cut answer" if way == "answer" else "cut request")
                    break
                if connection.gone is not None:
                    continue
                writer.write(said)
                await writer.drain()
        if connection.gone == way:
            return  # the other side sees nothing of it
        # One that ends by itself ends the other side too, whatever is still held here.
        connection.abort()


class _Connection:
    def __init__(self, sides: Mapping[Way, asyncio.StreamWriter]) -> None:
        """`sides`: by which way each speaks."""
        self._sides = sides
        self.cut: Way | None = None
        self.gone: Way | None = None

    def abandon(self, side: Way) -> None:
        if self.gone is None:
            self.gone = side
            self._sides[side].transport.abort()

    def abort(self) -> None:
        for writer in self._sides.values():
            writer.transport.abort()

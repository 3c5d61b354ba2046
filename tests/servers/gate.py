"""A gate on the way to a server: shut, whoever asks gets no answer, and no connection ends.

Shut for both ways it is a network that swallows all; for one, a connection that is half open. What
was said meanwhile comes through when it opens, as it does where TCP repeats itself.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final, Literal

from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

Way = Literal["questions", "answers"]
BOTH_WAYS: Final[tuple[Way, ...]] = ("questions", "answers")


class Gate:
    """Passes everything on while it is open. `asked` is set by what is said to a shut one."""

    def __init__(self, server: PostgresServer | RedisServer) -> None:
        self._server = server
        self._open = {way: asyncio.Event() for way in BOTH_WAYS}
        for way in self._open.values():
            way.set()
        self.asked = asyncio.Event()
        self._served: dict[asyncio.Task[None] | None, list[asyncio.StreamWriter]] = {}
        self.host = "127.0.0.1"
        self.port = 0

    def url(self, **options: str) -> str:
        there = f"127.0.0.1:{self._server.port}/"
        return self._server.url(**options).replace(there, f"{self.host}:{self.port}/")

    @contextmanager
    def shut(self, *ways: Way) -> Iterator[None]:
        """For both ways unless one is named."""
        self.asked.clear()
        for way in ways or BOTH_WAYS:
            self._open[way].clear()
        try:
            yield
        finally:
            for way in ways or BOTH_WAYS:
                self._open[way].set()

    async def someone_asks(self) -> None:
        async with asyncio.timeout(60):
            await self.asked.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind = await asyncio.open_connection("127.0.0.1", self._server.port)
        task = asyncio.current_task()
        self._served[task] = [writer, behind[1]]
        try:
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._pass_on(reader, behind[1], "questions"))
                ways.create_task(self._pass_on(behind[0], writer, "answers"))
        finally:
            del self._served[task]
            for end in (writer, behind[1]):
                end.close()

    async def close(self) -> None:
        """Hang up on all who are still there."""
        served = dict(self._served)
        for writers in served.values():
            for writer in writers:
                writer.transport.abort()
        if tasks := [task for task in served if task is not None]:
            await asyncio.wait(tasks)

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way
    ) -> None:
        with suppress(OSError):
            while said := await reader.read(65536):
                if way == "questions" and not self._open[way].is_set():
                    self.asked.set()
                await self._open[way].wait()
                writer.write(said)
                await writer.drain()
        with suppress(OSError):  # also where the one who spoke was reset
            writer.write_eof()


@asynccontextmanager
async def gate_to(
    server: PostgresServer | RedisServer, *, host: str = "127.0.0.1"
) -> AsyncIterator[Gate]:
    """`host` is the address at which it is reached."""
    gate = Gate(server)
    door = await asyncio.start_server(gate.serve, host, 0)
    gate.host, gate.port = door.sockets[0].getsockname()[:2]
    try:
        yield gate
    finally:
        door.close()
        await gate.close()

"""A gate on the way to a server: shut, whoever asks gets no answer, and no connection ends."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from tests.servers.postgres import PostgresServer


class Gate:
    """Passes everything on while it is open. `asked` is set by what is said to a shut one."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._is_open = asyncio.Event()
        self._is_open.set()
        self.asked = asyncio.Event()
        self.port = 0

    def url(self, database: str = "postgres", **options: str) -> str:
        return self._server.url(database, **options).replace(
            f":{self._server.port}/", f":{self.port}/"
        )

    @contextmanager
    def shut(self) -> Iterator[None]:
        self.asked.clear()
        self._is_open.clear()
        try:
            yield
        finally:
            self._is_open.set()

    async def someone_asks(self) -> None:
        async with asyncio.timeout(60):
            await self.asked.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind = await asyncio.open_connection("127.0.0.1", self._server.port)
        try:
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._pass_on(reader, behind[1], is_question=True))
                ways.create_task(self._pass_on(behind[0], writer, is_question=False))
        finally:
            for end in (writer, behind[1]):
                end.close()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_question: bool
    ) -> None:
        with suppress(OSError):
            while said := await reader.read(65536):
                if is_question and not self._is_open.is_set():
                    self.asked.set()
                await self._is_open.wait()
                writer.write(said)
                await writer.drain()
            writer.write_eof()


@asynccontextmanager
async def gate_to(server: PostgresServer) -> AsyncIterator[Gate]:
    gate = Gate(server)
    door = await asyncio.start_server(gate.serve, "127.0.0.1", 0)
    gate.port = door.sockets[0].getsockname()[1]
    try:
        yield gate
    finally:
        door.close()

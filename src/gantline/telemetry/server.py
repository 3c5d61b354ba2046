"""The health server: serves pages from a thread and an event loop of its own.

A thread, because it must answer while the main loop is blocked, and say so. By hand, because a
worker has no HTTP library: uvicorn would make the extra `api` necessary for every worker, and the
standard library's http.server gives each slow client a thread for as long as it likes. It reads a
request line, answers and closes.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from http import HTTPStatus
from typing import Final, NamedTuple
from urllib.parse import unquote

from gantline.contract.errors import GantlineError
from gantline.telemetry.address import Address
from gantline.telemetry.routes import AsgiApp, Message

_log = logging.getLogger("gantline.telemetry")

_REQUEST_LIMIT: Final = 16_384


class Patience(NamedTuple):
    """What clients may ask of the server."""

    read_seconds: float = 5.0
    """How long a client may take to say what it wants."""
    answer_seconds: float = 15.0
    """How long it may take until the answer is made and taken."""
    connections: int = 64
    """How many are served at once; the others are turned away."""


class HealthServer:
    """Started and stopped from any thread; `address` then has the port that was taken."""

    def __init__(
        self,
        address: Address,
        app: AsgiApp,
        *,
        beside: Sequence[Callable[[], Awaitable[None]]] = (),
        patience: Patience = Patience(),  # noqa: B008  # it never changes
    ) -> None:
        """`beside`: what else is to run in the server's loop as long as it serves."""
        self.address = address
        self._app = app
        self._beside = beside
        self._patience = patience
        self.open_connections = 0
        """How many clients are being served now."""
        self._thread: threading.Thread | None = None
        self._stop: Callable[[], object] = lambda: None

    def start(self) -> None:
        """Listen; raise GantlineError where that cannot be done."""
        started = Future[Address]()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(started)), name="gantline-health", daemon=True
        )
        self._thread.start()
        try:
            self.address = started.result()
        except (OSError, OverflowError) as error:
            raise GantlineError(
                f"The health port {self.address} cannot be opened: {error}.",
                next_step="Name another one with --health, or end what uses it.",
            ) from None

    def stop(self) -> None:
        self._stop()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    async def _serve(self, started: "Future[Address]") -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        self._stop = lambda: _unless_closed(loop, stopped.set)
        try:
            server = await self._listen()
        except BaseException as error:
            started.set_exception(error)
            return
        beside = [asyncio.ensure_future(one()) for one in self._beside]
        started.set_result(self._taken(server))
        await stopped.wait()
        server.close()
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)

    async def _listen(self) -> asyncio.Server:
        where, limit = self.address, _REQUEST_LIMIT
        if where.path is not None:
            return await asyncio.start_unix_server(self._connected, where.path, limit=limit)
        return await asyncio.start_server(self._connected, where.host, where.port, limit=limit)

    def _taken(self, server: asyncio.Server) -> Address:
        if self.address.path is not None:
            return self.address
        return self.address._replace(port=server.sockets[0].getsockname()[1])

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open_connections += 1
        try:
            if self.open_connections <= self._patience.connections:
                await self._converse(reader, writer)
        except (OSError, EOFError, TimeoutError):
            pass  # gone, or too slow
        except Exception:
            _log.exception("a health page failed")
        finally:
            self.open_connections -= 1
            writer.transport.abort()  # what a slow client has not taken by now, it does not get

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(self._patience.read_seconds):
            request = await _read(reader)
        async with asyncio.timeout(self._patience.answer_seconds):
            if request is None:
                writer.write(_head(400, []))
            else:
                await self._answer(*request, writer)
            writer.close()
            await writer.wait_closed()

    async def _answer(self, method: str, target: str, writer: asyncio.StreamWriter) -> None:
        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                writer.write(_head(message["status"], message["headers"]))
            else:
                writer.write(message.get("body", b""))

        path, _, query = target.partition("?")
        scope: Message = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [],
        }
        await self._app(scope, receive, send)


async def _read(reader: asyncio.StreamReader) -> tuple[str, str] | None:
    """Read a request to the end of its head; method and target, or None where it is none."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return None
    line = head.partition(b"\r\n")[0]
    words = line.split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1.") or not line.isascii():
        return None
    return words[0].decode(), words[1].decode()


def _head(status: int, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    line = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode()
    lines = [line, *(name + b": " + value for name, value in headers), b"connection: close"]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def _unless_closed(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call)

"""The health server: serves health and metrics pages from a thread and an event loop of its own.

A thread, because it must respond while the main loop is blocked, and say so. Without a library,
because a worker has no HTTP library: uvicorn would make the extra `api` necessary for every worker,
and the standard library's http.server gives each slow client a thread for as long as it likes. It
reads a request line, responds and closes.
"""

import asyncio
import logging
import re
import threading
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import msgspec

from gantline.auth.hosts import name_in, names_for
from gantline.contract.errors import GantlineError, InvalidInput
from gantline.runtime import start_thread

_log = logging.getLogger("gantline.telemetry")

_LOCAL: Final = "unix:"
_JSON: Final = "application/json"
_REQUEST_LIMIT: Final = 16_384


class ListenAddress(NamedTuple):
    """A TCP port, of all interfaces where no host is named; or the path of a local socket."""

    host: str | None = None
    port: int = 0
    path: Path | None = None

    def __str__(self) -> str:
        if self.path is not None:
            return f"{_LOCAL}{self.path}"
        host = self.host or ""
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


def parse_address(text: str) -> ListenAddress:
    """Read an address; raise InvalidInput. Port 0 is any that is free."""
    if text.startswith(_LOCAL):
        return ListenAddress(path=Path(text.removeprefix(_LOCAL)))
    host, colon, port = text.rpartition(":")
    is_bare_v6 = ":" in host and not (host.startswith("[") and host.endswith("]"))
    if not colon or is_bare_v6 or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise InvalidInput(
            f"{text[:64]!r} is not an address to listen on.",
            next_step="Write :8081, 127.0.0.1:8081 or [::1]:8081.",
        )
    return ListenAddress(host.strip("[]") or None, int(port))


AsgiMessage = MutableMapping[str, Any]
AsgiReceive = Callable[[], Awaitable[AsgiMessage]]
AsgiSend = Callable[[AsgiMessage], Awaitable[None]]
AsgiApp = Callable[[AsgiMessage, AsgiReceive, AsgiSend], Awaitable[None]]


class Response(NamedTuple):
    """A whole page."""

    status: int
    body: bytes
    content_type: str = _JSON

    @classmethod
    def of(cls, status: int, data: Any) -> "Response":
        return cls(status, msgspec.json.encode(data) + b"\n")


Page = Callable[[], Awaitable[Response]]

LIVE_PATH: Final = "/healthz"
READY_PATH: Final = "/readyz"
METRICS_PATH: Final = "/metrics"
_PATH: Final = re.compile(r"(/[A-Za-z0-9._~-]+)+")


class HealthPaths(NamedTuple):
    """Where else the pages for probes are, as a platform asks for them; ours stay."""

    live: str = LIVE_PATH
    ready: str = READY_PATH

    def checked(self) -> "HealthPaths":
        """Raise InvalidInput for paths that the pages cannot have."""
        wrong = [path for path in self if not _PATH.fullmatch(path) or path.startswith("/api/")]
        if wrong or self.live in (self.ready, READY_PATH) or self.ready == LIVE_PATH:
            raise InvalidInput(
                f"The health pages cannot be at {self.live[:64]!r} and {self.ready[:64]!r}.",
                next_step="Write two paths such as /v1/health/live and /v1/health/ready; those "
                "under /api/ are taken.",
            )
        if METRICS_PATH in self:
            raise InvalidInput(f"{METRICS_PATH} is the page of the metrics.")
        return self

    def pages(self, live: Page, ready: Page) -> dict[str, Page]:
        """Put the pages at their paths; raise InvalidInput."""
        self.checked()
        return {LIVE_PATH: live, READY_PATH: ready, self.live: live, self.ready: ready}


class Routes:
    """An ASGI application of pages for GET and HEAD; mountable at any path of another one."""

    def __init__(self, pages: Mapping[str, Page]) -> None:
        self.pages = pages

    async def __call__(self, scope: AsgiMessage, receive: AsgiReceive, send: AsgiSend) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"there is nothing here but pages to read, no {scope['type']}")
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        response = await self._respond(scope["method"], path)
        headers = [
            (b"content-type", response.content_type.encode()),
            (b"content-length", str(len(response.body)).encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
        ]
        if response.status == 405:
            headers.append((b"allow", b"GET, HEAD"))
        status, body = response.status, b"" if scope["method"] == "HEAD" else response.body
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _respond(self, method: str, path: str) -> Response:
        page = self.pages.get(path)
        if page is None:
            return Response.of(404, {"message": f"There are {', '.join(self.pages)}."})
        if method not in ("GET", "HEAD"):
            return Response.of(405, {"message": "This can only be read."})
        return await page()


class ServerLimits(NamedTuple):
    """How long and how many clients are served."""

    read_seconds: float = 5.0
    """How long a client may take to send its request."""
    response_seconds: float = 15.0
    """How long it may take until the response is made and received."""
    connections: int = 64
    """How many are served at once; further connections are closed."""


class HealthServer:
    """Started and stopped from any thread; `address` has the port in use once it is started."""

    def __init__(
        self,
        address: ListenAddress,
        app: AsgiApp,
        *,
        limits: ServerLimits = ServerLimits(),  # noqa: B008  # it never changes
    ) -> None:
        self.address = address
        self._app = app
        self._limits = limits
        self._names = names_for(address.host) if address.host else ()
        self.open_connections = 0
        """How many clients are being served now."""
        self._thread: threading.Thread | None = None
        self._stop: Callable[[], object] = lambda: None

    def start(self) -> None:
        """Listen; raise GantlineError where that cannot be done."""
        started = Future[ListenAddress]()
        self._thread = start_thread(lambda: asyncio.run(self._serve(started)), "gantline-health")
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

    async def _serve(self, started: "Future[ListenAddress]") -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        self._stop = lambda: _call_unless_closed(loop, stopped.set)
        try:
            server = await self._listen()
        except BaseException as error:
            started.set_exception(error)
            return
        started.set_result(self._bound_address(server))
        await stopped.wait()
        server.close()

    async def _listen(self) -> asyncio.Server:
        where, limit = self.address, _REQUEST_LIMIT
        if where.path is not None:
            return await asyncio.start_unix_server(self._handle_connection, where.path, limit=limit)
        return await asyncio.start_server(
            self._handle_connection, where.host, where.port, limit=limit
        )

    def _bound_address(self, server: asyncio.Server) -> ListenAddress:
        if self.address.path is not None:
            return self.address
        return self.address._replace(port=server.sockets[0].getsockname()[1])

    async def _handle_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.open_connections += 1
        try:
            if self.open_connections <= self._limits.connections:
                await self._serve_request(reader, writer)
        except (OSError, EOFError, TimeoutError):
            pass  # gone, or too slow
        except Exception:
            _log.exception("a health page failed")
        finally:
            self.open_connections -= 1
            writer.transport.abort()  # a slow client does not get the rest

    async def _serve_request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        async with asyncio.timeout(self._limits.read_seconds):
            request = await _read_request(reader)
        async with asyncio.timeout(self._limits.response_seconds):
            if request is None or not self._may_be_called(request.hosts):
                writer.write(_encode_head(400, []))
            else:
                await self._respond(request.method, request.target, writer)
            writer.close()
            await writer.wait_closed()

    def _may_be_called(self, hosts: Sequence[str]) -> bool:
        """Whether no web page has sent this: a browser says the name that it knows us by."""
        return not self._names or all(name_in(host) in self._names for host in hosts)

    async def _respond(self, method: str, target: str, writer: asyncio.StreamWriter) -> None:
        async def receive() -> AsgiMessage:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: AsgiMessage) -> None:
            if message["type"] == "http.response.start":
                writer.write(_encode_head(message["status"], message["headers"]))
            else:
                writer.write(message.get("body", b""))

        path, _, query = target.partition("?")
        scope: AsgiMessage = {
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


class _Request(NamedTuple):
    method: str
    target: str
    hosts: Sequence[str]


async def _read_request(reader: asyncio.StreamReader) -> _Request | None:
    """Read the head of a request; return None where it is malformed."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return None
    line, *headers = head.split(b"\r\n")
    words = line.split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1.") or not line.isascii():
        return None
    pairs = (header.decode("latin-1").partition(":") for header in headers)
    hosts = [value for name, _, value in pairs if name.strip().lower() == "host"]
    return _Request(words[0].decode(), words[1].decode(), hosts)


def _encode_head(status: int, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    line = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode()
    lines = [line, *(name + b": " + value for name, value in headers), b"connection: close"]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def _call_unless_closed(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call)

"""Serving the API by uvicorn: patient with jobs, but not with slow clients."""

import asyncio
import socket
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import uvicorn
from starlette.responses import PlainTextResponse
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gantline.api.headers import host, merged
from gantline.api.streams.watch import notify_stopping
from gantline.contract.errors import GantlineError

_HEAD_SECONDS: Final = 10.0
_MOST_HEAD_BYTES: Final = 64 * 1024
_AROUND_A_HEADER: Final = len(b": \r\n")
_MOST_PIPELINED: Final = 100
# How long what was written may lie here because the client does not read it.
_READ_SECONDS: Final = 60.0
_KEEP_ALIVE_SECONDS: Final = 15
_DRAIN_SECONDS: Final = 35
# A last resort of the server itself; the shares of ApiSettings answer with a problem before.
_MOST_CONNECTIONS: Final = 10_000
_NO_NAME_OF_OURS: Final = PlainTextResponse(
    "Host is not a name by which this server may be called; see the setting allowed_hosts.\n", 400
)
_HEAD_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: text/plain; charset=utf-8\r\ncontent-length: 47\r\nconnection: close\r\n\r\n"
    b"The head of a request may have 64 KiB at most.\n"
)
# What the process opens besides connections of clients: those to the store, files, its log.
_OTHER_FILES: Final = 128
# Who sends on and on what is refused is answered so often, and so many at once.
_REFUSALS_PER_SECOND: Final = 100.0
_REFUSALS_AT_ONCE: Final = 20
_LONGEST_HOLD_SECONDS: Final = 10.0
_MOST_PEERS: Final = 10_000
_UNAUTHENTICATED: Final = 401
_BODY_TIMEOUT: Final = 408
_TOO_MANY: Final = 429


class Peers:
    """How many connections each peer has, and how fast it is answered what is refused.

    A refusal takes less time than a request, but there may be many times as many.
    """

    def __init__(self, most: int) -> None:
        """`most` connections of all of them, and half of these of one; a proxy is one, too."""
        self._most = most
        self._in_all = 0
        self._connections: dict[str, int] = {}
        self._next_at: dict[str, float] = {}

    def connect(self, peer: str) -> bool:
        """Count a connection; say whether the peer may have it."""
        self._in_all += 1
        self._connections[peer] = self._connections.get(peer, 0) + 1
        return self._in_all <= self._most and self._connections[peer] <= self._most // 2

    def disconnect(self, peer: str) -> None:
        self._in_all -= 1
        self._connections[peer] -= 1
        if not self._connections[peer]:
            del self._connections[peer]

    def hold_seconds(self, peer: str, now: float) -> float:
        """After how long to answer one more refusal of this peer; 0 for the first ones."""
        each = 1 / _REFUSALS_PER_SECOND
        if len(self._next_at) >= _MOST_PEERS:
            self._next_at = {one: at for one, at in self._next_at.items() if at > now}
        next_at = max(self._next_at.get(peer, now), now)
        self._next_at[peer] = min(next_at + each, now + _LONGEST_HOLD_SECONDS)
        return max(0.0, next_at - now - _REFUSALS_AT_ONCE * each)


class ImpatientProtocol(HttpToolsProtocol):
    """Ends a connection whose client takes what is not its own: time, or memory.

    uvicorn itself waits for ever: for the rest of a head, and for a client to read its answer; so a
    few thousand clients that do a little now and then could take all connections. It also keeps
    whatever is sent as a head, and all requests that are sent before the first is answered. The
    body's time and size are limited by the API.
    """

    config: "_Config"
    _peer = ""
    _ending: asyncio.TimerHandle | None = None
    _stalling: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _is_head = True
    _field_bytes = 0
    _is_refused = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._peer = self.client[0] if self.client else ""
        if self.config.peers.connect(self._peer):
            self._end_unless_in_time()
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        if not self._is_refused:
            super().data_received(data)
            if self._head_bytes > _MOST_HEAD_BYTES:
                self._refuse()
        # Of what comes after a refusal as much is read, so that it does not cut the answer off.
        if self._head_bytes > _MOST_HEAD_BYTES or len(self.pipeline) > _MOST_PIPELINED:
            self.transport.abort()
        elif self._is_answering():
            self._let_be()
        elif self._ending is None:
            self._end_unless_in_time()

    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = getattr(self, "cycle", None)
        return cycle is not None and not cycle.response_complete

    def _refuse(self) -> None:
        """Answer 431, after the requests that came before; read nothing any more."""
        self._is_refused, self._head_bytes = True, 0
        if not self._is_answering():
            self.transport.write(_HEAD_TOO_LARGE)
            self.transport.write_eof()

    def send_400_response(self, msg: str) -> None:
        """Answer what uvicorn could not parse, or `_count` did not let it."""
        if self._is_refused:
            self._refuse()
        else:
            super().send_400_response(msg)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_head, self._field_bytes = True, 0

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        # uvicorn takes a trailer for a header; a proxy may have checked only those.
        if self._is_head:
            self._count(len(name) + len(value) + _AROUND_A_HEADER)
            super().on_header(name, value)

    def _count(self, size: int) -> None:
        """Count what is in a head; raise ValueError where it is too much, which ends the parsing.

        What comes at once is parsed before anybody sees how much it was.
        """
        self._field_bytes += size
        if self._field_bytes > _MOST_HEAD_BYTES:
            self._is_refused = True
            raise ValueError("the head of a request is too large")

    def on_headers_complete(self) -> None:
        self._head_bytes, self._is_head = 0, False
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._end_unless_read()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._is_read()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._end_unless_read()
        elif self._is_refused and not self._is_answering():
            self._refuse()

    def timeout_keep_alive_handler(self) -> None:
        self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.config.peers.disconnect(self._peer)
        self._let_be()
        self._is_read()
        super().connection_lost(error)

    def _end_unless_in_time(self) -> None:
        self._ending = self.loop.call_later(_HEAD_SECONDS, self.transport.abort)

    def _let_be(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None

    def _end_unless_read(self) -> None:
        if self._stalling is None:
            self._stalling = self.loop.call_later(_READ_SECONDS, self.transport.abort)

    def _is_read(self) -> None:
        if self._stalling is not None:
            self._stalling.cancel()
            self._stalling = None


class _Config(uvicorn.Config):
    """What all connections of a server share."""

    def __init__(self, app: Any, **options: Any) -> None:
        super().__init__(app, **options)
        self.peers = Peers(most_connections())


class _Server(uvicorn.Server):
    """Leaves signals to the command that runs it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class ApiServer:
    """Serve an ASGI application until stopped."""

    def __init__(
        self,
        app: Any,
        *,
        host: str,
        port: int,
        has_lifespan: bool = False,
        names: Collection[str] = (),
        proxies: Collection[str] = (),
    ) -> None:
        """Take the address; raise GantlineError where that cannot be done.

        `names` are those by which it may be called: see `names_for`. `proxies` are the addresses
        and networks of those whose X-Forwarded-For and X-Forwarded-Proto are believed.
        """
        self._app = app
        self._names = frozenset(names)
        self._socket = _listening(host, port)
        config = _Config(
            self._serve_one,
            interface="asgi3",
            http=ImpatientProtocol,
            ws="none",
            lifespan="on" if has_lifespan else "off",
            log_config=None,
            # What anybody may send that is no HTTP is no line of the log.
            log_level="error",
            access_log=False,
            server_header=False,
            # uvicorn itself believes every caller of this host.
            proxy_headers=bool(proxies),
            forwarded_allow_ips=list(proxies),
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=_DRAIN_SECONDS,
        )
        self._peers = config.peers
        self._server = _Server(config)

    @property
    def url(self) -> str:
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def serve(self) -> None:
        """Answer requests; returns when `stop` was called and those under way are answered."""
        await self._server.serve(sockets=[self._socket])

    async def _serve_one(self, scope: Any, receive: Any, send: Any) -> None:
        notify_stopping(scope, lambda: self._server.should_exit)
        if (
            self._names
            and scope["type"] == "http"
            and host(merged(scope["headers"])) not in self._names
        ):
            await _NO_NAME_OF_OURS(scope, receive, send)
            return

        async def answer(message: Any) -> None:
            status = message.get("status")
            if status in (_UNAUTHENTICATED, _TOO_MANY):
                await self._hold(scope, receive)
            elif status == _BODY_TIMEOUT:  # the rest of the body is no request
                message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        await self._app(scope, receive, answer)

    async def _hold(self, scope: Any, receive: Any) -> None:
        """Let a refusal wait where there are many; a connection that waits sends no other one."""
        peer = scope["client"][0] if scope.get("client") else ""
        now = asyncio.get_running_loop().time()
        seconds = self._peers.hold_seconds(peer, now)
        if seconds > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while (await receive())["type"] != "http.disconnect":
                        pass

    def stop(self) -> None:
        """Take no more requests, and answer those under way."""
        self._server.should_exit = True

    def stop_now(self) -> None:
        self._server.should_exit = self._server.force_exit = True


def most_connections() -> int:
    """How many connections the process can hold; it may open as many files as the system lets it.

    Services often have a soft limit of 1024, which one idle client reaches; then the system would
    end the connections of all others.
    """
    if sys.platform == "win32":
        return _MOST_CONNECTIONS
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = _MOST_CONNECTIONS + _OTHER_FILES
    if resource.RLIM_INFINITY not in (soft, hard):
        files = min(files, hard)
    if soft != resource.RLIM_INFINITY and soft < files:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(files - _OTHER_FILES, _OTHER_FILES)


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=2048)
        # asyncio sets it only on sockets that name their protocol; without it every answer but the
        # first of a connection takes 40 ms.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except (OSError, OverflowError) as error:
        raise GantlineError(
            f"The address {host}:{port} cannot be served: {error}.",
            next_step="Name another one with --host and --port, or end what uses it.",
        ) from None
